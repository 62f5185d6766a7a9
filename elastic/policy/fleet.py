"""Desired replicas against observed ones: what to launch and delete, who hangs, when to give up."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from elastic.policy.replicas import ExitReason, Replica, ReplicaId, ReplicaPhase
from elastic.spec.job import JobSpec, WorkerRange
from elastic.spec.roles import FLEET, WORKER, Quorum, Role, Words

__all__ = [
    "WORKER",
    "Action",
    "Delete",
    "FailJob",
    "Fleet",
    "FleetRules",
    "Forget",
    "Launch",
    "NoteExit",
    "backoff_s",
    "desired_replicas",
    "desired_workers",
]

MAX_BACKOFF_S: Final = 60.0
ASK_AGAIN_S: Final = 5.0
"""A launch or a deletion that shows no effect for so long may never have reached the platform."""

FREE_LAUNCHES: Final = 2
"""Kills in a row without any progress between, before even a kill is answered with back-off."""

_OWN_FAULTS: Final = frozenset(
    {ExitReason.USER_ERROR, ExitReason.OUT_OF_MEMORY, ExitReason.NEVER_STARTED}
)


@dataclass(frozen=True, slots=True)
class FleetRules:
    """Limits of a job's replicas.

    Attributes:
        max_failures: By role, exits by the user's own fault that are answered with a new launch.
        start_timeout_s: How long a job may be without the running replicas that it needs.
        grace_s: How long a replica that is scaled away may take for what it has in work.
    """

    max_failures: Mapping[str, int]
    start_timeout_s: float
    grace_s: float = 30.0

    @classmethod
    def of(cls, spec: JobSpec, roles: Iterable[Role] = FLEET) -> "FleetRules":
        """Those that the settings of a job say."""
        return cls({role.name: role.max_failures(spec) for role in roles}, spec.start_timeout)


@dataclass(frozen=True, slots=True)
class Launch:
    """Start this replica."""

    replica: ReplicaId


@dataclass(frozen=True, slots=True)
class Delete:
    """End this replica, which is one too many."""

    replica: ReplicaId
    grace_s: float


@dataclass(frozen=True, slots=True)
class NoteExit:
    """A replica has ended, told once: its lease must go back, and people should know."""

    replica: Replica
    is_failure: bool


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop the record of a replica that a newer launch has replaced."""

    replica: ReplicaId


@dataclass(frozen=True, slots=True)
class FailJob:
    """Nothing more can be done with these replicas."""

    reason: str
    message: str


Action: TypeAlias = Launch | Delete | NoteExit | Forget | FailJob


@dataclass(frozen=True, slots=True)
class TakenLaunches:
    """Launch numbers that earlier masters may have given, seen by nobody now.

    Attributes:
        newest: By name of a replica, such as `worker-0`, the highest.
        least: The highest of those that `newest` does not name.
    """

    newest: Mapping[str, int] = field(default_factory=dict)
    least: int = 0

    def of(self, replica: ReplicaId) -> int:
        """The highest number of a replica, whichever launch of it is named."""
        return self.newest.get(replica.name, self.least)


NO_LAUNCHES: Final = TakenLaunches()


@dataclass(slots=True)
class _Slot:
    """One index of a role over all of its launches."""

    launch: int = 0
    exits_in_a_row: int = 0
    not_before_s: float = 0.0
    asked_to_launch_s: float | None = None
    asked_to_delete_s: float | None = None
    delete_by_s: float = 0.0


