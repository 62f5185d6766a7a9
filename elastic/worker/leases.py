"""The task in work, and the one to follow, whose records are read before its turn has come."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from elastic.frameworks.base import Batch
from elastic.policy.tasks.records import Task
from elastic.rpc.client import MasterClient
from elastic.rpc.messages import task_from_proto
from elastic.worker.batches import BatchStream, Minibatches


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
