"""The decisions that lead from a snapshot to a board that was tried out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elastic.policy.cluster.board import Board, JobSeats, Seats
from elastic.policy.cluster.plan import Decision
from elastic.policy.cluster.snapshot import Placement


def decisions_of(board: Board, reasons: Mapping[str, str]) -> tuple[Decision, ...]:
    """One for each job that has changed, by `Seats.size` and by where its replicas are.

    Args:
        reasons: By the key of the job, for people.
    """
    touched = {seats for groups, *_ in board.touched for seats in groups}
    # Most are as they were, which is seen without looking where they are.
    changes = {
        seats: _Change.of(board, seats)
        for job in board.jobs
        for seats in job.all
        if seats in touched or _has_other_size(seats)
    }
    changed = [
        job
        for job in board.jobs
        if any(each in changes and changes[each].is_one for each in job.all)
    ]
    left = {name for job in board.jobs for seats in job.all for name in seats.group.leaving}
    left.update(name for each in changes.values() for name in each.lost)
    decisions = [_decision(board, job, reasons, changes, left) for job in changed]
    gives = {job.job.key: job.workers.placed <= job.workers.group.placed for job in changed}
    # What gives room comes before what takes it.
    return tuple(sorted(decisions, key=lambda each: (not gives[each.job], each.job)))


@dataclass(frozen=True, slots=True)
class _Change:
    """What has become of one group.

    Attributes:
        placement: Where it is now.
        is_one: Whether that, or its size, is not what it was.
        gained: Nodes on which it has more.
        lost: Nodes on which it has fewer.
    """

    placement: Placement
    is_one: bool
    gained: Sequence[str]
    lost: Sequence[str]

    @classmethod
    def of(cls, board: Board, seats: Seats) -> "_Change":
        """Of a group that may have changed."""
        before, after = seats.group.placement, board.placement(seats)
        gained = [name for name, count in after.items() if count > before.get(name, 0)]
        lost = [name for name, count in before.items() if count > after.get(name, 0)]
        is_one = bool(gained or lost) or _has_other_size(seats)
        return cls(after, is_one, gained, lost)


def _decision(
    board: Board,
    job: JobSeats,
    reasons: Mapping[str, str],
    changes: Mapping[Seats, _Change],
    left: set[str],
) -> Decision:
    found = {each: changes[each] for each in job.all if each in changes}
    moved = {each: change.placement for each, change in found.items() if change.is_one}
    ps = job.ps if job.ps in moved else None
    workers = job.workers
    return Decision(
        job.job.key,
        workers.size,
        reasons.get(job.job.key, ""),
        placement=found[workers].placement if workers in found else board.placement(workers),
        ps_replicas=ps.size if ps is not None else None,
        ps_placement=moved[ps] if ps is not None else None,
        other_placements={each.group.role: moved[each] for each in job.others if each in moved},
        cards={
            each.group.role: board.cards(each) for each in job.all if each.group.share is not None
        },
        is_after_others=bool(left)
        and any(not left.isdisjoint(change.gained) for change in found.values()),
    )


def _has_other_size(seats: Seats) -> bool:
    return seats.size != seats.group.replicas or seats.placed != seats.group.placed
