"""Which gradient counts, with which weight, and when an update is due."""

from dataclasses import dataclass
from typing import Final

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


def num_computing_beside_update(num_workers: int, grads_to_wait: int) -> int:
    """Workers that compute while an update is applied: those it is made of wait for it.

    Args:
        num_workers: As many as there can be.
        grads_to_wait: Gradients of one update; 1 where each is applied as it comes.
    """
    return max(num_workers - grads_to_wait, 0)


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
