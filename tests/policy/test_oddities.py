"""When the first minibatches are worth a warning, and when the looking ends."""

import random

import pytest

from elastic.policy.minibatches import (
    MAX_LOOKED_AT,
    MIN_ALIKE,
    FirstMinibatches,
    Looked,
    Oddity,
)


def look(labels, size, digests=()):
    """Look at data with these labels in this order; gives what is odd, and after how many."""
    first, digests = FirstMinibatches(), iter(digests or range(len(labels)))
    for number, start in enumerate(range(0, len(labels), size), 1):
        part = labels[start : start + size]
        label = part[0] if len(set(part)) == 1 else None
        oddity = first.add(Looked(0, start, len(part), label, next(digests)))
        if oddity is not None or first.is_done:
            return oddity, number
    return None, number


def sorted_labels(num_classes, size):
    return [index // size for index in range(num_classes * size)]


@pytest.mark.parametrize(("num_classes", "size", "minibatch"), [
    pytest.param(10, 180, 32, id="digits"),
    pytest.param(10, 6000, 64, id="ten-large-classes"),
    pytest.param(2, 50, 8, id="two-classes"),
    pytest.param(100, 4, 4, id="many-small-classes"),
])  # fmt: skip
def test_sorted_classes_are_told(num_classes, size, minibatch):
    oddity, number = look(sorted_labels(num_classes, size), minibatch)
    assert oddity is Oddity.ONE_CLASS
    assert number <= size // minibatch + 8, "soon after the second class has come"


@pytest.mark.parametrize(("num_classes", "minibatch"), [(2, 2), (2, 8), (10, 2), (10, 32), (2, 1)])
@pytest.mark.parametrize("seed", range(5))
def test_shuffled_classes_are_not(num_classes, minibatch, seed):
    labels = random.Random(seed).choices(range(num_classes), k=4000)
    assert look(labels, minibatch)[0] is None


def test_looking_ends_with_the_second_minibatch_of_shuffled_classes():
    labels = random.Random(0).choices(range(10), k=4000)
    assert look(labels, 32) == (None, 2)


@pytest.mark.parametrize("seed", range(5))
def test_rare_class_is_not_taken_for_sorted_data(seed):
    labels = random.Random(seed).choices([0, 1], weights=[999, 1], k=40_000)
    assert look(labels, 32)[0] is None


def test_data_of_one_class_is_left_alone():
    oddity, number = look([0] * 100_000, 8)
    assert (oddity, number) == (None, MAX_LOOKED_AT)


def test_same_minibatch_again_and_again_is_told():
    labels = random.Random(0).choices(range(10), k=4000)
    assert look(labels, 32, [7] * 100) == (Oddity.ALIKE, MIN_ALIKE)
    assert look(labels, 32, [7, 7, 7, *range(200)])[0] is None


def test_epochs_of_few_minibatches_are_not_alike():
    first = FirstMinibatches()
    for epoch in range(5):
        assert [first.add(Looked(epoch, part, 8, "one", 7)) for part in (0, 8)] == [None] * 2
        assert first.is_done is (epoch > 0), "all there is has been seen"


def test_minibatch_computed_again_tells_nothing_new():
    first = FirstMinibatches()
    assert [first.add(Looked(0, 0, 8, "one label", 7)) for _ in range(10)] == [None] * 10
    assert not first.is_done


def test_what_cannot_be_looked_at_is_not_looked_at_again():
    first = FirstMinibatches()
    first.add(Looked(0, 0, 8, None, None))
    assert first.is_done
