"""Which gradient counts, the group that the next update is made of, and who waits for it.

The group is a pure machine: told what happens, it says what is to be done. The time comes in.

    begins ──▶ computing ──judge, add──▶ staged ──begin_update──▶ updating ──end_update──▶ (next)
                   │                       │
                   └── ends: lost, idle    └── end_training: dropped
"""

from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from elastic.policy.tasks.ledger import Refusal, StagedRange

LATE_SHARE: Final = 0.25
"""Of gradients refused as too late, from which on it is worth a word."""

ENOUGH_JUDGED: Final = 40

HOLD_STEPS: Final = 2.0
"""A worker waits for another as long as this many typical steps, then goes on without it."""

MIN_HOLD_S: Final = 0.5
"""Beside steps of a few milliseconds a busy machine keeps a process waiting far longer than a step,
as does the way to the master and back: who goes on too early computes what will be refused."""

DEFAULT_HOLD_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class UpdateRule:
    """How gradients become updates.

    Attributes:
        grads_to_wait: Gradients averaged into one synchronous update; they may come from any
            number of workers.
        is_async: Apply each gradient as it comes.
        lr_staleness_modulation: Divide the learning rate of a late gradient by its staleness.
        max_staleness: Refuse asynchronous gradients that are older; None for no bound.
        max_steps: Updates after which training ends; 0 for no such end.
    """

    grads_to_wait: int = 1
    is_async: bool = False
    lr_staleness_modulation: bool = False
    max_staleness: int | None = None
    max_steps: int = 0


@dataclass(frozen=True, slots=True)
class Accept:
    """The gradient counts; its update uses `learning_rate_scale` times the learning rate."""

    learning_rate_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class RefuseStale:
    """Too old: the worker computes the same minibatch again on `current_version`."""

    current_version: int


def judge_gradient(
    rule: UpdateRule, gradient_version: int, current_version: int
) -> Accept | RefuseStale:
    """Decide whether a gradient computed on `gradient_version` counts now.

    Raises:
        ValueError: The gradient claims a version that does not exist yet.

    Source:
        Zhang et al., "Staleness-aware Async-SGD", IJCAI 2016, for the division by staleness.
    """
    staleness = current_version - gradient_version
    if staleness < 0:
        raise ValueError(
            f"gradient of model version {gradient_version}, but the newest is {current_version}"
        )
    if not rule.is_async:
        return Accept() if staleness == 0 else RefuseStale(current_version)
    if rule.max_staleness is not None and staleness > rule.max_staleness:
        return RefuseStale(current_version)
    if rule.lr_staleness_modulation:
        return Accept(1.0 / max(1, staleness))
    return Accept()


class LateGradients:
    """Counts what is thrown away because updates come too often for it, and says so once."""

    def __init__(self, rule: UpdateRule) -> None:
        self._rule = rule
        self._num_accepted = 0
        self._num_late = 0
        self._is_told = False

    def accept(self) -> None:
        """Count a gradient that counts."""
        self._num_accepted += 1

    def refuse(self, num_workers: int) -> str | None:
        """Count one that was refused because a newer version was there.

        Args:
            num_workers: Workers that compute at the moment.

        Returns:
            What the user can do about it, once and where much is lost; else None.
        """
        self._num_late += 1
        num_judged = self._num_accepted + self._num_late
        is_much = num_judged >= ENOUGH_JUDGED and self._num_late >= LATE_SHARE * num_judged
        is_grouped = self._rule.is_async or num_workers <= self._rule.grads_to_wait
        if self._is_told or is_grouped or not is_much:
            return None
        self._is_told = True
        return (
            f"{self._num_late} of {num_judged} gradients came too late and were computed again, "
            f"since {num_workers} workers share updates of "
            f"grads_to_wait={self._rule.grads_to_wait}: --grads_to_wait {num_workers} uses all of "
            "them, and so does --use_async"
        )


