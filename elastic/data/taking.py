"""The records of a task as minibatches take them: a list of objects, or columns."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, Protocol

from elastic.data.base import DataReader, read_task, read_task_columns
from elastic.data.columns import columns_of, joined
from elastic.policy.tasks.records import Columns, Task


class Taking(Protocol):
    """Records that are read as they are taken, in their order."""

    def take(self, count: int) -> Sequence[Any] | Columns:
        """The next so many, or as many as there are; raises what their reader raises."""

    def close(self) -> None:
        """Close what is open for reading: a generator of a reader closes its file."""


def open_task(reader: DataReader, task: Task, start: int, end: int, *, by_columns: bool) -> Taking:
    """The records of `[start, end)` of a task's range, in order.

    Args:
        reader: Of their source.
        task: Whose records they are.
        start: The first one.
        end: One past the last one.
        by_columns: What they are taken as; records of a source without columns are made such.
    """
    blocks = read_task_columns(reader, task, start, end) if by_columns else None
    if blocks is not None:
        return _Blocks(blocks)
    return _Records(iter(read_task(reader, task, start, end)), by_columns)


def read_whole(reader: DataReader, task: Task, *, by_columns: bool) -> Sequence[Any] | Columns:
    """All records of a task; raises what their reader raises, also at their end."""
    begin, end = task.records.start, task.records.end
    with closing(open_task(reader, task, begin, end, by_columns=by_columns)) as taking:
        records = taking.take(end - begin)
        # It may have seen that the records were changed.
        taking.take(1)
    return records


def repeated(records: Sequence[Any] | Columns, times: int) -> Sequence[Any] | Columns:
    """All records so many times, one after the other."""
    if isinstance(records, Columns):
        return joined([records] * times)
    return list(records) * times


class _Records:
    """Objects, one after the other."""

    def __init__(self, records: Iterator[Any], by_columns: bool) -> None:
        self._records = records
        self._by_columns = by_columns

    def take(self, count: int) -> Sequence[Any] | Columns:
        records = list(islice(self._records, count))
        return columns_of(records) if self._by_columns else records

    def close(self) -> None:
        # Plain iterators have nothing to close. And what is behind other iterators ends here.
        records, self._records = self._records, iter(())
        close = getattr(records, "close", None)
        if close is not None:
            close()


class _Blocks:
    """Columns, which are cut where minibatches end and joined where blocks do."""

    def __init__(self, blocks: Iterator[Columns]) -> None:
        self._blocks = blocks
        self._rest = Columns({}, 0)

    def take(self, count: int) -> Columns:
        parts: list[Columns] = []
        while count:
            if not len(self._rest):
                block = next(self._blocks, None)
                if block is None:
                    break
                self._rest = block
            part = self._rest.part(0, count)
            self._rest = self._rest.part(len(part), len(self._rest))
            count -= len(part)
            # An empty block says nothing of what fields there are.
            parts += [part] if len(part) else []
        return joined(parts) if parts else Columns({}, 0)

    def close(self) -> None:
        blocks, self._blocks, self._rest = self._blocks, iter(()), Columns({}, 0)
        close = getattr(blocks, "close", None)
        if close is not None:
            close()
