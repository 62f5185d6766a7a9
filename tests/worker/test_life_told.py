"""What a worker says of its life: a few lines for people, and none for each task."""

import logging
import threading
from types import SimpleNamespace

import pytest

from elastic.policy.tasks.records import RecordRange, Shard, Task, TaskKind
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.client import Session
from elastic.rpc.wire import task_to_proto
from elastic.worker.loop import Parts, Worker

NUM_TASKS = 3


class Master:
    """The side of the master that a worker talks to; may ask it to leave with the last task."""

    def __init__(self, leave=None):
        self._leave = leave
        self._tasks = [
            Task(n, 1, TaskKind.TRAINING, 0, RecordRange(0, 8 * n, 8 * n + 8), Shard("s", 0, 24))
            for n in range(NUM_TASKS)
        ]

    def register(self, _):
        return Session("key", 60.0, self._tasks[0], shares_memory=False)

    def get_task(self, _, working_on=None):
        if not self._tasks:
            return pb.GetTaskReply(finished=True)
        task = self._tasks.pop(0)
        if not self._tasks and self._leave is not None:
            self._leave.set()
        return pb.GetTaskReply(task=task_to_proto(task))


class NoBatches:
    """The minibatches of a task without any."""

    is_near_end = True

    def __iter__(self):
        return iter(())

    def close(self):
        pass


class Stream:
    """Tasks that hold nothing to do."""

    def open(self, _):
        return NoBatches()


def _told(caplog, is_asked, level):
    stopping = threading.Event()
    master = Master(leave=stopping if is_asked else None)
    with caplog.at_level(level, "elastic.worker.loop"):
        strategy = SimpleNamespace(begin=lambda _: None, doubt_version=lambda: None)
        Worker(master, 4, 2, lambda _: Parts(strategy, None, Stream()), stopping).run()
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(
    ("is_asked", "last"),
    [
        pytest.param(False, "finished: the job has no more tasks", id="to-the-end"),
        pytest.param(True, "leaving, as asked", id="asked-to-leave"),
    ],
)
def test_its_life_is_told_in_a_few_lines(is_asked, last, caplog):
    assert _told(caplog, is_asked, logging.INFO) == [
        "registered as worker 4, launch 2",
        "the model is built: asking for tasks",
        "first task 0: training, records [0, 8) of 's'",
        last,
    ]


def test_each_task_is_told_to_who_looks_for_an_error(caplog):
    told = _told(caplog, is_asked=False, level=logging.DEBUG)
    assert "task 2: training, records [16, 24) of 's'" in told
    assert len(told) == 4 + NUM_TASKS - 1


def test_nobody_who_wants_warnings_alone_is_told(caplog):
    assert _told(caplog, is_asked=False, level=logging.WARNING) == []
