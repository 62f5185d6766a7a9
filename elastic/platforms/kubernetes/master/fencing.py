"""The fence of a master whose pod is made again: a Lease, which one of them holds at a time."""

import logging
import threading
from collections.abc import Callable
from typing import Final

from elastic.errors import PlatformError
from elastic.platforms.base import FencedError
from elastic.platforms.kubernetes.api.leases import Lease

logger = logging.getLogger(__name__)

DURATION_S: Final = 15
"""Of the lease: what a master that is lost for good costs the next one."""

RENEW_S: Final = 3.0
RETRY_S: Final = 1.0
"""Between two tries of who waits, and of who could not renew."""

MARGIN_S: Final = 4.0
"""A master acts no more so long before the lease ends: for what it has sent and has not arrived,
and for what it has checked and not done yet."""

TIMEOUT_S: Final = 3.0
"""For an answer about the lease; a connection that died in silence costs one renewal."""


class LeaseFence:
    """Lets its master act while that holds the lease, and ends it when another has taken it.

    While the API server is away nobody can renew, and nobody can take the lease either: the master
    pauses, and goes on where it finds the lease its own.
    """

    def __init__(
        self,
        lease: Lease,
        on_lost: Callable[[], None],
        is_current: Callable[[], bool],
        renew_s: float = RENEW_S,
        retry_s: float = RETRY_S,
        margin_s: float = MARGIN_S,
    ) -> None:
        """Keep the parts; nothing is sent before `acquire`.

        Args:
            lease: Not used by anybody else; its identity is that of the master's pod.
            on_lost: Called once, on a thread of the fence, when another master has the lease, or
                is to have it.
            is_current: Asked for each renewal: whether the API server still knows this master's
                pod. One that it has forgotten, of a node that its kubelet has left, may live on for
                ever, and must not keep its successor waiting.
            renew_s: See `RENEW_S`; several times within the lease's duration.
            retry_s: See `RETRY_S`.
            margin_s: See `MARGIN_S`.
        """
        self._lease = lease
        self._on_lost = on_lost
        self._is_current = is_current
        self._renew_s = renew_s
        self._retry_s = retry_s
        self._margin_s = margin_s
        # A lease is no matter of two threads, and who lets it go is another one than who renews.
        self._trying = threading.Lock()
        self._released = threading.Event()
        self._is_in_contact = True

    @property
    def has_predecessor(self) -> bool:
        """Whether a master in another pod has held the lease before."""
        return self._lease.term > 0

    def acquire(self) -> None:
        """Wait until no other master holds the lease, and have it renewed from then on.

        Raises:
            FencedError: This master's pod is gone; its end has been asked for.
            PlatformError: The API server is away or refuses; it may be tried again.
        """
        is_told = False
        while not self._try_first():
            if not is_told:
                logger.info("waits until the master before this one holds the lease no more")
                is_told = True
            self._released.wait(self._retry_s)
        logger.info("holds the lease of the job's master, term %d", self._lease.term)
        threading.Thread(target=self._renew_for_ever, name="renew lease", daemon=True).start()

    def _try_first(self) -> bool:
        # A container of a forgotten pod is started again as any other, and the lease may be its
        # own still.
        if not self._is_current():
            self._on_lost()
            raise FencedError("the pod of this master is gone, and another one is to act")
        return self._lease.try_hold()

    def check(self) -> None:
        """See `Fence`."""
        if self._lease.left_s <= self._margin_s:
            raise FencedError(
                "this master cannot know that no other one acts for the job, so it waits: it holds "
                "the job's lease no more, or could not renew it"
            )

    def release(self) -> None:
        """Act no more, and let the next master begin at once where the API server hears of it."""
        self._released.set()
        with self._trying:
            try:
                self._lease.release()
            except PlatformError as error:
                logger.warning("the lease ends by itself: %s", error)

    def _renew_for_ever(self) -> None:
        pause_s = self._renew_s
        while not self._released.wait(pause_s):
            with self._trying:
                if self._released.is_set():
                    return
                is_ours = self._renew()
            if is_ours is False:
                self._on_lost()
                return
            pause_s = self._renew_s if is_ours else self._retry_s

    def _renew(self) -> bool | None:
        """Renew; whether the lease is still ours, None where nobody can say."""
        try:
            if not self._is_current():
                logger.warning("the pod of this master is gone: it renews the lease no more")
                return False
            # A conflict may be of somebody who has changed something else, so it is asked again.
            is_ours = self._lease.try_hold() or self._lease.try_hold()
        except PlatformError as error:
            if self._is_in_contact:
                logger.warning("the lease cannot be renewed: %s", error)
            self._is_in_contact = False
            return None
        if is_ours and not self._is_in_contact:
            logger.info("the lease is renewed again, and nobody had it meanwhile")
        self._is_in_contact = True
        return is_ours
