"""The decisions that lead from a snapshot to a board that was tried out."""

from collections.abc import Mapping, Sequence

from elastic.policy.cluster.board import Board, JobSeats, Seats
from elastic.policy.cluster.plan import Decision
from elastic.policy.cluster.snapshot import Cards, Placement


def decisions_of(board: Board, reasons: Mapping[str, str]) -> tuple[Decision, ...]:
    """One for each job that has changed, by `Seats.size` and by where its replicas are.

    Args:
        reasons: By the key of the job, for people.
    """
    touched = {seats for seats, _ in board.touched}
    seats_of = ((job, seats) for job in board.jobs for seats in job.all)
    # Most are as they were, which is seen without looking where they are.
    able = [(job, each) for job, each in seats_of if each in touched or _has_other_size(each)]
    changed = list(dict.fromkeys(job for job, each in able if _has_changed(board, each)))
    left = {name for job in board.jobs for seats in job.all for name in seats.group.leaving}
    left.update(name for _, each in able for name in _lost(board, each))
    decisions = [_decision(board, job, reasons, left) for job in changed]
    gives = {job.job.key: job.workers.placed <= job.workers.group.placed for job in changed}
    # What gives room comes before what takes it.
    return tuple(sorted(decisions, key=lambda each: (not gives[each.job], each.job)))


def _decision(board: Board, job: JobSeats, reasons: Mapping[str, str], left: set[str]) -> Decision:
    ps = job.ps if job.ps is not None and _has_changed(board, job.ps) else None
    others: dict[str, Placement] = {
        each.group.role: board.placement(each) for each in job.others if _has_changed(board, each)
    }
    cards: dict[str, Cards] = {
        each.group.role: board.cards(each) for each in job.all if each.group.share is not None
    }
    gained = (name for seats in job.all for name in _gained(board, seats))
    return Decision(
        job.job.key,
        job.workers.size,
        reasons.get(job.job.key, ""),
        placement=board.placement(job.workers),
        ps_replicas=ps.size if ps is not None else None,
        ps_placement=board.placement(ps) if ps is not None else None,
        other_placements=others,
        cards=cards,
        is_after_others=bool(left) and not left.isdisjoint(gained),
    )


def _has_other_size(seats: Seats) -> bool:
    return seats.size != seats.group.replicas or seats.placed != seats.group.placed


def _has_changed(board: Board, seats: Seats) -> bool:
    group = seats.group
    if _has_other_size(seats):
        return True
    before = {name: count for name, count in group.placement.items() if count}
    return board.placement(seats) != before


def _gained(board: Board, seats: Seats) -> Sequence[str]:
    before = seats.group.placement
    return [name for name, count in board.placement(seats).items() if count > before.get(name, 0)]


def _lost(board: Board, seats: Seats) -> Sequence[str]:
    after = board.placement(seats)
    return [name for name, count in seats.group.placement.items() if count > after.get(name, 0)]
