"""Minibatches are made ahead, but only when the worker has time for it."""

from concurrent.futures import Future

import pytest

from elastic.policy.tasks.records import RecordRange
from elastic.worker.batches import AHEAD, Minibatches

SIZE = 8


class Maker:
    """Makes a batch when the test says so."""

    def __init__(self):
        self.futures = []
        self.num_ended = 0

    def submit(self, count):
        future = Future()
        self.futures.append((count, future))
        return future

    def end(self):
        self.num_ended += 1
        future = Future()
        future.set_result(None)
        return future


def minibatches(num_records, start=16):
    maker = Maker()
    return maker, Minibatches(RecordRange(0, start, start + num_records), SIZE, maker)


def spans(batches):
    return [(loaded.start, loaded.end) for loaded in batches]


@pytest.mark.parametrize("num_records", [1, 7, 8, 9, 24, 25, 80])
def test_all_records_come_once_and_in_order(num_records):
    maker, batches = minibatches(num_records)
    got = spans(batches)
    assert got[0][0] == 16
    assert got[-1][1] == 16 + num_records
    assert [end for _, end in got[:-1]] == [start for start, _ in got[1:]]
    assert [end - start for start, end in got] == [count for count, _ in maker.futures]
    assert all(end - start == SIZE for start, end in got[:-1])


def test_a_task_without_records_has_no_minibatch():
    maker, batches = minibatches(0)
    assert (spans(batches), maker.futures) == ([], [])


def test_the_first_ones_are_begun_at_once():
    maker, _ = minibatches(80)
    assert len(maker.futures) == AHEAD


def test_a_step_is_not_disturbed_by_further_ones():
    maker, batches = minibatches(80)
    next(batches)
    assert len(maker.futures) == AHEAD
    batches.read_ahead()
    assert len(maker.futures) == AHEAD + 1
    batches.read_ahead()
    assert len(maker.futures) == AHEAD + 1


def test_the_end_is_not_read_beyond():
    maker, batches = minibatches(2 * SIZE)
    next(batches)
    batches.read_ahead()
    assert len(maker.futures) == 2
    assert spans(batches) == [(24, 32)]


def test_reading_ends_as_soon_as_the_last_one_is_given_to_be_made():
    maker, batches = minibatches((AHEAD + 1) * SIZE)
    assert (maker.num_ended, batches.is_near_end) == (0, False)
    next(batches)
    batches.read_ahead()
    assert (maker.num_ended, batches.is_near_end) == (1, False), "all are ahead"
    next(batches)
    next(batches)
    assert batches.is_near_end, "one is left"
    batches.read_ahead()
    batches.close()
    assert maker.num_ended == 1


def test_a_task_of_one_minibatch_is_near_its_end_from_the_first():
    assert minibatches(SIZE)[1].is_near_end


def test_closing_cancels_what_is_not_begun():
    maker, batches = minibatches(80)
    (_, taken), (_, running), (_, waiting) = maker.futures
    next(batches)
    running.set_running_or_notify_cancel()
    batches.close()
    assert maker.num_ended == 1
    assert (taken.cancelled(), running.cancelled(), waiting.cancelled()) == (False, False, True)