@dataclass(slots=True)
class _Group:
    """The replicas of one role, of which only what the platform cannot tell is held."""

    role: Role
    rules: FleetRules
    taken: TakenLaunches
    failures: int = 0
    first_failure: str = ""
    slots: dict[int, _Slot] = field(default_factory=dict)
    noted: set[ReplicaId] = field(default_factory=set)
    lacking_since_s: float | None = None

    @property
    def words(self) -> Words:
        assert self.role.words is not None, f"nothing can be told of {self.role.plural}"
        return self.role.words

    def look_at(self, replicas: Sequence[Replica], now_s: float) -> list[Action]:
        """Note what has ended, and forget what was replaced."""
        newest = _newest(replicas)
        actions: list[Action] = []
        for replica in sorted(replicas, key=lambda r: (r.id.index, r.id.launch)):
            actions += self._look_at_one(replica, newest[replica.id.index], now_s)
        return actions

    def adjust(self, replicas: Sequence[Replica], desired: int, now_s: float) -> list[Action]:
        """Launch what is missing, delete what is too much."""
        newest = _newest(replicas)
        actions: list[Action] = []
        for index in range(desired):
            actions += self._want(index, newest.get(index), now_s)
        for index, replica in sorted(newest.items()):
            if index >= desired:
                actions += self._unwant(replica, now_s)
        return actions + self._check_quorum(replicas, desired, now_s)

    def too_many_failures(self) -> FailJob | None:
        limit = self.rules.max_failures.get(self.role.name, 0)
        if self.failures <= limit:
            return None
        return FailJob(
            self.words.too_many_failures,
            f"{self.role.plural} failed {self.failures} times ({self.role.failures}={limit}); "
            f"the first was {self.first_failure}",
        )

    def _look_at_one(self, replica: Replica, newest: Replica, now_s: float) -> list[Action]:
        slot = self.slots.setdefault(replica.id.index, _Slot())
        if replica.id.launch >= slot.launch:
            slot.launch = replica.id.launch
            slot.asked_to_launch_s = None
        if not replica.phase.is_final:
            return []
        actions: list[Action] = []
        if replica.id not in self.noted:
            self.noted.add(replica.id)
            actions.append(self._note_exit(slot, replica, now_s))
        # Not before the next life is seen: until then this record holds the launch number.
        if replica is not newest:
            self.noted.discard(replica.id)
            actions.append(Forget(replica.id))
        return actions

    def _note_exit(self, slot: _Slot, replica: Replica, now_s: float) -> NoteExit:
        is_failure = replica.exit_reason in _OWN_FAULTS and slot.asked_to_delete_s is None
        if is_failure:
            self.failures += 1
            self.first_failure = self.first_failure or f"{replica.id.name}: {replica.message}"
        slot.asked_to_delete_s = None
        slot.exits_in_a_row += 1
        slot.not_before_s = now_s + backoff_s(slot.exits_in_a_row, is_failure)
        return NoteExit(replica, is_failure)

    def _want(self, index: int, newest: Replica | None, now_s: float) -> list[Action]:
        slot = self.slots.setdefault(index, _Slot())
        if newest is not None and not newest.phase.is_final:
            return []
        if slot.asked_to_launch_s is not None:
            if now_s - slot.asked_to_launch_s < ASK_AGAIN_S:
                return []
            slot.asked_to_launch_s = now_s
            return [Launch(ReplicaId(self.role.name, index, slot.launch))]
        if now_s < slot.not_before_s:
            return []
        # What others have seen is never told of another one again.
        taken = self.taken.of(ReplicaId(self.role.name, index, slot.launch))
        slot.launch = max(slot.launch, taken) + 1
        slot.asked_to_launch_s = now_s
        slot.asked_to_delete_s = None
        return [Launch(ReplicaId(self.role.name, index, slot.launch))]

    def _unwant(self, replica: Replica, now_s: float) -> list[Action]:
        slot = self.slots[replica.id.index]
        asked_s = slot.asked_to_delete_s
        if replica.phase.is_final or (asked_s is not None and now_s - asked_s < ASK_AGAIN_S):
            return []
        if asked_s is None:
            slot.delete_by_s = now_s + self.rules.grace_s
        slot.asked_to_delete_s = now_s
        # A grace that is running goes on: asking again does not begin it anew.
        return [Delete(replica.id, max(0.0, slot.delete_by_s - now_s))]

    def _check_quorum(
        self, replicas: Sequence[Replica], desired: int, now_s: float
    ) -> list[Action]:
        running = {r.id.index for r in replicas if r.phase is ReplicaPhase.RUNNING}
        lacking = set(range(desired)) - running
        is_enough = bool(running) if self.role.quorum is Quorum.ONE else not lacking
        # A queue holds a job back as long as it takes: that is no fault of what is to start.
        if is_enough or not desired or any(r.is_queued for r in replicas if r.id.index in lacking):
            self.lacking_since_s = None
            return []
        if self.lacking_since_s is None:
            self.lacking_since_s = now_s
        waited_s = now_s - self.lacking_since_s
        if waited_s <= self.rules.start_timeout_s:
            return []
        name, plural = self.role.name, self.role.plural
        last = next((r.message for r in reversed(replicas) if r.message), f"no {name} could start")
        what = f"{len(lacking)} of {desired} {plural} did not run" if running else f"no {name} ran"
        return [
            FailJob(
                self.words.too_few_run,
                f"{what} for {waited_s:.0f} s (start_timeout="
                f"{self.rules.start_timeout_s:g}): {last}",
            )
        ]


