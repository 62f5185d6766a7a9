"""What every source of records can do, and the packages that some need."""

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from elastic.errors import DataError
from elastic.policy.tasks.records import Columns, Picks, Shard, Task
from elastic.spec.values.packages import pip_install


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Records `[start, end)` of `shard`: the argument of a reader's `read_records`.

    `shard_name` is there for readers written for ElasticDL, which look at
    `task.shard_name`, `task.start` and `task.end`.
    """

    shard: Shard
    start: int
    end: int

    @property
    def shard_name(self) -> str:
        return self.shard.name


@dataclass(frozen=True, slots=True)
class Chunks:
    """A source as an epoch is made of it.

    Attributes:
        shards: Together every record once, in a stable order.
        mixed: The shards are chunks, to be shuffled so many at a time at least; None where each
            record can be read by itself.
        is_forward: Whether they should be read as they follow each other.
    """

    shards: Sequence[Shard]
    mixed: int | None = None
    is_forward: bool = False


class DataReader(Protocol):
    """A source of records that can be split and read in any order, by any process."""

    def create_shards(self) -> Sequence[Shard]:
        """List the shards that together hold every record once, in a stable order.

        Raises:
            DataError: The source is missing, unreadable, empty or malformed.
        """

    def create_chunks(self) -> Chunks:
        """The same records as they can be read in any order, in a stable one.

        Raises:
            DataError: As `create_shards`.
        """

    def read_picks(self, picks: Picks) -> Iterator[Any]:
        """Yield records of any shards in any order; as `read_records` but for that."""

    def read_columns(self, wanted: "ReadTask | Picks") -> Iterator[Columns] | None:
        """The same records as columns, in blocks of any size; raises the same, when asked for.

        Those before a record that cannot be read come first, and all blocks have the same fields.
        Arrays belong to the caller. None where a source has records alone.
        """

    def read_records(self, task: ReadTask) -> Iterator[Any]:
        """Yield the `task.end - task.start` records of the range, in order.

        What may fail, the look at the file included, is done when records are asked for: only then
        does an error fail the records instead of the worker.

        Raises:
            DataError: A record cannot be read; the message names shard and index.
        """


def read_task(reader: DataReader, task: Task, start: int, end: int) -> Iterator[Any]:
    """The records of `[start, end)` of a task's range, in order; raises what the reader raises."""
    picked = task.picked(start, end)
    if picked is None:
        return reader.read_records(ReadTask(task.shard, start, end))
    return reader.read_picks(picked)


def read_task_columns(
    reader: DataReader, task: Task, start: int, end: int
) -> Iterator[Columns] | None:
    """What `read_task` gives as blocks of columns; None where the source has records alone."""
    picked = task.picked(start, end)
    return reader.read_columns(ReadTask(task.shard, start, end) if picked is None else picked)


class FormatReader(Protocol):
    """How files of one format are split and read."""

    def create_shards(self, names: Sequence[str], records_per_task: int) -> list[Shard]:
        """Shards of the files, in their order."""

    def create_chunks(self, names: Sequence[str]) -> Chunks:
        """The same as chunks that can be read in any order."""

    def read_records(self, task: ReadTask) -> Iterator[Any]:
        """The records of a task, in order."""


@dataclass(frozen=True, slots=True, eq=False)
class RawRecords:
    """Records as they are stored, one after the other.

    Attributes:
        data: The bytes of all, or their text.
        begins: (n,) int64: where each one begins in `data`.
        ends: (n,) int64: one past its end.
    """

    data: bytes | str
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]


@runtime_checkable
class RawReader(Protocol):
    """A format whose records are runs of bytes or text, that are decoded many at a time.

    In any order, chunks are kept as they are stored and not as records: those take up to ten times
    the memory, and are out of the processor's cache when their turn comes.
    """

    def read_raw(self, task: ReadTask) -> RawRecords:
        """All records of a task.

        Raises:
            DataError: They cannot be read, or one of them is none; the message may name another.
        """

    def decode_raw(self, name: str, records: list[Any]) -> Sequence[Any]:
        """Decode records cut out of `RawRecords.data`, of files like `name`.

        Raises:
            DataError: One of them cannot be decoded; it does not say which.
        """


@runtime_checkable
class PickReader(Protocol):
    """A format that reads records in any order by itself."""

    def read_picks(self, picks: Picks) -> Iterator[Any]:
        """The records in their order."""


@runtime_checkable
class ColumnReader(Protocol):
    """A format that has its records as columns."""

    def read_columns(self, task: ReadTask) -> Iterator[Columns]:
        """The records of a task in order, in blocks."""

    def pick_columns(self, picks: Picks) -> Iterator[Columns]:
        """Records in any order, in blocks."""


@dataclass(frozen=True, slots=True)
class Extra:
    """What a format needs that is not installed with elastic.

    Attributes:
        name: The extra of this package, as `pip_install` takes it.
        modules: What it installs, as imported.
    """

    name: str
    modules: tuple[str, ...]


def check_extra(extra: Extra, what: str) -> None:
    """Refuse to go on without the packages of an extra.

    Args:
        extra: What is needed.
        what: What is read with it, in the plural.

    Raises:
        DataError: One is not installed.
    """
    missing = [module for module in extra.modules if importlib.util.find_spec(module) is None]
    if missing:
        raise DataError(
            f"{what} are read with the package {missing[0]}, which is not installed here: "
            + how_to_get(extra)
        )


def how_to_get(extra: Extra) -> str:
    """What to do where an extra is missing, here and in a cluster."""
    return f"{pip_install(extra.name)}; in a cluster, the model_zoo's requirements.txt names it"
