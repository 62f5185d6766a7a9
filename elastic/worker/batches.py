"""Minibatches of a task, read and prepared one step ahead of the computation."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from elastic.data.base import DataReader, ReadTask
from elastic.frameworks.base import Batch, Framework
from elastic.policy.records import Task, TaskKind
from elastic.spec.mode import Mode
from elastic.spec.model_def import ModelDef

AHEAD: Final = 2
"""Minibatches prepared in advance: one that is ready, one that is being made."""


@dataclass(frozen=True, slots=True)
class LoadedBatch:
    """Records `[start, end)` of a task's shard, and the batch made of them."""

    start: int
    end: int
    future: "Future[Batch]"

    def result(self) -> Batch:
        """The batch; raises what reading or preparing it raised."""
        return self.future.result()


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
    def open(self, task: Task) -> Iterator[Iterator[LoadedBatch]]:
        """The minibatches of a task, in order; what was read ahead is dropped on leaving."""
        mode = Mode.TRAINING if task.kind is TaskKind.TRAINING else Mode.EVALUATION
        read_task = ReadTask(task.shard, task.records.start, task.records.end)
        records = self._readers[task.kind].read_records(read_task)
        ahead: deque[LoadedBatch] = deque()

        def load(count: int) -> Batch:
            return self._framework.make_batch(self._model_def, list(islice(records, count)), mode)

        def stream() -> Iterator[LoadedBatch]:
            for start in range(task.records.start, task.records.end, self._minibatch_size):
                end = min(start + self._minibatch_size, task.records.end)
                ahead.append(LoadedBatch(start, end, self._thread.submit(load, end - start)))
                if len(ahead) > AHEAD:
                    yield ahead.popleft()
            while ahead:
                yield ahead.popleft()

        try:
            yield stream()
        finally:
            for loaded in ahead:
                loaded.future.cancel()
            self._thread.submit(_close, records).result()


def _close(records: Any) -> None:
    """Let a reader's generator close its file; plain iterators have nothing to close."""
    close = getattr(records, "close", None)
    if close is not None:
        close()
