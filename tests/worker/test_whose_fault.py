"""No good record is blamed, also where the model bears no minibatch of one.

A real worker and real books, which count what they are given; the model does nothing but fail.
"""

import threading
from collections import Counter

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from support.orders import made_ledger

from elastic.frameworks.base import Batch, MetricState, StepResult
from elastic.policy.minibatches import SizeFault
from elastic.policy.tasks.ledger import Ledger, LedgerConfig, NoTask, PoisonedRecord
from elastic.policy.tasks.records import RecordRange, Shard, Task, TaskKind
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.client import Session
from elastic.rpc.wire import task_to_proto, tensors_from_proto
from elastic.spec.model_def import ModelDef
from elastic.worker.batches import BatchStream
from elastic.worker.loop import Parts, Worker
from elastic.worker.step import Trainer
from elastic.worker.strategy import Outcome

OUTCOMES = pb.ReportTaskResultRequest
OF_RECORDS = ModelDef("net", "torch", print, print, print, dataset_fn=print)
SAMPLE = Task(0, 0, TaskKind.TRAINING, 0, RecordRange(0, 0, 1), Shard("s", 0, 1))


class Reader:
    """Records are their own indices."""

    def read_picks(self, picks):
        yield from picks.indices.tolist()

    def read_records(self, task):
        yield from range(task.start, task.end)


class Framework:
    """Its batches are the records themselves."""

    def make_batch(self, model_def, records, mode):
        return Batch(tuple(records), None, len(records))


class Model:
    """Fails on bad records, on too many of them, and on a single one."""

    def __init__(self, bad, limit=1000, bears_one=False):
        self._bad, self._limit, self._bears_one = bad, limit, bears_one

    def gradients(self, batch, seed):
        self._look_at(batch.features)
        return StepResult({"w": np.ones(1, np.float32)}, {}, 1.0)

    def metrics(self, batch):
        self._look_at(batch.features)
        sums = np.array([float(sum(batch.features))]), np.array([len(batch.features)])
        return [MetricState("mean_index", sums)]

    def _look_at(self, records):
        if self._bad.intersection(records):
            raise ValueError("this record cannot be read")
        if len(records) > self._limit:
            raise MemoryError("no room")
        if len(records) == 1 and not self._bears_one:
            raise ValueError("expected more than 1 value")


class Master:
    """The side of the master that a worker talks to, which keeps the books."""

    def __init__(self, ledger):
        self.ledger = ledger
        self.counts = Counter()
        self.sums = Counter()
        self.ended_by = None

    def register(self, _):
        return Session("key", 3600.0, SAMPLE, shares_memory=False)

    def get_task(self, _, working_on=None):
        self.ledger.lose_worker("w", but=working_on)
        task = self.ledger.lease("w", is_ahead=working_on is not None)
        if self.ended_by is not None or task is NoTask.FINISHED:
            return pb.GetTaskReply(finished=True)
        if task is NoTask.WAIT:
            return pb.GetTaskReply(wait_s=0.0)
        return pb.GetTaskReply(task=task_to_proto(task))

    def report_result(self, report):
        lease = report.task_id, report.attempt, report.start, report.end
        if report.outcome == OUTCOMES.OUTCOME_EVALUATED:
            [metric] = report.metrics
            sums = tensors_from_proto(metric.values)
            self.sums.update({index: float(value[0]) for index, value in enumerate(sums)})
            self.count(*lease)
        elif report.outcome == OUTCOMES.OUTCOME_FAILED:
            self._failed(self.ledger.fail(*lease, report.runs_at))
        else:
            assert report.outcome == OUTCOMES.OUTCOME_SEARCHING
        return True

    def _failed(self, verdict):
        if isinstance(verdict, (SizeFault, PoisonedRecord)):
            self.ended_by = verdict
        else:
            self.ledger.end_epoch_if_complete()

    def count(self, *lease):
        staged, epoch = self.ledger.stage(*lease), self.ledger.epoch
        for _, start, end in self.ledger.named(staged.records, epoch):
            self.counts.update(range(start, end))
        self.ledger.commit([staged])


