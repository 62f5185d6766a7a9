"""Keeps jobs of all kinds as they are to be: looks at each when something about it has changed.

`WorkQueue` says which is next: each once, in the order of asking, and failures ever more rarely. A
key is in work at most once at a time. What is asked for meanwhile is kept, so that the last look at
a key always begins after the last time it was asked for.
"""

import heapq
import logging
import random
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, Generic, TypeVar

from elastic.controller.machinery.informers import RETRY_S, Informers, JobKey
from elastic.controller.machinery.meter import Meter, Sample
from elastic.controller.machinery.recorder import EventRecorder
from elastic.controller.machinery.writing import (
    Adoption,
    Farewell,
    LeavingError,
    RejectedError,
    Writer,
)
from elastic.controller.reconciling import Change, EventType, Kind, Note, Scaler
from elastic.errors import PlatformError
from elastic.platforms.kubernetes.api.cluster import Cluster
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.api.transport import BUSY, RefusedError

K = TypeVar("K", bound=Hashable)

RETRIES_PER_S: Final = 20.0
"""Of all keys together: a thousand that fail at once must not come back at once."""

RETRY_BURST: Final = 100
_MAX_DOUBLINGS: Final = 30
_SPARE_TIMERS: Final = 64


@dataclass(frozen=True, slots=True)
class BackOff:
    """How long a key that failed rests: doubled with each failure in a row.

    Attributes:
        first_s: After the first failure, at the most.
        last_s: Never longer.
        jitter: The part of a pause that is drawn, from 0 to 1: what failed together shall not come
            back together.
    """

    first_s: float = 0.1
    last_s: float = 60.0
    jitter: float = 0.5

    def pause_s(self, failures: int, rng: random.Random) -> float:
        """The pause after so many failures in a row, >= 1."""
        # A count without bounds must not overflow a float.
        full_s = self.first_s * 2.0 ** min(failures - 1, _MAX_DOUBLINGS)
        return min(self.last_s, full_s) * rng.uniform(1.0 - self.jitter, 1.0)


@dataclass(frozen=True, slots=True)
class Taken(Generic[K]):
    """A key that is in work until `done`.

    Attributes:
        since_s: When it was asked for, or was due, by the queue's clock; the first time, where it
            was asked for several times.
    """

    key: K
    since_s: float


