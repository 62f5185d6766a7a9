"""How an epoch is cut so that every worker has work, to its end."""

import heapq
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from elastic.policy.tasks.epochs import (
    LEAST_RECORDS,
    MAX_RECORDS,
    cut_tasks,
    default_records_per_task,
    idle_workers,
    whole_minibatches,
)


@pytest.mark.parametrize(
    ("num_records", "minibatch_size", "num_workers", "expected"),
    [
        pytest.param(1797, 32, 2, 96, id="small-data-is-more-than-one-task"),
        pytest.param(10**6, 32, 4, 992, id="large-data"),
        pytest.param(100, 32, 8, 32, id="a-minibatch-at-least"),
        pytest.param(10**6, 2048, 1, 8 * 2048, id="large-minibatches"),
        pytest.param(10**5, 2048, 2, 3 * 2048, id="large-minibatches-and-eight-tasks-each"),
        pytest.param(10**6, 10**5, 1, 10**5, id="a-minibatch-larger-than-a-task-may-be"),
        pytest.param(10, 32, 1, 32, id="less-than-a-minibatch"),
    ],
)
def test_default_size(num_records, minibatch_size, num_workers, expected):
    assert default_records_per_task(num_records, minibatch_size, num_workers) == expected


def test_tasks_of_chunks_have_a_few_windows():
    assert default_records_per_task(10**7, 10, 2, window=5000) == 20_000
    assert default_records_per_task(10**9, 10, 2, window=10**6) == MAX_RECORDS // 10 * 10


def test_a_number_of_the_users_is_made_whole_minibatches():
    assert [whole_minibatches(n, 32) for n in (1, 32, 63, 64, 100)] == [32, 32, 32, 64, 96]
    assert LEAST_RECORDS < MAX_RECORDS


@given(st.integers(1, 5000), st.integers(1, 64), st.integers(1, 9))
def test_every_task_begins_at_a_minibatch(num_records, minibatch_size, num_workers):
    size = default_records_per_task(num_records, minibatch_size, num_workers)
    starts = cut_tasks(num_records, size, minibatch_size, num_workers)
    assert starts[0] == 0
    assert all(start % minibatch_size == 0 for start in starts)
    assert all(0 < after - before <= size for before, after in pairwise([*starts, num_records]))


@pytest.mark.parametrize("num_workers", [2, 3, 8])
@pytest.mark.parametrize("speeds", [(1.0,), (1.0, 0.7), (1.0, 0.9, 1.3)], ids=len)
def test_no_worker_waits_for_more_than_about_a_minibatch(num_workers, speeds):
    """Workers that take tasks as they end: how long the first to find none waits for the last."""
    starts = cut_tasks(10_000, default_records_per_task(10_000, 10, num_workers), 10, num_workers)
    speed = [speeds[worker % len(speeds)] for worker in range(num_workers)]
    ends = [(0.0, worker) for worker in range(num_workers)]
    for start, end in pairwise([*starts, 10_000]):
        at, worker = heapq.heappop(ends)
        heapq.heappush(ends, (at + (end - start) / speed[worker], worker))
    idle = max(at for at, _ in ends) - min(at for at, _ in ends)
    assert idle <= 1.5 * 10 / min(speed)


def test_all_workers_have_work_or_it_is_said():
    for num_workers in (1, 2, 8, 40):
        size = default_records_per_task(1797, 32, num_workers)
        assert len(cut_tasks(1797, size, 32, num_workers)) >= num_workers
    assert idle_workers(num_tasks=8, num_minibatches=8, num_workers=8) is None
    assert idle_workers(num_tasks=3, num_minibatches=3, num_workers=8) == (
        "an epoch has 3 minibatches, so 5 of 8 workers can have no work: lower --num_workers, or "
        "--minibatch_size"
    )
    assert idle_workers(num_tasks=1, num_minibatches=57, num_workers=2) == (
        "an epoch has 1 task, so 1 of 2 workers can have no work: leave --records_per_task out, or "
        "lower it"
    )