class Strategy:
    """Has no parameters."""

    version = 0

    def __init__(self, master):
        self._master = master

    def begin(self, session):
        pass

    def doubt_version(self):
        pass

    def fill(self):
        pass

    def fill_version(self, version):
        pass

    def contribute(self, given):
        self._master.count(given.task.task_id, given.task.attempt, given.start, given.end)
        return Outcome(is_accepted=True, version=0)


def worked_through(ledger, minibatch_size, model):
    """Have a worker do all there is, or what ends the job; gives the master."""
    master = Master(ledger)
    strategy = Strategy(master)
    stream = BatchStream(Framework(), OF_RECORDS, minibatch_size, dict.fromkeys(TaskKind, Reader()))
    parts = Parts(strategy, Trainer(strategy, model, 1), stream)
    Worker(master, 0, 1, lambda _: parts, threading.Event()).run()
    return master


def config(**settings):
    return LedgerConfig(
        **{"records_per_task": 8, "num_epochs": 1, "skip_bad_records": 1000, **settings}
    )


@given(
    minibatch_size=st.integers(2, 9),
    num_minibatches=st.integers(1, 6),
    rest=st.integers(0, 8),
    records_per_task=st.integers(1, 20),
    bears_one=st.booleans(),
    data=st.data(),
)
def test_only_bad_records_are_skipped_and_all_others_count_once(
    minibatch_size, num_minibatches, rest, records_per_task, bears_one, data
):
    """Any of them, be it all of a minibatch but one."""
    num_records = minibatch_size * num_minibatches + rest % minibatch_size
    bad = data.draw(st.sets(st.integers(0, num_records - 1)), label="bad")
    ledger = made_ledger(num_records, config(records_per_task=records_per_task), minibatch_size)
    master = worked_through(ledger, minibatch_size, Model(bad, bears_one=bears_one))
    if master.ended_by is not None:
        # An epoch that ends with a minibatch of one, of which the model makes nothing.
        assert master.ended_by == SizeFault(1, 2, goes_on=False)
        assert num_records % minibatch_size == 1
        assert not bears_one
        return
    assert {index for _, index in ledger.skipped_records} == bad
    assert len(ledger.skipped_records) == len(bad)
    assert master.counts == Counter(set(range(num_records)) - bad)
    assert ledger.is_finished


@given(st.integers(1, 9), st.integers(1, 30), st.integers(1, 20), st.data())
def test_an_evaluation_has_each_good_record_once(
    minibatch_size, num_records, records_per_task, data
):
    bad = data.draw(st.sets(st.integers(0, num_records - 1)), label="bad")
    settings = config(records_per_task=records_per_task, kind=TaskKind.EVALUATION)
    ledger = Ledger([Shard("data", 0, num_records)], settings)
    master = worked_through(ledger, minibatch_size, Model(bad))
    good = set(range(num_records)) - bad
    assert {index for _, index in ledger.skipped_records} == bad
    assert master.counts == Counter(good)
    assert master.sums[0] == sum(good)
    assert master.sums[1] == len(good)


@pytest.mark.parametrize(("num_records", "minibatch_size"), [(17, 8), (5, 1), (1, 4)])
@pytest.mark.parametrize("skip", [0, 1000])
def test_where_the_job_makes_minibatches_of_one_their_size_is_to_blame(
    num_records, minibatch_size, skip
):
    ledger = made_ledger(num_records, config(skip_bad_records=skip), minibatch_size)
    master = worked_through(ledger, minibatch_size, Model(set()))
    assert master.ended_by == SizeFault(fails_at=1, runs_at=2, goes_on=False)
    assert (ledger.skipped_records, ledger.audits) == ([], [])


def test_a_bad_record_that_the_job_itself_has_by_itself_is_blamed():
    ledger = made_ledger(17, config(), 8)
    [last] = ledger.named(RecordRange(0, 16, 17), 0)
    master = worked_through(ledger, 8, Model({last[1]}))
    assert master.ended_by is None
    assert [index for _, index in ledger.skipped_records] == [last[1]]


def test_what_a_smaller_minibatch_leaves_of_a_task_counts():
    """Of ten by nine, one is left in each task; the model bears neither ten nor one."""
    ledger = made_ledger(40, config(records_per_task=10, may_shrink=True), 10)
    ledger.shrink_to(9)
    master = worked_through(ledger, 10, Model(set(), limit=9))
    assert master.counts == Counter(range(40))
