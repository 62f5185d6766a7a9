"""When training ends before its last epoch, and what is then left in the books."""

import pytest

from elastic.policy.tasks.epochs import Ending, ending_at
from elastic.policy.tasks.ledger import Audit, Ledger, LedgerConfig, NoTask, Refusal
from elastic.policy.tasks.records import Shard


@pytest.mark.parametrize(
    ("max_steps", "version", "ends"),
    [
        pytest.param(0, 10**6, False, id="no-bound"),
        pytest.param(5, 4, False, id="before"),
        pytest.param(5, 5, True, id="the-last-one"),
        pytest.param(5, 6, True, id="resumed-beyond"),
    ],
)
def test_training_ends_after_max_steps(max_steps, version, ends):
    message = f"training ended after {version} updates: max_steps={max_steps}"
    assert ending_at(max_steps, version) == (Ending("MaxSteps", message) if ends else None)


def _ledger(num_epochs=2):
    config = LedgerConfig(records_per_task=4, num_epochs=num_epochs)
    return Ledger([Shard("data", 0, 10)], config)


def test_a_stopped_ledger_keeps_what_counted_and_hands_out_no_more():
    ledger = _ledger()
    task = ledger.lease("a")
    ledger.commit([ledger.stage(task.task_id, task.attempt, 0, 2)])
    staged = ledger.stage(task.task_id, task.attempt, 2, 4)
    other = ledger.lease("b")
    assert staged.records.num_records == 2
    ledger.stop()
    assert ledger.is_finished
    assert not ledger.only_staged_left
    assert ledger.lease("c") is NoTask.FINISHED
    assert ledger.stage(other.task_id, other.attempt, 4, 6) is Refusal.LEASE_LOST
    assert ledger.cut_short == Audit(epoch=0, records=10, committed=2, skipped=0)
    assert ledger.audits == []


def test_another_ledger_goes_on_where_one_was_stopped():
    ledger = _ledger(num_epochs=1)
    task = ledger.lease("a")
    ledger.commit([ledger.stage(task.task_id, task.attempt, 0, 2)])
    ledger.stage(task.task_id, task.attempt, 2, 4)
    ledger.stop()
    following = _ledger(num_epochs=1)
    following.restore(ledger.snapshot())
    assert not following.is_finished
    ranges = []
    while not following.is_finished:
        task = following.lease("b")
        start, end = task.records.start, task.records.end
        ranges.append((start, end))
        following.commit([following.stage(task.task_id, task.attempt, start, end)])
    assert ranges == [(2, 4), (4, 8), (8, 10)]
    assert following.audits == [Audit(0, 10, 10, 0)]


def test_nothing_is_cut_short_between_two_epochs():
    ledger = _ledger()
    while ledger.epoch == 0:
        task = ledger.lease("a")
        start, end = task.records.start, task.records.end
        ledger.commit([ledger.stage(task.task_id, task.attempt, start, end)])
    ledger.stop()
    assert ledger.cut_short is None
    assert ledger.audits == [Audit(0, 10, 10, 0)]