def _newest(replicas: Sequence[Replica]) -> dict[int, Replica]:
    """By index, the newest launch."""
    return {r.id.index: r for r in sorted(replicas, key=lambda r: r.id.launch)}


class Fleet:
    """Decides about the replicas of one job from what is observed, whole, each time.

    It holds only what the platform cannot tell: exits already noted and back-off. Losing it with
    the master costs a repeated note, never a healthy replica.
    """

    def __init__(
        self,
        rules: FleetRules,
        failures: Mapping[str, int] | None = None,
        roles: Sequence[Role] = FLEET,
        taken: TakenLaunches = NO_LAUNCHES,
    ) -> None:
        """Begin.

        Args:
            rules: Of the job.
            failures: By role, the own failures that an earlier master has counted.
            roles: Those whose replicas it decides about; it passes over all others.
            taken: Launch numbers that are not given again.
        """
        counted = failures or {}
        self._groups = {
            role.name: _Group(role, rules, taken, counted.get(role.name, 0)) for role in roles
        }

    def failures(self, role: str) -> int:
        """Exits by the user's own fault."""
        return self._groups[role].failures

    def made_progress(self, replica: ReplicaId) -> None:
        """Work of a replica counted: its index owes no more back-off."""
        slot = self._groups[replica.role].slots.get(replica.index)
        if slot is not None:
            slot.exits_in_a_row = 0

    def current_launch(self, replica: ReplicaId) -> int:
        """The newest launch of a replica, whichever is named; 0 when it never ran."""
        slot = self._groups[replica.role].slots.get(replica.index)
        return 0 if slot is None else slot.launch

    def adopt_exits(
        self, observed: Sequence[Replica], is_told: Callable[[ReplicaId], bool]
    ) -> None:
        """Take exits that an earlier life of the master has told as known.

        The others happened while there was no master: they are noted, and count, as any.
        """
        for name, group in self._groups.items():
            ended = (r.id for r in observed if r.id.role == name and r.phase.is_final)
            group.noted.update(replica for replica in ended if is_told(replica))

    def plan(
        self, observed: Sequence[Replica], desired: Mapping[str, int], now_s: float
    ) -> list[Action]:
        """Compare, and say what to do; doing it, or none of it, and asking again is safe.

        Args:
            observed: All launches that the platform knows.
            desired: By role, how many there are to be; none of a role that is not named.
            now_s: The monotonic time.
        """
        of_role = {name: [r for r in observed if r.id.role == name] for name in self._groups}
        actions: list[Action] = []
        for name, group in self._groups.items():
            actions += group.look_at(of_role[name], now_s)
        for group in self._groups.values():
            verdict = group.too_many_failures()
            if verdict is not None:
                return [*actions, verdict]
        for name, group in self._groups.items():
            actions += group.adjust(of_role[name], desired.get(name, 0), now_s)
        return actions


