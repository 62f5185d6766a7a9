"""What elastic policies are compared with: jobs of one size, started whole and never resized.

`Gang` passes over a job that does not fit, `Fifo` lets it hold up all that came after it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from elastic.policy.cluster import Note, Plan, Snapshot, uncollected
from elastic.policy.placement.board import (
    REPLACED,
    Board,
    JobSeats,
    Seats,
    changed_text,
    decisions_of,
    lacking_text,
    nodes_text,
)
from elastic.policy.placement.making_room import Starter, lacking
from elastic.policy.placement.rooms import Shape


@dataclass(frozen=True, slots=True)
class Gang:
    """All workers that a job's user asked for start together, or none."""

    @uncollected
    def plan(self, snapshot: Snapshot) -> Plan:
        """What is to change now."""
        return _Queue(snapshot, is_strict=False).plan()


@dataclass(frozen=True, slots=True)
class Fifo:
    """The same, strictly in the order in which jobs came."""

    @uncollected
    def plan(self, snapshot: Snapshot) -> Plan:
        """What is to change now."""
        return _Queue(snapshot, is_strict=True).plan()


class _Queue:
    def __init__(self, snapshot: Snapshot, *, is_strict: bool) -> None:
        self._board = Board(snapshot)
        self._starter, self._is_strict = Starter(self._board), is_strict
        self._why: dict[Seats, str] = {}

    def plan(self) -> Plan:
        jobs = sorted(self._board.jobs, key=lambda job: (job.job.submitted_s, job.key))
        begun = {job for job in jobs if job.has_some}
        for job in filter(begun.__contains__, jobs):
            # It was started before: nobody takes its turn.
            if self._starter.replace_lost(job):
                self._why[job.workers] = REPLACED
        notes = tuple(self._start(job for job in jobs if job not in begun))
        reasons = {seats.job: changed_text(seats, why) for seats, why in self._why.items()}
        return Plan(decisions_of(self._board, reasons), notes)

    def _start(self, jobs: Iterator[JobSeats]) -> Iterator[Note]:
        """Start who can be; why others are not."""
        # Who needs the same as somebody before in vain need not look.
        failed: set[tuple[tuple[Shape, int], ...]] = set()
        for job in jobs:
            wanted = lacking(job, job.workers.group.size_at_start)
            need = tuple((each.shape, count) for each, count in wanted)
            if need not in failed and self._starter.start_whole(job):
                self._why[job.workers] = f"there is room for all on {nodes_text(self._board, job)}"
                for seats in job.all:
                    seats.size = seats.placed
                continue
            failed.add(need)
            yield Note(job.key, f"lacks {lacking_text(self._board.rooms, need)} at once")
            if self._is_strict:
                yield from (Note(each.key, f"waits behind {job.key}") for each in jobs)
