"""Which of several controllers acts: the holder of a lease, and nobody else at any moment.

One that cannot renew its lease stops a while before another can have it: from then on no request of
its leaves (`LeadersPace`), and its process ends.
"""

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Final

from elastic.errors import PlatformError
from elastic.platforms.kubernetes.api.cluster import AwayError, RefusedError
from elastic.platforms.kubernetes.api.errors import is_permanent
from elastic.platforms.kubernetes.api.leases import Lease
from elastic.platforms.kubernetes.api.transport import BURST, RATE, Pace

DURATION_S: Final = 9
"""Of the lease. Who waits for it has seen the last renewal up to `RETRY_S` late, and looks again up
to `RETRY_S` late: a standby leads 11 s after its leader was killed, and has 4 s to list."""

RENEW_S: Final = 2.0
RETRY_S: Final = 1.0
"""Between two tries of who waits, and of who could not renew."""

MARGIN_S: Final = 2.0
"""A leader stops so long before the lease ends: for what it has sent and has not arrived."""

TIMEOUT_S: Final = 3.0
"""For an answer about the lease; a connection that died in silence costs one renewal."""

logger = logging.getLogger(__name__)


class LeaseLostError(PlatformError):
    """Another process may act from now on, so this one may not."""


class LeadersPace(Pace):
    """Lets requests out at a bounded pace, and none once their sender leads no more."""

    def __init__(
        self, is_leading: Callable[[], bool], rate: float = RATE, burst: int = BURST
    ) -> None:
        """Keep the parts.

        Args:
            is_leading: Asked for each request, just before it goes out.
            rate: Requests a second.
            burst: Requests at once.
        """
        super().__init__(rate, burst)
        self._is_leading = is_leading

    def wait(self) -> None:
        """Return when the next request may go out.

        Raises:
            LeaseLostError: It may never.
        """
        super().wait()
        if not self._is_leading():
            raise LeaseLostError("this process leads no more: nothing is sent")


class Election:
    """One candidate: waits for the lease, keeps it, lets it go."""

    def __init__(
        self,
        lease: Lease,
        name: str,
        duration_s: float = DURATION_S,
        renew_s: float = RENEW_S,
        retry_s: float = RETRY_S,
        margin_s: float = MARGIN_S,
    ) -> None:
        """Keep the parts; nothing is sent before `win`.

        Args:
            lease: Not used by anybody else.
            name: Of the lease, for messages.
            duration_s: Of the lease.
            renew_s: See `RENEW_S`; several times within `duration_s`.
            retry_s: See `RETRY_S`.
            margin_s: See `MARGIN_S`.
        """
        self._lease = lease
        self._name = name
        self._leads_for_s = duration_s - margin_s
        self._renew_s = renew_s
        self._retry_s = retry_s
        self._until_s = 0.0
        self._last_try_s = time.monotonic()
        self._failure: PlatformError | None = None
        self._is_taken = False
        # A lease is no matter of two threads, and who resigns is another one than who renews.
        self._trying = threading.Lock()
        self._resigned = threading.Event()

    @property
    def is_leading(self) -> bool:
        """Whether this process may act; never while another may."""
        return time.monotonic() < self._until_s

    @property
    def is_in_contact(self) -> bool:
        """Whether the API server has answered the last try."""
        return self._failure is None

    @property
    def silent_s(self) -> float:
        """Seconds since a try has ended, in whatever way: many of them mean that all hangs."""
        return time.monotonic() - self._last_try_s

    def win(self, stopping: threading.Event) -> bool:
        """Wait until this process leads, and have the lease renewed from then on.

        Args:
            stopping: Ends the waiting.

        Returns:
            Whether it leads: False where `stopping` came first.

        Raises:
            RefusedError: The API server does not let this user have the lease.
        """
        is_told = False
        while not stopping.is_set():
            if self._try():
                logger.info("leads: holds the lease %s", self._name)
                threading.Thread(target=self._renew, name="renew lease", daemon=True).start()
                return True
            if isinstance(self._failure, RefusedError) and is_permanent(self._failure):
                raise self._failure
            if not is_told and self._failure is None:
                logger.info("stands by: another process holds the lease %s", self._name)
                is_told = True
            stopping.wait(self._pause_s())
        return False

    def keep(self, stopping: threading.Event, poll_s: float = 0.5) -> None:
        """Return when `stopping` is set; the lease is renewed meanwhile, and afterwards.

        Raises:
            LeaseLostError: This process leads no more, and nobody else does yet.
        """
        while not stopping.is_set():
            left_s = self._until_s - time.monotonic()
            if left_s <= 0:
                raise LeaseLostError(self.why_lost())
            # Whoever else takes the lease away ends it at once, which nobody tells this thread.
            stopping.wait(min(left_s, poll_s))

    def why_lost(self) -> str:
        """What a process that led and leads no more tells at its end."""
        return (
            f"the lease {self._name} is no longer held: {self._cause()}. This process ends, lest "
            "two act at once; its Deployment starts it again"
        )

    def resign(self) -> None:
        """Stop renewing, and let the next one lead at once where the API server hears of it."""
        self._resigned.set()
        with self._trying:
            self._until_s = 0.0
            try:
                self._lease.release()
            except PlatformError as error:
                logger.warning("the lease %s ends by itself: %s", self._name, error)

    def _renew(self) -> None:
        pause_s = self._renew_s
        while not self._resigned.wait(pause_s):
            is_renewed = self._try()
            if not is_renewed and self._failure is None:
                return
            pause_s = self._renew_s if is_renewed else self._pause_s()

    def _try(self) -> bool:
        """One try to take or to renew; whether it succeeded."""
        with self._trying:
            if self._resigned.is_set():
                return False
            began_s = time.monotonic()
            failure: PlatformError | None = None
            is_ours = False
            try:
                is_ours = self._lease.try_hold()
                # Where nobody says no, what was held before is held until it ends.
                self._until_s = began_s + self._leads_for_s if is_ours else 0.0
            except (AwayError, RefusedError) as error:
                failure = error
            if failure is not None and self._failure is None:
                logger.warning("the lease %s cannot be asked for: %s", self._name, failure)
            self._failure = failure
            self._is_taken = failure is None and not is_ours
            self._last_try_s = time.monotonic()
            return is_ours

    def _cause(self) -> str:
        if self._failure is not None:
            return str(self._failure)
        if self._is_taken:
            return "another process has taken it"
        return (
            f"no renewal was done within {self._leads_for_s:g} s, as on a node without CPU to spare"
        )

    def _pause_s(self) -> float:
        return self._retry_s * random.uniform(0.8, 1.0)  # noqa: S311 - no secret