def desired_replicas(
    spec: JobSpec, wanted: int | None, room: int | None, roles: Sequence[Role] = FLEET
) -> dict[str, int]:
    """By role, how many replicas a job is to have.

    Args:
        spec: Of the job.
        wanted: Of the role that can be scaled, by the user since; None where nobody has asked.
        room: How many of them the platform has room for, as far as it can tell.
        roles: Those whose replicas the master launches.
    """
    first = spec.workers_at_first
    return {
        role.name: desired_workers(role.limits(spec), wanted, room if first is None else first)
        if role.is_scaled
        else role.limits(spec).maximum
        for role in roles
    }


def desired_workers(limits: WorkerRange, wanted: int | None, room: int | None = None) -> int:
    """How many workers a job is to have.

    Args:
        limits: Of the job.
        wanted: By its user since; None where nobody has asked for another number.
        room: How many the platform has room for, as far as it can tell.
    """
    if wanted is None:
        wanted = limits.maximum if room is None else min(limits.maximum, room)
    return max(limits.minimum, wanted)


def backoff_s(exits_in_a_row: int, is_failure: bool) -> float:
    """Seconds to wait before the next launch of an index.

    The cluster's doing is answered at once until it looks like a storm; the job's own failures
    wait from the first.
    """
    free = 0 if is_failure else FREE_LAUNCHES
    if exits_in_a_row <= free:
        return 0.0
    return float(min(MAX_BACKOFF_S, 0.5 * 2.0 ** (exits_in_a_row - free - 1)))


# Which workers hang: leases by time, with a limit learned from the steps that completed.


HANG_FACTOR: Final = 5.0
"""A step this many times longer than the longest recent one is a hang."""

NUM_RECENT_STEPS: Final = 200

HEARTBEAT_LIMIT_S: Final = 20.0
"""Silence of a worker that has stepped before; a heartbeat is due every two seconds."""

STALL_S: Final = 5.0
"""A longer time between two looks means that the master itself stood still."""


@dataclass(frozen=True, slots=True)
class Hang:
    """A worker silent for `silent_s`, more than the `limit_s` it had.

    Attributes:
        what: What did not come: `progress`, any `sign of life`, or the request for a first task.
    """

    worker: ReplicaId
    silent_s: float
    limit_s: float
    what: str = "progress"


FIRST_TASK: Final = "first task"
"""What a worker owes that hangs in set-up."""


@dataclass(slots=True)
class Watch:
    """What is known of one worker; `num_calls` of its calls are at the master."""

    last_progress_s: float
    last_heard_s: float
    is_in_set_up: bool = True
    has_stepped: bool = False
    num_calls: int = 0


