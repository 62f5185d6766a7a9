"""Minibatches of the task in work, read and prepared ahead; a look at the first ones."""

import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from elastic.data.base import DataReader, Taking, open_task, repeated
from elastic.errors import DataError
from elastic.frameworks.base import Array, Batch, Framework
from elastic.policy.minibatches import FirstMinibatches, Looked, Oddity
from elastic.policy.tasks.records import Columns, RecordRange, Task, TaskKind
from elastic.rpc.client import MasterClient
from elastic.rpc.rows import WantedIds
from elastic.rpc.wire import task_from_proto
from elastic.spec.model_def import ModelDef
from elastic.spec.platforms import Mode

AHEAD: Final = 3
"""Minibatches under way besides the one in work: two may be ready while a third is made."""


@dataclass(frozen=True, slots=True)
class LoadedBatch:
    """Records `[start, end)` of a task, and the batch made of them."""

    start: int
    end: int
    future: "Future[Batch]"

    def result(self) -> Batch:
        """The batch; raises what reading or preparing it raised."""
        return self.future.result()


@dataclass(frozen=True, slots=True)
class ForeseenBatch(Batch):
    """A minibatch of which is known which rows the model will ask for.

    Attributes:
        wanted: These rows.
    """

    wanted: Sequence[WantedIds] = ()


class BatchMaker(Protocol):
    """Makes the batches of one task, in order, in another thread."""

    def submit(self, count: int) -> "Future[Batch]":
        """Have the next so many records read, and a batch made of them."""
        ...

    def end(self) -> "Future[None]":
        """Have what is open for reading closed, after all that was submitted."""
        ...


class Minibatches:
    """The minibatches of one task in order, made by another thread before they are asked for.

    That thread takes a core, and the interpreter, from a step that is computed meanwhile. So it is
    given work by `read_ahead`, to be called when this process is about to wait for another.
    """

    def __init__(self, records: RecordRange, size: int, maker: BatchMaker) -> None:
        """Start on the first ones.

        Args:
            records: All of the task.
            size: Records of a minibatch; the last one may have fewer.
            maker: Makes them.
        """
        self._records = records
        self._size = size
        self._maker = maker
        self._submitted_end = records.start
        self._ahead: deque[LoadedBatch] = deque()
        self._ended: Future[None] | None = None
        self.read_ahead()

    def __iter__(self) -> Iterator[LoadedBatch]:
        return self

    def __next__(self) -> LoadedBatch:
        if not self._ahead:
            self.read_ahead()
        if not self._ahead:
            raise StopIteration
        return self._ahead.popleft()

    @property
    def is_empty(self) -> bool:
        """Whether no minibatch follows."""
        return not self._ahead and self._submitted_end == self._records.end

    @property
    def following(self) -> Batch | None:
        """The next minibatch, where it is made already."""
        if not self._ahead or not self._ahead[0].future.done():
            return None
        future = self._ahead[0].future
        has_failed = future.cancelled() or future.exception() is not None
        return None if has_failed else future.result()

    def read_ahead(self) -> None:
        """Have the next minibatches made, up to `AHEAD` of them; does not wait for any."""
        while len(self._ahead) < AHEAD and self._submitted_end < self._records.end:
            start = self._submitted_end
            end = min(start + self._size, self._records.end)
            self._ahead.append(LoadedBatch(start, end, self._maker.submit(end - start)))
            self._submitted_end = end
        if self._submitted_end == self._records.end:
            # At once: another task may be read before the computation has come to this one's end.
            self._end()

    @property
    def is_near_end(self) -> bool:
        """Whether no more than one minibatch follows, so that the next task may be read ahead."""
        return self._ended is not None and len(self._ahead) <= 1

    def close(self) -> None:
        """Make none of those that are not begun yet, and wait until nothing is read any more."""
        for loaded in self._ahead:
            loaded.future.cancel()
        self._end().result()

    def _end(self) -> "Future[None]":
        if self._ended is None:
            self._ended = self._maker.end()
        return self._ended


