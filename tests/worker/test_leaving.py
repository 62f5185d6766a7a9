"""A worker that is asked to leave ends its minibatch, and gives the rest of its records back."""

import itertools
import os
import signal
import threading
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from support.gate import Gate
from support.local_job import LocalJob
from support.thread_job import held_spec, write_records

from elastic.policy.tasks.records import RecordRange, Shard, Task, TaskKind
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.client import Session
from elastic.rpc.wire import task_to_proto
from elastic.worker.batches import Minibatches
from elastic.worker.loop import Parts, Worker
from elastic.worker.strategy import Outcome

NUM_RECORDS = 80
MINIBATCH = 8


def test_sigterm_ends_the_minibatch_commits_it_and_no_other(tmp_path):
    gate = Gate(tmp_path / "gate")
    data = write_records(tmp_path / "train.npz", num_records=NUM_RECORDS)
    spec = held_spec(
        data, gate, NUM_RECORDS, num_workers="1", records_per_task=80, minibatch_size=MINIBATCH
    )
    with LocalJob(spec, tmp_path) as job, gate:
        gate.allow(0, 2, launch=1)
        # It is in the middle of its third minibatch.
        status = job.wait_until(lambda s: s.workers and gate.waits_for(0, launch=1) == 3)
        [worker] = status.workers
        os.kill(worker.pid, signal.SIGTERM)
        gate.allow(0, 100, launch=1)
        # Its successor stands still: all that is done was done by the first.
        status = job.wait_until(lambda s: s.workers[0].launch == 2)
        status = job.wait_until(lambda s: gate.waits_for(0, launch=2) == 1)
        assert status.progress.records_done == 3 * MINIBATCH
        gate.open()
        status = job.succeed()
        assert job.parameters()["counts"].tolist() == [1.0] * NUM_RECORDS
    assert status.worker_failures == 0


class Master:
    """The side of the master that a worker talks to, with one task for it."""

    def __init__(self, kind):
        shard = Shard("s", 0, 2 * NUM_RECORDS)
        self.task = Task(7, 3, kind, 0, RecordRange(0, 0, NUM_RECORDS), shard)
        self._following = Task(8, 0, kind, 0, RecordRange(0, NUM_RECORDS, 2 * NUM_RECORDS), shard)
        self.num_given = 0
        self.reports = []

    def register(self, _):
        return Session("key", 60.0, self.task, shares_memory=False)

    def get_task(self, _, working_on=None):
        self.num_given += 1
        following = {None: self.task, 7: self._following}[working_on]
        return pb.GetTaskReply(task=task_to_proto(following))

    def report_result(self, request):
        name = pb.ReportTaskResultRequest.Outcome.Name(request.outcome)
        self.reports.append((name, request.task_id, request.attempt, request.start, request.end))
        return True


class Trainer:
    """Is asked to leave in the middle of a minibatch, as a signal would have it."""

    def __init__(self, stopping, leave_in):
        self._stopping = stopping
        self._leave_in = leave_in

    def compute(self, task, loaded, began_s):
        if loaded.start == self._leave_in:
            self._stopping.set()
        return SimpleNamespace(start=loaded.start, end=loaded.end)

    def metrics(self, task, batch):
        if batch.start == self._leave_in:
            self._stopping.set()
        return []


class Strategy:
    """Takes every gradient."""

    def __init__(self):
        self.contributed = []

    def begin(self, _):
        pass

    def doubt_version(self):
        pass

    def fill_version(self, _):
        pass

    def contribute(self, contribution):
        self.contributed.append((contribution.start, contribution.end))
        return Outcome(is_accepted=True, version=0)


class Stream:
    def open(self, task):
        return Minibatches(task.records, MINIBATCH, Maker(task.records.start))


class Maker:
    """Makes batches that know where they begin."""

    def __init__(self, start):
        self._starts = itertools.count(start, MINIBATCH)

    def submit(self, num_examples):
        start = next(self._starts)
        return _done(
            SimpleNamespace(num_examples=num_examples, start=start, features=None, labels=None)
        )

    def end(self):
        return _done(None)


def _done(result):
    future = Future()
    future.set_result(result)
    return future


@pytest.mark.parametrize(
    ("leave_in", "given_back", "num_given"),
    [
        pytest.param(16, [("OUTCOME_RELEASED", 7, 3, 24, 80)], 1, id="in-the-middle"),
        # Nothing follows for who leaves.
        pytest.param(64, [("OUTCOME_RELEASED", 7, 3, 72, 80)], 1, id="before-the-last-minibatch"),
        pytest.param(72, [("OUTCOME_RELEASED", 8, 0, 80, 160)], 2, id="in-the-last-minibatch"),
    ],
)
def test_the_rest_of_a_training_task_is_given_back(leave_in, given_back, num_given):
    stopping, master = threading.Event(), Master(TaskKind.TRAINING)
    strategy, trainer = Strategy(), Trainer(stopping, leave_in)
    Worker(master, 0, 1, lambda _: Parts(strategy, trainer, Stream()), stopping).run()
    assert strategy.contributed[-1] == (leave_in, leave_in + MINIBATCH)
    assert (master.reports, master.num_given) == (given_back, num_given)


def test_the_rest_of_an_evaluation_task_is_given_back():
    stopping, master = threading.Event(), Master(TaskKind.EVALUATION)
    parts = Parts(Strategy(), Trainer(stopping, 8), Stream())
    Worker(master, 0, 1, lambda _: parts, stopping).run()
    assert master.reports == [
        ("OUTCOME_EVALUATED", 7, 3, 0, 8),
        ("OUTCOME_EVALUATED", 7, 3, 8, 16),
        ("OUTCOME_RELEASED", 7, 3, 16, 80),
    ]
