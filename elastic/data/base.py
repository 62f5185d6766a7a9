"""What every source of records can do."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from elastic.policy.records import Shard


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


class DataReader(Protocol):
    """A source of records that can be split and read in any order, by any process."""

    def create_shards(self) -> Sequence[Shard]:
        """List the shards that together hold every record once, in a stable order.

        Raises:
            DataError: The source is missing, unreadable, empty or malformed.
        """

    def read_records(self, task: ReadTask) -> Iterator[Any]:
        """Yield the `task.end - task.start` records of the range, in order.

        What may fail, the look at the file included, is done when records are asked for: only then
        does an error fail the records instead of the worker.

        Raises:
            DataError: A record cannot be read; the message names shard and index.
        """


class FormatReader(Protocol):
    """How files of one format are split and read."""

    def create_shards(self, names: Sequence[str], records_per_task: int) -> list[Shard]:
        """Shards of the files, in their order."""

    def read_records(self, task: ReadTask) -> Iterator[Any]:
        """The records of a task, in order."""
