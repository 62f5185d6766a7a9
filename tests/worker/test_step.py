"""What a step gives is looked at before it leaves the worker: rows as well as parameters."""

import time
from concurrent.futures import Future

import numpy as np
import pytest

from elastic.frameworks.base import Batch, StepResult
from elastic.policy.tasks.records import RecordRange, Shard, Task, TaskKind
from elastic.rows.base import RowGradient
from elastic.worker.batches import LoadedBatch
from elastic.worker.step import NotFiniteError, Trainer, twice

TASK = Task(0, 0, TaskKind.TRAINING, 0, RecordRange(0, 0, 8), Shard("data", 0, 8))


class Filled:
    """A strategy whose model has its values."""

    version = 3

    def fill(self):
        pass


class Given:
    """A model that gives what it was given."""

    def __init__(self, result):
        self._result = result

    def gradients(self, batch, seed):
        return self._result


def computed(value, task=TASK):
    values = np.array([[1.0, 2.0], [3.0, value]], np.float32)
    rows = {"items": RowGradient(np.array([4, 9]), values)}
    result = StepResult({"w": np.ones(2, np.float32)}, {}, 0.5, rows=rows)
    batch = Future()
    batch.set_result(Batch(np.zeros(8), np.zeros(8), 8))
    trainer = Trainer(Filled(), Given(result), 1)
    loaded = LoadedBatch(task.records.start, task.records.end, batch)
    return trainer.compute(task, loaded, time.perf_counter())


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_go_nowhere(value):
    with pytest.raises(NotFiniteError, match="the gradient of rows of 'items' is not finite"):
        computed(value)


def test_a_record_that_was_doubled_is_not_said_to_be_at_fault():
    with pytest.raises(NotFiniteError) as refused:
        computed(np.nan, twice(TASK, 5))
    assert "record 5 of 'data'" in str(refused.value)
    assert "it was computed 2 times in one minibatch" in str(refused.value)
    assert "look at the records" not in str(refused.value)


def test_rows_travel_with_the_step():
    assert computed(4.0).result.rows["items"].ids.tolist() == [4, 9]
