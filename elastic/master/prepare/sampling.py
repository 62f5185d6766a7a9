"""The first records that the user's code can handle: models are built from them."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

from elastic.data.base import DataReader, read_task
from elastic.errors import ModelDefError, UserError
from elastic.frameworks.base import Batch, Framework
from elastic.policy.records import RecordRange, Task
from elastic.spec.kinds import Mode
from elastic.spec.model_def import ModelDef

R = TypeVar("R")

MAX_TRIES: Final = 31
"""Five halvings: a record that fails stands alone in minibatches of up to 16."""


def first_part(first: Task, attempt: Callable[[Task], R]) -> tuple[Task, R]:
    """The largest part of the first records that an attempt succeeds with, and its result.

    A record that fails is for the ledger to try again, to name and to skip: one among the first
    must not end the job before it starts.

    Args:
        first: The first records there are; the user's code may fail on some.
        attempt: Raises a `UserError` where it fails, or a `MemoryError`.

    Raises:
        UserError: The attempt fails with every part; what it said of the whole.
        MemoryError: The same.
    """
    parts = deque([first])
    of_all: UserError | MemoryError | None = None
    for _ in range(MAX_TRIES):
        if not parts:
            break
        part = parts.popleft()
        try:
            return part, attempt(part)
        except (UserError, MemoryError) as error:
            of_all = of_all or error
            parts.extend(_halves(part))
    assert of_all is not None
    raise of_all


def sample_batch(
    framework: Framework,
    model_def: ModelDef,
    reader: DataReader,
    sample: Task,
    mode: Mode,
    *,
    may_be_empty: bool = False,
) -> Batch:
    """Read and prepare the sample.

    Raises:
        UserError: The reader or dataset_fn fails on the first records already.
    """
    records = list(read_task(reader, sample, sample.records.start, sample.records.end))
    batch = framework.make_batch(model_def, records, mode)
    if batch.num_examples == 0 and not may_be_empty:
        raise ModelDefError(
            f"dataset_fn made no example of the first {sample.records.num_records} records of "
            f"{sample.shard.name!r}: the model cannot be built without one"
        )
    return batch


def _halves(part: Task) -> list[Task]:
    records = part.records
    if records.num_records < 2:
        return []
    middle = (records.start + records.end) // 2
    return [
        replace(
            part,
            records=RecordRange(records.shard_index, start, end),
            picks=part.picked(start, end),
        )
        for start, end in ((records.start, middle), (middle, records.end))
    ]
