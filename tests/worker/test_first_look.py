"""What a worker sees in its first minibatches, of whatever tensors they are."""

from concurrent.futures import Future

import numpy as np
import pytest
import torch

from elastic.frameworks.base import Batch
from elastic.policy.minibatches import MIN_ALIKE, Oddity
from elastic.policy.tasks.records import RecordRange, Shard, Task, TaskKind
from elastic.worker.batches import FirstLook, LoadedBatch

TASK = Task(0, 0, TaskKind.TRAINING, 0, RecordRange(0, 0, 1000), Shard("data", 0, 1000))
SIZE = 8


def look(batches):
    """Look at one batch after the other; gives the first oddity, and at which."""
    first = FirstLook()
    for number, (features, labels) in enumerate(batches):
        future = Future()
        future.set_result(Batch(features, labels, SIZE))
        oddity = first.at(TASK, LoadedBatch(number * SIZE, (number + 1) * SIZE, future))
        if oddity is not None:
            return oddity, number + 1
    return None


def of_one_class(make):
    """Eight minibatches of one class, then as many of another."""
    for number in range(16):
        yield np.full((SIZE, 3), number), make(np.full(SIZE, number // 8))


@pytest.mark.parametrize("make", [
    pytest.param(lambda labels: labels, id="numpy"),
    pytest.param(torch.from_numpy, id="torch"),
    pytest.param(lambda labels: torch.from_numpy(labels)[:, None].float(), id="column-of-floats"),
    pytest.param(lambda labels: torch.eye(2)[torch.from_numpy(labels)], id="one-hot"),
])  # fmt: skip
def test_labels_of_one_class_each(make):
    assert look(of_one_class(make)) == (Oddity.ONE_CLASS, 10)


@pytest.mark.parametrize("labels", [
    pytest.param(None, id="none"),
    pytest.param([torch.zeros(SIZE), torch.zeros(SIZE)], id="several"),
    pytest.param(np.array(["a"] * SIZE, object), id="texts"),
    pytest.param(torch.zeros(SIZE, requires_grad=True), id="unreadable"),
    pytest.param(torch.zeros(SIZE, dtype=torch.bfloat16), id="not-in-numpy"),
])  # fmt: skip
def test_labels_that_are_no_classes(labels):
    assert look((np.full((SIZE, 3), number), labels) for number in range(20)) is None


def test_minibatches_that_are_all_alike():
    batch = {"x": torch.ones(SIZE, 3), "y": [np.arange(SIZE)]}, torch.arange(SIZE)
    assert look([batch] * 10) == (Oddity.ALIKE, MIN_ALIKE)


def test_minibatches_that_differ_in_their_labels_alone():
    labels = (torch.randperm(SIZE) + number for number in range(10))
    assert look((torch.ones(SIZE, 3), each) for each in labels) is None


def test_nothing_more_is_looked_at_once_all_is_fine():
    first = FirstLook()
    for number in range(2):
        future = Future()
        future.set_result(Batch(np.full((SIZE, 3), number), np.arange(SIZE), SIZE))
        first.at(TASK, LoadedBatch(number * SIZE, (number + 1) * SIZE, future))
    unready = LoadedBatch(2 * SIZE, 3 * SIZE, None)
    assert first.at(TASK, unready) is None