def is_update_due(rule: UpdateRule, num_accepted: int, only_staged_left: bool) -> bool:
    """Whether the accepted gradients make an update: a full group, or all there can be."""
    if num_accepted == 0:
        return False
    return rule.is_async or num_accepted >= rule.grads_to_wait or only_staged_left


def should_hold_reply(rule: UpdateRule, num_accepted: int, num_computing: int) -> bool:
    """Whether a worker whose gradient was accepted should wait for the update.

    When the workers still computing on this version can fill the group, a further minibatch of
    this worker would only be refused as stale; when they cannot, it must go on, or nobody would
    fill the group.

    Args:
        rule: How gradients become updates.
        num_accepted: Gradients in the group, this one included.
        num_computing: Other workers that are computing a gradient on the current version, but
            those that are late.
    """
    return not rule.is_async and num_accepted + num_computing >= rule.grads_to_wait


def should_wait_to_begin(
    rule: UpdateRule, num_accepted: int, num_computing: int, num_workers: int
) -> bool:
    """Whether a worker that is about to begin should wait for the update.

    With no more workers than a group has gradients, no more than it takes are then ever under way,
    so that none is refused.

    Args:
        rule: How gradients become updates.
        num_accepted: Gradients in the group.
        num_computing: Workers that are computing a gradient on the current version, but those
            that are late.
        num_workers: All there are, this one included.
    """
    is_room_for_all = num_workers <= rule.grads_to_wait
    return is_room_for_all and should_hold_reply(rule, num_accepted, num_computing)


def hold_limit_s(typical_step_s: float | None) -> float:
    """How long a worker may have to wait for one that is silent, then that one is late.

    Args:
        typical_step_s: What computing a minibatch takes; None if that is not known yet.
    """
    if typical_step_s is None:
        return DEFAULT_HOLD_S
    return max(MIN_HOLD_S, HOLD_STEPS * typical_step_s)


class AtWork:
    """The workers that compute a gradient on the current version.

    One for which another has waited in vain is *late*: nobody waits for it any more until it is
    heard of. So a worker that hangs costs the others one wait, not one an update, and of those
    that have waited only as many go on as its group lacks.
    """

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}
        self._late: set[str] = set()

    def __len__(self) -> int:
        return len(self._since_s)

    def __contains__(self, worker: str) -> bool:
        return worker in self._since_s

    @property
    def num_awaited(self) -> int:
        """Those that may still fill the group: all but the late ones."""
        return len(self._since_s) - len(self._late)

    def begins(self, worker: str, now_s: float) -> None:
        """Note that a worker computes a minibatch from now on, whatever it did before."""
        self._since_s[worker] = now_s
        self._late.discard(worker)

    def ends(self, worker: str) -> bool:
        """Note that it computes none; returns whether it did."""
        self._late.discard(worker)
        return self._since_s.pop(worker, None) is not None

    def give_up(self, waited_since_s: float) -> None:
        """Another has waited since then, as long as it may have to: who was silent is late."""
        self._late.update(w for w, since_s in self._since_s.items() if since_s <= waited_since_s)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to a gradient: None as refusal means it was accepted."""

    refusal: RefuseStale | Refusal | None
    model_version: int


@dataclass(frozen=True, slots=True)
class Update:
    """Apply what is staged as one update, and commit its ranges in the same step.

    Attributes:
        ranges: The records behind it.
        state_share: How far the state that is not trained moves to the reported one; below 1 for
            a late gradient, whose state others have overtaken.
    """

    ranges: tuple[StagedRange, ...]
    state_share: float


@dataclass(slots=True)
class Wait:
    """A worker that waits for the update of a version.

    Attributes:
        is_beginning: It has not computed on this version, as one whose gradient is staged has.
    """

    version: int
    since_s: float
    is_beginning: bool = False


@dataclass(frozen=True, slots=True)
class Stay:
    """Look again after so many seconds, or when woken."""

    seconds: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Others are late: everybody who waits has to look again."""


