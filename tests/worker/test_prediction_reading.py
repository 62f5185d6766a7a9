"""A prediction that cannot read: each record is predicted once, or the one that fails is told."""

import numpy as np
import pytest

from elastic.data.base import ReadTask
from elastic.data.readers import CustomReader
from elastic.errors import DataError
from elastic.policy.tasks.records import RecordRange, Shard, Task, TaskKind
from elastic.spec.model_def import ModelDef
from elastic.worker.batches import BatchStream
from elastic.worker.step import BadRecordError, Predicted, Predictor

NUM_RECORDS = 64
SHARD = Shard("s", 0, NUM_RECORDS)
TASK = Task(1, 0, TaskKind.PREDICTION, 0, RecordRange(0, 0, NUM_RECORDS), SHARD)
OF_RECORDS = ModelDef("net", "torch", print, print, print, dataset_fn=print)


class FailingReader:
    """A user's reader that fails at one record, so often."""

    def __init__(self, bad, times):
        self._bad = bad
        self._left = times

    def create_shards(self):
        return [SHARD]

    def read_records(self, task: ReadTask):
        for index in range(task.start, task.end):
            if index == self._bad and self._left:
                self._left -= 1
                raise OSError("disk")
            yield index


class ShortReader(FailingReader):
    """Ends early, and says nothing."""

    def read_records(self, task: ReadTask):
        yield from range(task.start, min(task.end, self._bad))


class LongReader(FailingReader):
    """Goes on beyond the end of a task."""

    def read_records(self, task: ReadTask):
        yield from range(task.start, task.end + 1)


class Batch(tuple):
    @property
    def num_examples(self):
        return len(self)


class Framework:
    """Its batches are the records themselves."""

    def make_batch(self, model_def, records, mode):
        return Batch(records)


class Trainer:
    """Predicts the record."""

    def predict(self, batch):
        return np.array(batch)


class Outputs:
    """Keeps what it is given of records and their predictions."""

    def __init__(self):
        self.taken = []

    def begin(self):
        self.taken.clear()

    def take(self, predictions):
        assert predictions.indices.tolist() == predictions.outputs.tolist()
        self.taken += predictions.outputs.tolist()


def predict(reader, minibatch_size):
    stream = BatchStream(Framework(), OF_RECORDS, minibatch_size, {TaskKind.PREDICTION: reader})
    outputs = Outputs()
    steps = list(Predictor(stream, Trainer(), outputs).run(TASK))
    return outputs.taken, [(step.start, step.end) for step in steps if isinstance(step, Predicted)]


BAD = [0, 1, 7, 8, 9, 15, 16, 17, 62, 63]
"""Records at the beginnings and ends of minibatches, which a reader that looks ahead mixes up."""


@pytest.mark.parametrize("minibatch_size", [1, 8, 63, 64])
@pytest.mark.parametrize("bad", BAD)
def test_the_record_that_always_fails_is_told(bad, minibatch_size):
    with pytest.raises(BadRecordError) as found:
        predict(CustomReader(FailingReader(bad, 10**6)), minibatch_size)
    assert found.value.index == bad


@pytest.mark.parametrize("minibatch_size", [1, 8, 63, 64])
@pytest.mark.parametrize("bad", BAD)
def test_what_fails_once_costs_no_record(bad, minibatch_size):
    taken, steps = predict(CustomReader(FailingReader(bad, 1)), minibatch_size)
    assert taken == list(range(NUM_RECORDS))
    assert [steps[0][0], *(end for _, end in steps)] == [*(start for start, _ in steps), 64]


@pytest.mark.parametrize("minibatch_size", [1, 8, 64])
def test_records_that_do_not_come_are_not_taken_for_dropped_ones(minibatch_size):
    with pytest.raises(BadRecordError, match="were asked for, and 0 came") as found:
        predict(ShortReader(40, 0), minibatch_size)
    assert (found.value.index, type(found.value.error)) == (40, DataError)


def test_a_reader_that_gives_more_is_told():
    with pytest.raises(BadRecordError, match="record 0 of 's' were asked for, and more came"):
        predict(LongReader(0, 0), 64)
