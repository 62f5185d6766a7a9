"""The updates of a job are foretold as the ledger and its workers then make them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.policy.ledger import Ledger, LedgerConfig, NoTask
from elastic.policy.records import Shard
from elastic.policy.steps import minibatches_of_epoch, updates_of_job


def counted(shards, records_per_task, minibatch_size):
    """Minibatches of one epoch, by working through it."""
    ledger = Ledger(shards, LedgerConfig(records_per_task, num_epochs=1))
    num_minibatches = 0
    while not isinstance(task := ledger.lease("worker-0"), NoTask):
        records = task.records
        for start in range(records.start, records.end, minibatch_size):
            end = min(start + minibatch_size, records.end)
            ledger.commit([ledger.stage(task.task_id, task.attempt, start, end)])
            num_minibatches += 1
    assert ledger.is_finished
    return num_minibatches


@given(
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=4).filter(any),
    records_per_task=st.integers(1, 25),
    minibatch_size=st.integers(1, 12),
)
def test_the_minibatches_of_an_epoch_with_all_their_tails(sizes, records_per_task, minibatch_size):
    shards = [Shard(str(number), 3, 3 + size) for number, size in enumerate(sizes)]
    told = minibatches_of_epoch(shards, records_per_task, minibatch_size)
    assert told == counted(shards, records_per_task, minibatch_size)


@pytest.mark.parametrize(
    ("num_epochs", "gradients_per_update", "max_steps", "expected"),
    [
        pytest.param(3, 1, 0, 30, id="each-gradient"),
        pytest.param(3, 4, 0, 9, id="the-last-group-of-each-epoch-is-a-partial-one"),
        pytest.param(3, 4, 5, 5, id="max-steps"),
        pytest.param(3, 4, 50, 9, id="the-epochs-end-before-max-steps"),
    ],
)
def test_the_updates_of_a_job(num_epochs, gradients_per_update, max_steps, expected):
    assert updates_of_job(10, num_epochs, gradients_per_update, max_steps) == expected
