"""The updates of a job are foretold as the ledger and its workers then make them."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.orders import make_ledger

from elastic.policy.tasks.epochs import minibatches_of_epoch, updates_of_job
from elastic.policy.tasks.ledger import NoTask


def counted(num_records, records_per_task, minibatch_size, drop_last):
    """Minibatches of one epoch, by working through it."""
    ledger = make_ledger(num_records, records_per_task, minibatch_size=minibatch_size,
                         drop_last=drop_last)  # fmt: skip
    num_minibatches = 0
    while not isinstance(task := ledger.lease("worker-0"), NoTask):
        records = task.records
        for start in range(records.start, records.end, minibatch_size):
            end = min(start + minibatch_size, records.end)
            ledger.commit([ledger.stage(task.task_id, task.attempt, start, end)])
            num_minibatches += 1
    assert ledger.is_finished
    return num_minibatches


@settings(deadline=None)
@given(
    num_records=st.integers(1, 200),
    records_per_task=st.integers(1, 25),
    minibatch_size=st.integers(1, 12),
    drop_last=st.booleans(),
)
def test_the_minibatches_of_an_epoch_with_its_tail(
    num_records, records_per_task, minibatch_size, drop_last
):
    assume(not drop_last or num_records >= minibatch_size)
    told = minibatches_of_epoch(num_records, minibatch_size, drop_last)
    assert told == counted(num_records, records_per_task, minibatch_size, drop_last)


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