class WorkQueue(Generic[K]):
    """Keys that wait to be taken. Safe to use from several threads."""

    def __init__(
        self,
        back_off: BackOff | None = None,
        retries_per_s: float = RETRIES_PER_S,
        retry_burst: int = RETRY_BURST,
        now_s: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        """Keep the parts.

        Args:
            back_off: See `again`.
            retries_per_s: Of all keys that failed, in the long run.
            retry_burst: Of them, at once.
            now_s: The clock, in seconds; it never goes back.
            rng: For the jitter.
        """
        self._back_off = back_off or BackOff()
        self._retries_per_s = retries_per_s
        self._retry_burst = float(retry_burst)
        self._now_s = now_s
        self._rng = rng or random.Random()  # noqa: S311 - jitter, no secret
        self._changed = threading.Condition()
        # Dicts keep the order in which keys were asked for.
        self._ready: dict[K, float] = {}
        self._in_work: set[K] = set()
        self._asked_meanwhile: dict[K, float] = {}
        self._due: dict[K, tuple[float, int]] = {}
        self._timers: list[tuple[float, int, K]] = []
        self._num_timers = 0
        self._failures: dict[K, int] = {}
        self._tokens = self._retry_burst
        self._filled_s = now_s()
        self._is_closed = False

    @property
    def depth(self) -> int:
        """Keys that could be taken now, or once the work on them is done."""
        with self._changed:
            self._wake_due()
            return len(self._ready) + len(self._asked_meanwhile)

    @property
    def num_later(self) -> int:
        """Keys that wait for a moment to come."""
        with self._changed:
            self._wake_due()
            return len(self._due)

    def add(self, key: K) -> None:
        """Have a key looked at as soon as may be."""
        with self._changed:
            self._ask(key, self._now_s())

    def add_after(self, key: K, delay_s: float) -> None:
        """Have a key looked at in `delay_s`, or sooner where it is asked for sooner.

        A look that begins before then settles it: who looks knows when to look next.
        """
        with self._changed:
            self._ask_later(key, delay_s)

    def again(self, key: K, at_least_s: float = 0.0) -> float:
        """Have a key that failed looked at again, after a pause that grows with each failure.

        Args:
            key: What failed.
            at_least_s: For failures that nothing but a change will mend.

        Returns:
            The pause in seconds; at most twice the back-off's last, or `at_least_s`.
        """
        with self._changed:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            pause_s = max(at_least_s, self._back_off.pause_s(failures, self._rng))
            pause_s += self._wait_for_token_s()
            self._ask_later(key, pause_s)
            return pause_s

    def forget(self, key: K) -> None:
        """A key succeeded, or is no more: its next failure is its first."""
        with self._changed:
            self._failures.pop(key, None)

    def take(self) -> Taken[K] | None:
        """Wait for a key; None once the queue is closed. `done` must follow."""
        with self._changed:
            while not self._is_closed:
                taken = self._take()
                if taken is not None:
                    # Whoever waits for the next moment may have been this thread.
                    if self._ready or self._due:
                        self._changed.notify()
                    return taken
                self._changed.wait(self._until_next_s())
        return None

    def take_now(self) -> Taken[K] | None:
        """A key that can be taken in this moment, or None. `done` must follow."""
        with self._changed:
            return None if self._is_closed else self._take()

    def done(self, key: K) -> None:
        """The work on a key has ended; it is ready again where it was asked for meanwhile."""
        with self._changed:
            self._in_work.discard(key)
            since_s = self._asked_meanwhile.pop(key, None)
            if since_s is not None:
                self._ready[key] = since_s
                self._changed.notify()

    def close(self) -> None:
        """Give out nothing more; all who wait return."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    # -- under the lock ------------------------------------------------------------------------

    def _ask(self, key: K, since_s: float) -> None:
        if self._is_closed:
            return
        asked = self._asked_meanwhile if key in self._in_work else self._ready
        asked.setdefault(key, since_s)
        self._changed.notify()

    def _ask_later(self, key: K, delay_s: float) -> None:
        due_s = self._now_s() + max(0.0, delay_s)
        known = self._due.get(key)
        if self._is_closed or (known is not None and known[0] <= due_s):
            return
        self._num_timers += 1
        self._due[key] = (due_s, self._num_timers)
        heapq.heappush(self._timers, (due_s, self._num_timers, key))
        self._drop_spare_timers()
        self._changed.notify()

    def _drop_spare_timers(self) -> None:
        """Timers that were replaced lie in the heap until their time, which may be days away."""
        if len(self._timers) > 2 * len(self._due) + _SPARE_TIMERS:
            self._timers = [timer for timer in self._timers if self._is_current(timer)]
            heapq.heapify(self._timers)

    def _take(self) -> Taken[K] | None:
        self._wake_due()
        if not self._ready:
            return None
        key = next(iter(self._ready))
        since_s = self._ready.pop(key)
        self._in_work.add(key)
        self._due.pop(key, None)
        return Taken(key, since_s)

    def _wake_due(self) -> None:
        now_s = self._now_s()
        while self._timers and self._timers[0][0] <= now_s:
            timer = heapq.heappop(self._timers)
            if self._is_current(timer):
                due_s, _, key = timer
                del self._due[key]
                self._ask(key, due_s)

    def _is_current(self, timer: tuple[float, int, K]) -> bool:
        due_s, number, key = timer
        return self._due.get(key) == (due_s, number)

    def _until_next_s(self) -> float | None:
        return max(0.0, self._timers[0][0] - self._now_s()) if self._timers else None

    def _wait_for_token_s(self) -> float:
        """Take a token, perhaps one that is still to come; seconds until it is there."""
        now_s = self._now_s()
        gained = (now_s - self._filled_s) * self._retries_per_s
        # The queue of those who wait for tokens has an end, or a storm would hold up what follows.
        least = -self._retries_per_s * self._back_off.last_s
        self._tokens = max(least, min(self._retry_burst, self._tokens + gained) - 1.0)
        self._filled_s = now_s
        return max(0.0, -self._tokens / self._retries_per_s)


# Keeps jobs of all kinds as they are to be: looks at each when something about it has changed.
#
# A pass over one job takes what there is from copies, settles what belongs to it, asks its kind,
# and carries out the answer. What fails is tried again, ever more rarely, and holds up no other
# job.
#
# Beside it a scaler is asked on all jobs together, again and again, and what it has decided is
# written. Each look begins anew, from what there is by then: what could not be written, since
# somebody else was faster or the API server away, is decided again.


logger = logging.getLogger(__name__)

NUM_WORKERS: Final = 4
LEAST_PAUSE_S: Final = 0.1
"""A kind that wants to look again at once must not keep a core busy."""

STOP_S: Final = 30.0
"""How long the passes in work may take to end: they wait for answers of the API server."""

_MAX_TOLD: Final = 500
MOST_SHARE: Final = 0.2
"""Of one core, what looking may take however many jobs there are: the looks become fewer then."""

BUG_PAUSE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Pauses:
    """How long the engine waits before it tries something again.

    Attributes:
        back_off: Of passes that failed because of the cluster.
        bug_s: The least after a kind itself has failed, which only a change mends, or a new
            version.
        missing_s: Between two tries to list what is not installed or not permitted.
    """

    back_off: BackOff = field(default_factory=BackOff)
    bug_s: float = 60.0
    missing_s: float = RETRY_S


class Engine:
    """Watches, decides and acts, on threads of its own; started once."""

    def __init__(
        self,
        cluster: Cluster,
        kinds: Sequence[Kind],
        namespace: str | None = None,
        num_workers: int = NUM_WORKERS,
        pauses: Pauses | None = None,
        events_cluster: Cluster | None = None,
        instance: str = "",
        scaler: Scaler | None = None,
    ) -> None:
        """Keep the parts.

        Args:
            cluster: Where the jobs are; its pace bounds what all passes together ask for.
            kinds: What is reconciled.
            namespace: Whose jobs; None for those of all namespaces.
            num_workers: Passes at once, in addition to one of a kind that places pods.
            pauses: See `Pauses`.
            events_cluster: Where events are written; `cluster` by default, of whose pace they then
                take a part.
            instance: Of the controller, as its events name it.
            scaler: Decides the sizes of all jobs together; None where each has its own alone.
        """
        self._cluster = cluster
        self._kinds = {kind.resource: kind for kind in kinds}
        self._pauses = pauses or Pauses()
        self._queue: WorkQueue[JobKey] = WorkQueue(self._pauses.back_off)
        self._placing: WorkQueue[JobKey] = WorkQueue(self._pauses.back_off)
        self._meter = Meter()
        self._is_leaving = threading.Event()
        self._informers = Informers(
            cluster,
            kinds,
            namespace,
            self._ask_for,
            self._pauses.missing_s,
            has_overview=scaler is not None,
        )
        self._recorder = EventRecorder(events_cluster or cluster, instance)
        self._adoption = Adoption(cluster, self._informers, self._recorder, self._meter)
        self._farewell = Farewell(cluster, self._informers)
        self._writer = Writer(
            cluster, self._informers, self._recorder, self._meter, self._is_leaving.is_set
        )
        self._told: dict[JobKey, str] = {}
        self._named_rights: set[str] = set()
        self._naming = threading.Lock()
        self._threads = [*self._passes(num_workers)]
        if scaler is not None:
            scaling = Scaling(
                cluster, self._informers, self._recorder, self._meter, scaler, self._is_leaving
            )
            self._threads.append(scaling.thread)

    @property
    def is_synced(self) -> bool:
        """Whether all that is watched has been listed once, or is known to be missing."""
        return self._informers.is_synced

    def start(self) -> None:
        """Begin; returns at once. An API server that is away is waited for."""
        self._recorder.start()
        self._informers.start()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let the writes in work end, and begin no more."""
        self._is_leaving.set()
        for queue in (self._queue, self._placing):
            queue.close()
        self._informers.close()
        deadline_s = time.monotonic() + STOP_S
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        self._recorder.close()

    def sample(self) -> Sample:
        """What there is to tell of it at this moment."""
        depth = self._queue.depth + self._placing.depth
        return self._meter.sample(depth, self._informers.missing)

    def _ask_for(self, key: JobKey, in_s: float) -> None:
        queue = self._placing if self._kinds[key.resource].sees_cluster else self._queue
        queue.add_after(key, in_s) if in_s else queue.add(key)

    def _passes(self, num_workers: int) -> Iterator[threading.Thread]:
        for number in range(num_workers):
            yield threading.Thread(
                target=self._work, args=(self._queue,), name=f"pass {number}", daemon=True
            )
        # Two that place pods at once would both take the same room: one thread looks at all that
        # do, and keeps those of other kinds from nothing.
        yield threading.Thread(
            target=self._work, args=(self._placing,), name="placing", daemon=True
        )

    # -- on the threads of the passes ----------------------------------------------------------

    def _work(self, queue: WorkQueue[JobKey]) -> None:
        while (taken := queue.take()) is not None:
            try:
                self._pass(queue, taken)
            finally:
                queue.done(taken.key)

    def _pass(self, queue: WorkQueue[JobKey], taken: Taken[JobKey]) -> None:
        key = taken.key
        try:
            again_in_s = self._look(key, taken.since_s)
        except LeavingError:
            return
        except PlatformError as error:
            self._meter.failed(key.resource.kind)
            pause_s = queue.again(key)
            if isinstance(error, RefusedError) and error.is_denied:
                self._name_right(error)
            else:
                logger.info("%s is looked at again in %.1f s: %s", key, pause_s, error)
        except Exception as error:
            # Whatever users write or a kind does, the other jobs go on.
            self._meter.failed(key.resource.kind)
            pause_s = queue.again(key, self._pauses.bug_s)
            logger.exception("%s cannot be reconciled; tried again in %.0f s", key, pause_s)
            self._tell_bug(key, error)
        else:
            queue.forget(key)
            if again_in_s is not None:
                queue.add_after(key, max(LEAST_PAUSE_S, again_in_s))

    def _look(self, key: JobKey, since_s: float) -> float | None:
        """One pass; seconds until the job wants to be looked at again, None for never.

        Args:
            key: The job.
            since_s: When it was asked for, by the monotonic clock.
        """
        kind = self._kinds[key.resource]
        # Asked before: what was observed while something was not yet listed lacks it for good.
        is_ready = self._informers.is_ready(kind)
        observed = self._informers.observe(key, self._cluster.now_s())
        if observed is None:
            self._told.pop(key, None)
            self._farewell.say(key)
            return None
        job = observed.job
        # What it owns goes with it, and must not be made anew meanwhile.
        if "deletionTimestamp" in job["metadata"]:
            self._farewell.say(key)
            return None
        if not is_ready:
            self._tell_obstacle(kind, key, job)
            return None
        self._meter.passed(key.resource.kind)
        if self._adoption.settle(kind, key, job):
            observed = self._informers.observe(key, observed.now_s)
            if observed is None:
                return None
        outcome = kind.reconcile(observed)
        try:
            self._writer.carry_out(kind, observed.job, outcome)
        except RejectedError as error:
            after = kind.rejected(observed, error.rejection)
            if after is None:
                raise
            outcome = after
            self._writer.carry_out(kind, observed.job, outcome)
        self._told.pop(key, None)
        self._meter.answered(time.monotonic() - since_s)
        return outcome.again_in_s

    # -- what is told once ---------------------------------------------------------------------

    def _name_right(self, error: RefusedError) -> None:
        """Log a right that is lacking; which jobs wait for it is told by their events."""
        with self._naming:
            is_named = error.cause in self._named_rights
            self._named_rights.add(error.cause)
        if not is_named:
            logger.warning("lacks a right, and what needs it waits: %s", error.cause)

    def _tell_obstacle(self, kind: Kind, key: JobKey, job: Manifest) -> None:
        obstacle = self._informers.obstacle(kind)
        if obstacle:
            self._tell_once(
                kind, key, job, "MissingRight", f"The controller waits for a right: {obstacle}"
            )

    def _tell_bug(self, key: JobKey, error: Exception) -> None:
        observed = self._informers.observe(key, self._cluster.now_s())
        if observed is not None:
            kind, text = self._kinds[key.resource], f"{type(error).__name__}: {error}"
            self._tell_once(
                kind,
                key,
                observed.job,
                "ReconcileFailed",
                f"The controller cannot handle this object, which is left as it is: {text}",
            )

    def _tell_once(self, kind: Kind, key: JobKey, job: Manifest, reason: str, text: str) -> None:
        text = text[:_MAX_TOLD]
        marked = f"{job['metadata']['uid']} {text}"
        if self._told.get(key) != marked:
            self._told[key] = marked
            self._recorder.tell(job, kind.component, Note(reason, text, EventType.WARNING))


class Scaling:
    """A thread that looks and writes; safe to be stopped at any moment."""

    def __init__(
        self,
        cluster: Cluster,
        informers: Informers,
        recorder: EventRecorder,
        meter: Meter,
        scaler: Scaler,
        leaving: threading.Event,
    ) -> None:
        """Keep the parts.

        Args:
            cluster: Where the jobs are.
            informers: What there is of them.
            recorder: Tells what was done.
            meter: Counts it.
            scaler: Decides.
            leaving: Set when nothing may be written any more.
        """
        self._cluster = cluster
        self._informers = informers
        self._recorder = recorder
        self._meter = meter
        self._scaler = scaler
        self._leaving = leaving
        self._named: set[str] = set()
        self.thread = threading.Thread(target=self._run, name="scaling", daemon=True)

    def _run(self) -> None:
        pause_s = self._scaler.period_s
        while not self._leaving.wait(pause_s):
            began_s = time.monotonic()
            try:
                self._look()
            except PlatformError as error:
                logger.info("sizes are decided again in a while: %s", error)
            except Exception:
                # Whatever users write, the kinds look after their jobs as they are.
                logger.exception("sizes cannot be decided; tried again in %.0f s", BUG_PAUSE_S)
                pause_s = BUG_PAUSE_S
                continue
            took_s = time.monotonic() - began_s
            pause_s = max(self._scaler.period_s, took_s / MOST_SHARE)

    def _look(self) -> None:
        if not self._informers.is_synced:
            return
        overview = self._informers.overview(self._scaler.looks_at, self._cluster.now_s())
        if overview is None:
            return
        for change in self._scaler.plan(overview):
            if self._leaving.is_set() or not self._write(change):
                return

    def _write(self, change: Change) -> bool:
        """Write and tell one change; False where the others may rest on what has not come about."""
        if change.change is not None:
            try:
                self._patch(change)
            except RefusedError as error:
                if error.code == HTTPStatus.NOT_FOUND:
                    return True
                if error.code == HTTPStatus.CONFLICT or error.code in BUSY:
                    return False
                self._tell_refusal(change, error)
                return True
        if change.note is not None:
            self._recorder.tell(change.told_of or change.target, change.component, change.note)
        return True

    def _patch(self, change: Change) -> None:
        assert change.change is not None, "there is something to be written"
        metadata = change.target["metadata"]
        # Of two who change at once one is refused: this was decided on the state that was seen.
        version = {"resourceVersion": metadata["resourceVersion"]}
        added = {**(change.change.get("metadata") or {}), **version}
        path = change.resource.path(metadata["namespace"], metadata["name"], change.part)
        stored = self._cluster.patch(path, {**change.change, "metadata": added})
        self._informers.written(change.resource, stored)
        self._meter.acted("status" if change.part else "patch")

    def _tell_refusal(self, change: Change, error: RefusedError) -> None:
        what = f"{change.resource.kind} {change.target['metadata']['name']}"
        if error.cause not in self._named:
            self._named.add(error.cause)
            logger.warning("the size of %s cannot be written: %s", what, error)
        note = Note(
            "FailedAutoscale", f"Writing its size failed: {error.detail}", EventType.WARNING
        )
        self._recorder.tell(change.told_of or change.target, change.component, note)
