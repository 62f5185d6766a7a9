"""The decisions that lead from a snapshot to a board that was tried out."""

from collections.abc import Iterator, Mapping

from elastic.policy.cluster.plan import Decision
from elastic.policy.cluster.snapshot import Placement
from elastic.policy.placement.board import Board, JobSeats, Seats


def decisions_of(board: Board, reasons: Mapping[str, str]) -> tuple[Decision, ...]:
    """One for each job that has changed, by `Seats.size` and by where its replicas are.

    Args:
        reasons: By the key of the job, for people.
    """
    touched = set(board.touched)
    seats_of = ((job, seats) for job in board.jobs for seats in job.all)
    # Most are as they were, which is seen without looking where they are.
    able = [(job, each) for job, each in seats_of if each in touched or _has_other_size(each)]
    after = {each: board.placement(each) for _, each in able}
    moved = {each for each in after if _has_other_size(each) or _is_elsewhere(each, after[each])}
    changed = list(dict.fromkeys(job for job, each in able if each in moved))
    left = {name for job in board.jobs for seats in job.all for name in seats.group.leaving}
    left.update(name for each in moved for name in _lost(each, after[each]))
    decisions = []
    for job in changed:
        found = {each: after[each] for each in job.all if each in moved}
        waits = bool(left) and not left.isdisjoint(_gained(found))
        decisions.append(_decision(board, job, reasons.get(job.key, ""), found, waits=waits))
    gives = {job.key: job.workers.placed <= job.workers.group.placed for job in changed}
    # What gives room comes before what takes it.
    return tuple(sorted(decisions, key=lambda each: (not gives[each.job], each.job)))


def _decision(
    board: Board, job: JobSeats, reason: str, moved: Mapping[Seats, Placement], *, waits: bool
) -> Decision:
    workers, ps = job.workers, job.ps if job.ps in moved else None
    return Decision(
        job.key,
        workers.size,
        reason,
        placement=moved[workers] if workers in moved else board.placement(workers),
        ps_replicas=ps.size if ps is not None else None,
        ps_placement=moved[ps] if ps is not None else None,
        other_placements={each.group.role: moved[each] for each in job.others if each in moved},
        cards={
            each.group.role: board.cards(each) for each in job.all if each.group.share is not None
        },
        is_after_others=waits,
    )


def _has_other_size(seats: Seats) -> bool:
    return seats.size != seats.group.replicas or seats.placed != seats.group.placed


def _is_elsewhere(seats: Seats, after: Placement) -> bool:
    return after != {name: count for name, count in seats.group.placement.items() if count}


def _gained(moved: Mapping[Seats, Placement]) -> Iterator[str]:
    for seats, after in moved.items():
        before = seats.group.placement
        yield from (name for name, count in after.items() if count > before.get(name, 0))


def _lost(seats: Seats, after: Placement) -> Iterator[str]:
    before = seats.group.placement
    return (name for name, count in before.items() if count > after.get(name, 0))