class Liveness:
    """Remembers when each worker last made progress. Not thread-safe; the time comes in.

    Progress is what a worker does for the job: it takes a task, reports. Heartbeats are not
    progress: they come from a thread that goes on while the step hangs. They tell earlier than any
    step that a whole machine is gone. The time that the master takes for a call, in which a user's
    callback may run, is nobody's silence.

    A worker is in set-up (imports its framework, registers, builds the model) until it asks for
    its first task.
    """

    def __init__(self, floor_s: float, first_step_s: float) -> None:
        """Set the limits.

        Args:
            floor_s: The limit is never below this, whatever was learned.
            first_step_s: The limit of a worker's set-up, and before its first step, which may
                compile the model.
        """
        self._floor_s = floor_s
        self._set_up_s = first_step_s
        self._first_step_s = max(floor_s, first_step_s)
        self._steps_s: deque[float] = deque(maxlen=NUM_RECENT_STEPS)
        self._watches: dict[ReplicaId, Watch] = {}
        self._last_look_s: float | None = None

    def observed_running(self, workers: Iterable[ReplicaId], now_s: float) -> None:
        """Start to watch the workers that are new: one may hang before it has ever called."""
        for worker in workers:
            self._watches.setdefault(worker, Watch(now_s, now_s))

    def joined(self, worker: ReplicaId, now_s: float) -> None:
        """Watch a worker that registered; the time of its set-up goes on."""
        self._watches.setdefault(worker, Watch(now_s, now_s)).last_heard_s = now_s

    def is_at_work(self, worker: ReplicaId) -> bool:
        """Whether it has asked for a task."""
        return worker in self._watches and not self._watches[worker].is_in_set_up

    def left(self, worker: ReplicaId) -> None:
        """Stop watching; also if it was not watched."""
        self._watches.pop(worker, None)

    def heard(self, worker: ReplicaId, now_s: float) -> None:
        """Note any call of a worker, heartbeats included."""
        watch = self._watches.get(worker)
        if watch is not None:
            watch.last_heard_s = now_s

    def progressed(self, worker: ReplicaId, now_s: float, step_s: float | None = None) -> None:
        """Note progress; `step_s` is how long a completed step took."""
        watch = self._watches.get(worker)
        if watch is None:
            return
        watch.last_progress_s = now_s
        watch.is_in_set_up = False
        if step_s is not None:
            # The first step of a worker compiles; it would teach a limit that finds no hang.
            if watch.has_stepped:
                self._steps_s.append(step_s)
            watch.has_stepped = True

    def call_begins(self, worker: ReplicaId) -> Watch | None:
        """Note that the worker waits for the master, so that its silence is no hang."""
        watch = self._watches.get(worker)
        if watch is not None:
            watch.num_calls += 1
        return watch

    def call_ends(self, watch: Watch | None, now_s: float) -> None:
        """Note that it waits no longer; `watch` is what `call_begins` gave."""
        if watch is None:
            return
        watch.num_calls -= 1
        if not watch.is_in_set_up:
            watch.last_progress_s = now_s

    def limit_s(self, worker: ReplicaId) -> float:
        """The silence that makes this worker a hang."""
        watch = self._watches.get(worker)
        if watch is None or watch.is_in_set_up:
            return self._set_up_s
        if not watch.has_stepped:
            return self._first_step_s
        return max(self._floor_s, HANG_FACTOR * max(self._steps_s, default=0.0))

    def hangs(self, now_s: float) -> list[Hang]:
        """The workers whose silence is over their limit; to be asked at least every second."""
        self._forgive_stall(now_s)
        found = []
        for worker, watch in self._watches.items():
            silent_s = now_s - watch.last_progress_s
            limit_s = self.limit_s(worker)
            unheard_s = now_s - watch.last_heard_s
            if not watch.num_calls and silent_s > limit_s:
                what = FIRST_TASK if watch.is_in_set_up else "progress"
                found.append(Hang(worker, silent_s, limit_s, what))
            elif watch.has_stepped and unheard_s > HEARTBEAT_LIMIT_S:
                found.append(Hang(worker, unheard_s, HEARTBEAT_LIMIT_S, "sign of life"))
        return found

    def _forgive_stall(self, now_s: float) -> None:
        """Not count the time in which the master could not have heard anybody."""
        if self._last_look_s is not None and now_s - self._last_look_s > STALL_S:
            stalled_s = now_s - self._last_look_s
            for watch in self._watches.values():
                watch.last_progress_s = min(now_s, watch.last_progress_s + stalled_s)
                watch.last_heard_s = min(now_s, watch.last_heard_s + stalled_s)
        self._last_look_s = now_s

    @property
    def typical_step_s(self) -> float | None:
        """Median of the recent steps, or None before the second step of any worker."""
        if not self._steps_s:
            return None
        return sorted(self._steps_s)[len(self._steps_s) // 2]