class BatchStream:
    """Reads tasks in a thread of its own, one after the other."""

    def __init__(
        self,
        framework: Framework,
        model_def: ModelDef,
        minibatch_size: int,
        readers: dict[TaskKind, DataReader],
        foresee: Callable[[Batch], Sequence[WantedIds]] | None = None,
    ) -> None:
        """Take what minibatches are made with.

        Args:
            framework: Makes tensors.
            model_def: Makes examples of records.
            minibatch_size: Records of each.
            readers: Of records, by the kind of their task.
            foresee: Tells which rows the model will ask for in training; None where nobody wants
                to know.
        """
        self._foresee = foresee
        self._framework = framework
        self._model_def = model_def
        self._minibatch_size = minibatch_size
        self._readers = readers
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batches")

    @property
    def records_fn(self) -> str:
        """What makes examples of records, for people."""
        return self._model_def.records_fn

    def open(self, task: Task) -> Minibatches:
        """The minibatches of a task, in order, to be closed.

        A task whose records are all being read already may still be open: this one's are read
        after them.
        """
        mode = Mode(task.kind)
        reader = self._readers[task.kind]

        def open_records() -> Taking:
            records = task.records
            by_columns = self._model_def.takes_columns
            return open_task(reader, task, records.start, records.end, by_columns=by_columns)

        def make(records: Sequence[Any] | Columns) -> Batch:
            if task.copies > 1:
                records = repeated(records, task.copies)
            batch = self._framework.make_batch(self._model_def, records, mode)
            if self._foresee is None or task.kind is not TaskKind.TRAINING:
                return batch
            wanted = self._foresee(batch)
            return ForeseenBatch(batch.features, batch.labels, batch.num_examples, wanted)

        maker = _TaskReading(self._thread, task, open_records, make)
        return Minibatches(task.records, self.size_of(task), maker)

    def size_of(self, task: Task) -> int:
        """Records of a minibatch of a task."""
        return min(self._minibatch_size, task.minibatch_size or self._minibatch_size)


class _TaskReading:
    """The reading of one task. Whatever is the user's or the reader's runs in the thread."""

    def __init__(
        self,
        thread: ThreadPoolExecutor,
        task: Task,
        open_records: Callable[[], Taking],
        make: Callable[[Sequence[Any] | Columns], Batch],
    ) -> None:
        self._thread = thread
        self._task = task
        self._open = open_records
        self._make = make
        self._next = task.records.start
        self._records: Taking = _Nothing()
        self._is_open = False

    def submit(self, count: int) -> "Future[Batch]":
        return self._thread.submit(self._load, count)

    def end(self) -> "Future[None]":
        return self._thread.submit(self._close)

    def _load(self, count: int) -> Batch:
        start, self._next = self._next, self._next + count
        if not self._is_open:
            # Nothing is read after an error, which a second beginning would be.
            self._is_open = True
            self._records = self._open()
        records = self._records.take(count)
        if len(records) < count:
            # What is not there must not count: a generator ends when it has raised.
            raise DataError(
                f"{self._task.tell(start, start + count)} were asked for, and {len(records)} came: "
                "the source has ended, or failed before"
            )
        if self._next == self._task.records.end:
            self._check_end()
        return self._make(records)

    def _check_end(self) -> None:
        """Have the reader end by itself: it may have seen that the records were changed."""
        if len(self._records.take(1)):
            raise DataError(
                f"{self._task.tell(self._task.records.start, self._task.records.end)} were asked "
                "for, and more came"
            )

    def _close(self) -> None:
        # What is behind other iterators ends here, in the thread that it was used in.
        self._is_open = True
        records, self._records = self._records, _Nothing()
        records.close()


class _Nothing:
    """No records: those of a task that is not read yet, or not any more."""

    def take(self, count: int) -> Sequence[Any]:  # noqa: ARG002 (there is nothing to count)
        return ()

    def close(self) -> None:
        pass


class FirstLook:
    """Whether the first minibatches are what somebody wants to train on.

    Looks until they are known to be fine, mostly at two; then never again.
    """

    def __init__(self) -> None:
        self._first = FirstMinibatches()

    def at(self, task: Task, loaded: LoadedBatch) -> Oddity | None:
        """Look at a minibatch; what is odd about all so far, once."""
        if self._first.is_done:
            return None
        batch = loaded.result()
        digest = _digest(batch) if self._first.wants_digest else None
        place = task.records.shard_index, loaded.start
        label = _only_label(batch)
        return self._first.add(Looked(task.epoch, place, batch.num_examples, label, digest))


def _only_label(batch: Batch) -> bytes | None:
    """The label of all examples; None where they differ, or are no plain tensor."""
    arrays = list(_arrays([batch.labels]))
    if len(arrays) != 1 or arrays[0] is None or len(arrays[0]) == 0:
        return None
    rows = arrays[0].reshape(len(arrays[0]), -1)
    return rows[0].tobytes() if bool((rows == rows[0]).all()) else None


