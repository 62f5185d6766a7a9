"""The task that follows is asked for near the end of the one in work, and read after it."""

import contextlib
import itertools
import threading

import pytest

from elastic.data.base import ReadTask
from elastic.policy.tasks.records import RecordRange, Shard, Task, TaskKind
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.wire import task_to_proto
from elastic.spec.model_def import ModelDef
from elastic.worker.batches import BatchStream, Finished, Leases, Wait

MINIBATCH = 4
NUM_RECORDS = 20
SHARD = Shard("s", 0, 100)
OF_RECORDS = ModelDef("net", "torch", print, print, print, dataset_fn=print)


class Master:
    """Leases as many tasks as there are, in order, and notes what it was asked."""

    def __init__(self, num_tasks):
        self._tasks = [
            Task(n, 0, TaskKind.TRAINING, 0, RecordRange(0, n * 20, n * 20 + NUM_RECORDS), SHARD)
            for n in range(num_tasks)
        ]
        self.asked = []

    def get_task(self, session, working_on=None):
        assert session == "key"
        self.asked.append(working_on)
        if self._tasks:
            return pb.GetTaskReply(task=task_to_proto(self._tasks.pop(0)))
        if working_on is not None:
            return pb.GetTaskReply(wait_s=0.5)
        return pb.GetTaskReply(finished=True)


class Reader:
    """Notes what is read, by whom, and when the reading of a task ends."""

    def __init__(self):
        self.told = []
        self.threads = set()

    def create_shards(self):
        return [SHARD]

    def read_records(self, task: ReadTask):
        self.threads.add(threading.current_thread())
        self.told.append(f"begin {task.start}")
        return self._records(task)

    def _records(self, task):
        try:
            for index in range(task.start, task.end):
                if index == task.start:
                    self.told.append(f"read {index}")
                yield index
        finally:
            self.told.append(f"end {task.start}")


class Framework:
    """Its batches are the records themselves."""

    def make_batch(self, model_def, records, mode):
        return tuple(records)


@pytest.fixture
def reader():
    return Reader()


@pytest.fixture
def parts(reader):
    def make(num_tasks):
        master = Master(num_tasks)
        stream = BatchStream(Framework(), OF_RECORDS, MINIBATCH, {TaskKind.TRAINING: reader})
        return master, Leases(master, stream)

    return make


def work(leases, task):
    """Take all minibatches as a worker does, and look ahead before each is reported."""
    taken = []
    with leases.open(task) as batches:
        for loaded in batches:
            taken += loaded.result()
            leases.read_ahead("key")
    return taken


def test_each_task_comes_once_and_in_order_and_is_read_after_the_one_before(parts, reader):
    master, leases = parts(3)
    taken = []
    while isinstance(task := leases.take("key"), Task):
        taken += work(leases, task)
    assert isinstance(task, Finished)
    assert taken == list(range(60))
    # The last asks ahead once, in vain, and then as one that has nothing in work.
    assert master.asked == [None, 0, 1, 2, None]
    assert reader.told == [f"{what} {start}" for start in (0, 20, 40) for what in _ORDER]
    assert threading.main_thread() not in reader.threads


_ORDER = ("begin", "read", "end")


def test_the_next_is_asked_for_when_one_minibatch_is_left(parts):
    master, leases = parts(2)
    with leases.open(leases.take("key")) as batches:
        for loaded in batches:
            leases.read_ahead("key")
            is_near = loaded.start >= NUM_RECORDS - 2 * MINIBATCH
            assert master.asked == ([None, 0] if is_near else [None]), loaded.start


def test_the_first_minibatch_of_the_next_is_made_before_its_turn(parts, reader):
    _, leases = parts(2)
    with leases.open(leases.take("key")) as batches:
        with contextlib.suppress(StopIteration):
            while True:
                next(batches).result()
                leases.read_ahead("key")
        # The reader has one thread: what was asked for last is done when this is.
        leases._stream._thread.submit(lambda: None).result()
        assert "read 20" in reader.told


def test_what_is_dropped_is_read_no_further_and_asked_for_anew(parts, reader):
    master, leases = parts(3)
    task = leases.take("key")
    leases.drop_next()
    assert work(leases, task) == list(range(20))
    assert leases.following.task_id == 1
    leases.drop_next()
    assert leases.following is None
    assert reader.told[-1] in {"end 20", "end 0"}, "closed, or never begun"
    assert leases.take("key").task_id == 2
    assert master.asked == [None, 0, None]


def test_a_wait_is_told(parts):
    master, leases = parts(0)
    master.get_task = lambda _: pb.GetTaskReply(wait_s=0.5)
    assert leases.take("key") == Wait(0.5)


def test_what_is_behind_a_chain_is_closed_by_the_thread_that_read_it():
    closed_by = []

    class Chaining(Reader):
        def read_records(self, task):
            return itertools.chain(self._records(task))

        def _records(self, task):
            try:
                yield from range(task.start, task.end + 1)
            finally:
                closed_by.append(threading.current_thread())

    stream = BatchStream(Framework(), OF_RECORDS, MINIBATCH, {TaskKind.TRAINING: Chaining()})
    batches = stream.open(Task(0, 0, TaskKind.TRAINING, 0, RecordRange(0, 0, 40), SHARD))
    assert next(batches).result() == (0, 1, 2, 3)
    batches.close()
    assert [thread.name.startswith("batches") for thread in closed_by] == [True]
