"""What jobs of the same program have shown: the next of them need not find it out again.

A job is started again and again, with other data or other settings that do not change how long a
step takes. What one was seen to do at a size the others would do there too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import fsum
from typing import Final

from elastic.policy.cluster.snapshot import Job, Shown, Speed, Telling


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """The speeds of all jobs of one program, one for each size: the same object for the same."""

    speeds: tuple[Speed, ...]


@dataclass(frozen=True, slots=True)
class Alike:
    """What is known of programs that more than one job has or had, by their names.

    Attributes:
        pools: Of those that anybody has told speeds of.
    """

    pools: Mapping[str, Pool] = field(default_factory=dict)

    def pool_of(self, job: Job) -> Pool | None:
        """None where a job is of no program, or nobody has told speeds of it."""
        return None if job.program is None else self.pools.get(job.program)


NOBODY: Final = Alike()

_POOLS: Final[dict[tuple[Speed, ...], Pool]] = {}
"""A pool is part of what is looked up for each of its jobs: compared by what it holds, that took
longer than a plan."""

_MOST_POOLS: Final = 1 << 14

_Size = tuple[int, int, int]
_Seen = tuple[list[float], list[float]]
"""Samples a second, and seconds of computing, as each job tells them."""


def alike_of(jobs: Iterable[Job], shown: Mapping[str, Shown]) -> Alike:
    """Gather what jobs of the same program tell.

    Args:
        jobs: All of the cluster.
        shown: By program, what others told that are over.
    """
    by_program: dict[str, list[Job]] = {}
    for job in jobs:
        if job.program is not None:
            by_program.setdefault(job.program, []).append(job)
    pools: dict[str, Pool] = {}
    for program, members in by_program.items():
        others = shown.get(program)
        # One that is the only one of its program has nothing to learn of others.
        if others is None and len(members) == 1:
            continue
        sizes = _gathered([*([others] if others else ()), *(job.telling for job in members)])
        if sizes:
            pools[program] = _pool(sizes)
    return Alike(pools)


def shown_by(tellings: Iterable[Telling]) -> Shown:
    """What jobs of one program told, each size once."""
    return Shown(_speeds(_gathered(tellings)))


def _gathered(tellings: Iterable[Telling | Shown]) -> dict[_Size, _Seen]:
    """What was seen, by size."""
    sizes: dict[_Size, _Seen] = {}
    for each in tellings:
        _note(sizes, each.speeds)
    return sizes


def _note(sizes: dict[_Size, _Seen], speeds: Iterable[Speed]) -> None:
    for each in speeds:
        if each.samples_per_s > 0 and each.replicas > 0:
            size = (each.replicas, max(1, each.nodes), each.global_batch_size or 0)
            rates, computing = sizes.setdefault(size, ([], []))
            rates.append(each.samples_per_s)
            if each.compute_s:
                computing.append(each.compute_s)


def _pool(sizes: Mapping[_Size, _Seen]) -> Pool:
    speeds = _speeds(sizes)
    found = _POOLS.get(speeds)
    if found is None:
        while len(_POOLS) >= _MOST_POOLS:
            del _POOLS[next(iter(_POOLS))]
        found = _POOLS[speeds] = Pool(speeds)
    return found


def _speeds(sizes: Mapping[_Size, _Seen]) -> tuple[Speed, ...]:
    return tuple(
        Speed(replicas, nodes, _mean(rates), batch or None, _mean(computing) if computing else None)
        for (replicas, nodes, batch), (rates, computing) in sorted(sizes.items())
    )


def _mean(values: list[float]) -> float:
    # The exact sum, so that nothing depends on the order in which jobs are listed.
    return fsum(values) / len(values)