def _digest(batch: Batch) -> int | None:
    """A checksum of all tensors; None where there is something else."""
    digest = 0
    for array in _arrays([batch.features, batch.labels]):
        if array is None:
            return None
        digest = zlib.crc32(array.tobytes(), digest)
    return digest


def _arrays(structures: Iterable[Any]) -> Iterator[Array | None]:
    """The tensors of nested dicts, lists and tuples as arrays; None for what is none."""
    for structure in structures:
        match structure:
            case Mapping():
                yield from _arrays(structure.values())
            case list() | tuple():
                yield from _arrays(structure)
            case None:
                pass
            case _:
                yield _array(structure)


def _array(tensor: Any) -> Array | None:
    """An array of a tensor of numbers that is in this machine's memory."""
    try:
        array = np.asarray(tensor)
    except (TypeError, ValueError, RuntimeError):
        # Ragged, sparse, on another device, or of a type that NumPy has not.
        return None
    return array if array.ndim and array.dtype.kind in "biufV" else None


# The task in work, and the one to follow, whose records are read before its turn has come.


@dataclass(frozen=True, slots=True)
class Finished:
    """There is nothing left to do, ever."""


@dataclass(frozen=True, slots=True)
class Wait:
    """There is nothing to do now; ask again after so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class _OpenTask:
    task: Task
    batches: Minibatches


class Leases:
    """A worker's tasks: at most one in work, and one to follow that is asked for near its end.

    Without it, the first minibatch of every task is waited for: a folder of images has to be
    decoded, a remote file to answer. The task that follows is asked for late, when one minibatch is
    left, so that no other worker lacks it.
    """

    def __init__(self, client: MasterClient, stream: BatchStream) -> None:
        self._client = client
        self._stream = stream
        self._current: _OpenTask | None = None
        self._next: _OpenTask | None = None
        self._has_asked = False

    def take(self, session: str) -> Task | Wait | Finished:
        """The next task, asked for now if that was not done ahead."""
        if self._next is not None:
            return self._next.task
        reply = self._client.get_task(session)
        match reply.WhichOneof("reply"):
            case "finished":
                return Finished()
            case "wait_s":
                return Wait(reply.wait_s)
        return task_from_proto(reply.task)

    @contextmanager
    def open(self, task: Task) -> Iterator[Minibatches]:
        """The minibatches of the task taken last; what is read ahead is dropped on leaving."""
        if self._next is not None and self._next.task is task:
            opened, self._next = self._next, None
        else:
            opened = _OpenTask(task, self._stream.open(task))
        self._current, self._has_asked = opened, False
        try:
            with closing(opened.batches) as batches:
                yield batches
        finally:
            self._current = None

    def read_ahead(self, session: str) -> None:
        """Have the next minibatches made, those of the next task included.

        Calls the master when the task in work is near its end.
        """
        current = self._current
        assert current is not None, "a task is open"
        current.batches.read_ahead()
        if self._has_asked or not current.batches.is_near_end:
            return
        self._has_asked = True
        reply = self._client.get_task(session, working_on=current.task.task_id)
        if reply.HasField("task"):
            task = task_from_proto(reply.task)
            self._next = _OpenTask(task, self._stream.open(task))

    @contextmanager
    def open_instead(self, part: Task) -> Iterator[Minibatches]:
        """The minibatches of a part of the task in work, in place of those it has left."""
        self.read_no_further()
        with self.open(part) as batches:
            yield batches

    def read_no_further(self) -> None:
        """Read nothing more of the task in work, and forget the one that was to follow."""
        self.drop_next()
        assert self._current is not None, "a task is open"
        self._current.batches.close()

    @property
    def next_batch(self) -> Batch | None:
        """The minibatch that follows the one in work, where it is known and made already."""
        opened = [each for each in (self._current, self._next) if each is not None]
        ahead = (each.batches.following for each in opened if not each.batches.is_empty)
        return next(ahead, None)

    @property
    def following(self) -> Task | None:
        """The task that is leased already, and not in work."""
        return None if self._next is None else self._next.task

    def drop_next(self) -> None:
        """Read no further ahead, and forget the task that was to follow."""
        if self._next is not None:
            following, self._next = self._next, None
            following.batches.close()