@dataclass(frozen=True, slots=True)
class GoOn:
    """The update is there, or nobody can bring it without this worker."""


Next: TypeAlias = Stay | GiveUp | GoOn


class UpdateGroup:
    """Decides which gradient counts, when the group is an update, and who waits meanwhile.

    Workers are known by the keys of their sessions.

    Attributes:
        version: Of the parameters; the update that is being made leads to the next one.
        is_over: Training has ended: nothing counts any more.
    """

    def __init__(self, rule: UpdateRule, version: int, *, is_over: bool = False) -> None:
        """Begin with an empty group on a version."""
        self.rule = rule
        self.version = version
        self.is_over = is_over
        self.at_work = AtWork()
        self._staged: list[StagedRange] = []
        self._staleness = 0
        self._is_updating = False

    @property
    def num_staged(self) -> int:
        """Gradients in the open group."""
        return len(self._staged)

    def judge(self, gradient_version: int) -> Accept | RefuseStale | Refusal:
        """Whether a gradient of a version counts now.

        Raises:
            ValueError: There is no such version yet.
        """
        verdict = judge_gradient(self.rule, gradient_version, self.version)
        # Who is told so leaves its task; nobody computes these records again.
        return Refusal.LEASE_LOST if self.is_over else verdict

    def add(self, staged: StagedRange, gradient_version: int) -> int:
        """Take a gradient that counts into the group; gives how many updates late it is."""
        self._staged.append(staged)
        self._staleness = self.version - gradient_version
        return self._staleness

    def is_due(self, only_staged_left: bool) -> bool:
        """Whether the group is an update: see `is_update_due`."""
        return is_update_due(self.rule, len(self._staged), only_staged_left)

    def begin_update(self) -> Update:
        """Close the group: it is applied now, and the next one is open."""
        ranges, self._staged = tuple(self._staged), []
        self._is_updating = True
        share = 1.0 / (1 + self._staleness) if self.rule.is_async else 1.0
        return Update(ranges, share)

    def end_update(self, version: int) -> None:
        """The update has been made, or has failed, and this is the version that is there."""
        self._is_updating = False
        self.version = version

    def resize(self, num_gradients: int) -> None:
        """Have updates made of so many gradients; asked where none is in the open group.

        Raises:
            ValueError: Some are.
        """
        if self._staged:
            raise ValueError(f"the group has begun, with {len(self._staged)} gradients")
        self.rule = replace(self.rule, grads_to_wait=num_gradients)

    def end_training(self) -> None:
        """Nothing counts any more; what waits for others to fill its group is dropped."""
        self._staged = []
        self.is_over = True

    # -- who waits -----------------------------------------------------------------------------

    def wait(self, now_s: float, *, is_beginning: bool = False) -> Wait:
        """A worker wants to wait for the next version, if that is worth it: see `look`."""
        return Wait(self.version, now_s, is_beginning)

    def look(
        self, wait: Wait, now_s: float, num_workers: int, typical_step_s: float | None
    ) -> Next:
        """What a worker that waits does now.

        Args:
            wait: Of this worker.
            now_s: The time.
            num_workers: All there are.
            typical_step_s: What computing a minibatch takes; None if that is not known yet.
        """
        if self.version != wait.version or self.is_over:
            return GoOn()
        # While the update is made, its group is empty: what is begun now would be too late.
        if not (self._is_updating or self._is_worth_it(wait, num_workers)):
            return GoOn()
        left_s = wait.since_s + hold_limit_s(typical_step_s) - now_s
        if left_s > 0:
            return Stay(left_s)
        self.at_work.give_up(wait.since_s)
        wait.since_s = now_s
        return GiveUp()

    def _is_worth_it(self, wait: Wait, num_workers: int) -> bool:
        staged, awaited = len(self._staged), self.at_work.num_awaited
        if wait.is_beginning:
            return should_wait_to_begin(self.rule, staged, awaited, num_workers)
        return should_hold_reply(self.rule, staged, awaited)
