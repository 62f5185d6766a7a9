"""Minibatches of a task, read and prepared one step ahead of the computation."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from elastic.data.base import DataReader, ReadTask
from elastic.frameworks.base import Batch, Framework
from elastic.policy.records import RecordRange, Task, TaskKind
from elastic.spec.mode import Mode
from elastic.spec.model_def import ModelDef

AHEAD: Final = 3
"""Minibatches under way besides the one in work: two may be ready while a third is made."""


@dataclass(frozen=True, slots=True)
class LoadedBatch:
    """Records `[start, end)` of a task's shard, and the batch made of them."""

    start: int
    end: int
    future: "Future[Batch]"

    def result(self) -> Batch:
        """The batch; raises what reading or preparing it raised."""
        return self.future.result()


class Minibatches:
    """The minibatches of one task in order, made by another thread before they are asked for.

    That thread takes a core, and the interpreter, from a step that is computed meanwhile. So it is
    given work by `read_ahead`, to be called when this process is about to wait for another.
    """

    def __init__(
        self, records: RecordRange, size: int, submit: Callable[[int], "Future[Batch]"]
    ) -> None:
        """Start on the first ones.

        Args:
            records: All of the task.
            size: Records of a minibatch; the last one may have fewer.
            submit: Has the next so many records read and made a batch of.
        """
        self._records = records
        self._size = size
        self._submit = submit
        self._submitted_end = records.start
        self._ahead: deque[LoadedBatch] = deque()
        self.read_ahead()

    def __iter__(self) -> Iterator[LoadedBatch]:
        return self

    def __next__(self) -> LoadedBatch:
        if not self._ahead:
            self.read_ahead()
        if not self._ahead:
            raise StopIteration
        return self._ahead.popleft()

    def read_ahead(self) -> None:
        """Have the next minibatches made, up to `AHEAD` of them; does not wait for any."""
        while len(self._ahead) < AHEAD and self._submitted_end < self._records.end:
            start = self._submitted_end
            end = min(start + self._size, self._records.end)
            self._ahead.append(LoadedBatch(start, end, self._submit(end - start)))
            self._submitted_end = end

    def drop(self) -> None:
        """Make none of those that are not begun yet."""
        for loaded in self._ahead:
            loaded.future.cancel()


class BatchStream:
    """Reads tasks of the training or the evaluation data in a thread of its own."""

    def __init__(
        self,
        framework: Framework,
        model_def: ModelDef,
        minibatch_size: int,
        readers: dict[TaskKind, DataReader],
    ) -> None:
        self._framework = framework
        self._model_def = model_def
        self._minibatch_size = minibatch_size
        self._readers = readers
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batches")

    @contextmanager
    def open(self, task: Task) -> Iterator[Minibatches]:
        """The minibatches of a task, in order; what was read ahead is dropped on leaving."""
        mode = Mode(task.kind)
        read_task = ReadTask(task.shard, task.records.start, task.records.end)
        records = self._readers[task.kind].read_records(read_task)

        def load(count: int) -> Batch:
            return self._framework.make_batch(self._model_def, list(islice(records, count)), mode)

        def submit(count: int) -> "Future[Batch]":
            return self._thread.submit(load, count)

        batches = Minibatches(task.records, self._minibatch_size, submit)
        try:
            yield batches
        finally:
            batches.drop()
            self._thread.submit(_close, records).result()


def _close(records: Any) -> None:
    """Let a reader's generator close its file; plain iterators have nothing to close."""
    close = getattr(records, "close", None)
    if close is not None:
        close()
