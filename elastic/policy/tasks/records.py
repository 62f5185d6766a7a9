"""Names for records: where they lie and who works on them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate, pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_TOLD: Final = 3
"""Records that a text names one by one."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A named, ordered range of records `[start, end)` of one source.

    Attributes:
        name: What a person calls the source, usually a path; part of every error about a record.
        start: Index of the first record, counted within the source.
        end: One past the last record.
        offset_bytes: Where record `start` begins in the source, when the reader knows; lets a
            task read what it holds and not what the file holds.
        fingerprint: What the source was like when its records were counted, so that any process
            can tell whether it still is; empty where the reader does not tell.
    """

    name: str
    start: int
    end: int
    offset_bytes: int | None = None
    fingerprint: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"shard {self.name!r} has the range [{self.start}, {self.end})")

    @property
    def num_records(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True, order=True)
class RecordRange:
    """Records `[start, end)` of the shard with index `shard_index` in the job's list of shards."""

    shard_index: int
    start: int
    end: int

    @property
    def num_records(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True, eq=False)
class Picks:
    """Records of any shards in any order: what stands at the positions of a task.

    Attributes:
        shards: Those that any of the records is of.
        owners: (n,) int32: the index in `shards` for each record.
        indices: (n,) int64: its index in the shard's source.
    """

    shards: tuple[Shard, ...]
    owners: NDArray[np.int32]
    indices: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.indices)

    def part(self, start: int, end: int) -> "Picks":
        """Those at `[start, end)`, counted from the first one."""
        return Picks(self.shards, self.owners[start:end], self.indices[start:end])

    @property
    def num_runs(self) -> int:
        """How many ranges `runs` gives."""
        return 1 + len(self._breaks()) if len(self) else 0

    def _breaks(self) -> NDArray[np.intp]:
        """Where a record does not follow the one before."""
        return np.flatnonzero((np.diff(self.indices) != 1) | (np.diff(self.owners) != 0)) + 1

    def runs(self) -> Iterator[tuple[Shard, int, int]]:
        """The same as ranges `[start, end)` of shards, each as long as can be."""
        if not len(self):
            return
        bounds = [0, *self._breaks().tolist(), len(self)]
        firsts = self.indices[bounds[:-1]].tolist()
        owners = self.owners[bounds[:-1]].tolist()
        for (begin, end), first, owner in zip(pairwise(bounds), firsts, owners, strict=True):
            yield self.shards[owner], first, first + end - begin

    def __str__(self) -> str:
        """For people: the first ones by name."""
        # Of shuffled records each is a range: to look at all costs more than to read some.
        ends = self._breaks()[_TOLD - 1 : _TOLD].tolist() or [len(self)]
        runs = self.part(0, ends[0]).runs()
        told = ", ".join(tell_range(shard.name, start, end) for shard, start, end in runs)
        left = len(self) - ends[0]
        return f"{told} and {left} more" if left else told


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Records side by side: what they are where nobody wants an object of each.

    Attributes:
        arrays: Field → (n, …): the first dimension counts records.
        num_records: n, also where no field is left.
    """

    arrays: dict[str, NDArray[Any]]
    num_records: int

    def __len__(self) -> int:
        return self.num_records

    def part(self, start: int, end: int) -> "Columns":
        """The records `[start, end)`, as views."""
        end = min(end, self.num_records)
        parts = {name: array[start:end] for name, array in self.arrays.items()}
        return Columns(parts, max(0, end - start))


def tell_range(name: str, start: int, end: int) -> str:
    """Say for people which records of a source are meant."""
    if end - start == 1:
        return f"record {start} of {name!r}"
    return f"records [{start}, {end}) of {name!r}"


class Places:
    """Where the records of all shards lie, counted through from 0 on."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self.shards = tuple(shard for shard in shards if shard.num_records)
        firsts = list(accumulate((shard.num_records for shard in self.shards), initial=0))
        self.num_records = firsts[-1]
        self.firsts = firsts[:-1]
        self._firsts = np.asarray(self.firsts, np.int64)
        self._starts = np.asarray([shard.start for shard in self.shards], np.int64)

    def pick(self, numbers: NDArray[np.int64]) -> Picks:
        """The records of these numbers, each in [0, num_records), in their order."""
        owners = np.searchsorted(self._firsts, numbers, side="right") - 1
        indices = numbers - self._firsts[owners] + self._starts[owners]
        # They are few numbers from 0 on, for which `numpy.unique` takes ten times as long.
        is_used = np.bincount(owners, minlength=len(self.shards)) > 0
        used, owners = np.flatnonzero(is_used), (np.cumsum(is_used) - 1)[owners]
        shards = tuple(self.shards[owner] for owner in used.tolist())
        return Picks(shards, owners.astype(np.int32), indices)


class TaskKind(StrEnum):
    """What a worker is asked to do with the records of a task."""

    TRAINING = "training"
    EVALUATION = "evaluation"
    PREDICTION = "prediction"


@dataclass(frozen=True, slots=True)
class Task:
    """A range of one shard, or of an epoch's positions, leased to one worker under one attempt.

    Attributes:
        task_id: Unique within the job since its last restart of the master.
        attempt: Counts the leases of this range; a report that names an older one is refused.
        epoch: 0-based.
        records: The range to work through, in order.
        shard: The shard that `records` indexes into.
        picks: Training: `records` are positions of the epoch, and these stand there.
        model_version: Evaluation and prediction: the version of the model to use.
        skipped: Prediction: indices of records in the range that are to be left out.
        is_search: The range is one minibatch that has failed whole: find out whose fault that is.
        minibatch_size: Records of a minibatch, where the job's own size fails.
        copies: How often each record stands in its minibatch; a worker's own business.
    """

    task_id: int
    attempt: int
    kind: TaskKind
    epoch: int
    records: RecordRange
    shard: Shard
    model_version: int | None = None
    skipped: tuple[int, ...] = ()
    is_search: bool = False
    minibatch_size: int | None = None
    picks: Picks | None = None
    copies: int = 1

    def part(self, start: int, end: int) -> "Task":
        """The same work on a part of the range."""
        records = RecordRange(self.records.shard_index, start, end)
        return replace(self, records=records, picks=self.picked(start, end))

    def is_left_over(self, start: int, minibatch_size: int) -> bool:
        """Whether record `start` is by itself since others of its minibatch are left out.

        Else a minibatch of one is what the job makes: by its size, or as an epoch's last one.
        """
        is_cut_so = start % minibatch_size == 0 and start + 1 == self.shard.end
        return minibatch_size > 1 and not is_cut_so

    def picked(self, start: int, end: int) -> Picks | None:
        """What stands at positions `[start, end)`; None where `records` are no positions."""
        if self.picks is None:
            return None
        return self.picks.part(start - self.records.start, end - self.records.start)

    def tell(self, start: int, end: int) -> str:
        """Say for people which records are those of `[start, end)`."""
        picked = self.picked(start, end)
        return tell_range(self.shard.name, start, end) if picked is None else str(picked)
