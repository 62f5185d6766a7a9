"""Names for records: where they lie and who works on them."""

from dataclasses import dataclass
from enum import StrEnum


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


class TaskKind(StrEnum):
    """What a worker is asked to do with the records of a task."""

    TRAINING = "training"
    EVALUATION = "evaluation"
    PREDICTION = "prediction"


@dataclass(frozen=True, slots=True)
class Task:
    """A range of one shard, leased to one worker under one attempt number.

    Attributes:
        task_id: Unique within the job since its last restart of the master.
        attempt: Counts the leases of this range; a report that names an older one is refused.
        epoch: 0-based.
        records: The range to work through, in order.
        shard: The shard that `records` indexes into.
        model_version: Evaluation and prediction: the version of the model to use.
        skipped: Prediction: indices of records in the range that are to be left out.
        is_search: The range is one minibatch that has failed whole: find out whose fault that is.
        minibatch_size: Records of a minibatch, where the job's own size fails.
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
