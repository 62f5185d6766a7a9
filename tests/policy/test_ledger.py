"""The ledger's rules, one by one; `test_ledger_schedules.py` mixes them at random."""

import pytest

from elastic.policy.ledger import (
    Audit,
    Ledger,
    LedgerConfig,
    LedgerError,
    NoTask,
    PoisonedRecord,
    Refusal,
    RetryRange,
    SkipRecord,
    StagedRange,
)
from elastic.policy.records import RecordRange, Shard


def make_ledger(records=10, records_per_task=4, num_epochs=1, **config):
    return Ledger(
        [Shard("data.csv", 0, records)], LedgerConfig(records_per_task, num_epochs, **config)
    )


def finish(ledger, task):
    staged = ledger.stage(task.task_id, task.attempt, task.records.start, task.records.end)
    return ledger.commit([staged])


def test_tasks_cover_every_record_once():
    ledger = Ledger([Shard("a", 0, 5), Shard("empty", 0, 0), Shard("b", 2, 5)], LedgerConfig(2, 1))
    seen = []
    while isinstance(task := ledger.lease("w"), NoTask) is False:
        seen += [(task.shard.name, i) for i in range(task.records.start, task.records.end)]
    assert sorted(seen) == [("a", i) for i in range(5)] + [("b", i) for i in range(2, 5)]


def test_staged_is_not_committed():
    ledger = make_ledger()
    task = ledger.lease("w")
    staged = ledger.stage(task.task_id, task.attempt, 0, 2)
    assert ledger.records_done == 0
    ledger.commit([staged])
    assert ledger.records_done == 2


def test_lost_worker_gives_back_only_what_it_had_not_reported():
    ledger = make_ledger()
    task = ledger.lease("w")
    ledger.stage(task.task_id, task.attempt, 0, 3)
    assert ledger.lose_worker("w") == [task]
    rest = ledger.lease("v")
    assert rest.records == RecordRange(0, 3, 4)
    assert rest.attempt == task.attempt + 1


def test_late_report_of_a_lost_lease_is_refused():
    ledger = make_ledger()
    task = ledger.lease("w")
    ledger.lose_worker("w")
    assert ledger.stage(task.task_id, task.attempt, 0, 4) is Refusal.LEASE_LOST
    again = ledger.lease("v")
    assert ledger.stage(again.task_id, task.attempt, 0, 4) is Refusal.LEASE_LOST


@pytest.mark.parametrize(
    ("start", "end"),
    [
        pytest.param(1, 2, id="leaves-a-gap"),
        pytest.param(0, 5, id="beyond-the-task"),
        pytest.param(0, 0, id="empty"),
    ],
)
def test_range_that_is_not_next_is_refused(start, end):
    ledger = make_ledger()
    task = ledger.lease("w")
    assert ledger.stage(task.task_id, task.attempt, start, end) is Refusal.OUT_OF_ORDER


def test_same_range_twice_is_refused():
    ledger = make_ledger()
    task = ledger.lease("w")
    ledger.stage(task.task_id, task.attempt, 0, 2)
    assert ledger.stage(task.task_id, task.attempt, 0, 2) is Refusal.OUT_OF_ORDER


def test_committing_a_range_twice_is_an_error_and_not_a_merge():
    ledger = make_ledger()
    task = ledger.lease("w")
    staged = ledger.stage(task.task_id, task.attempt, 0, 2)
    ledger.commit([staged])
    with pytest.raises(LedgerError, match=r"\[0, 2\) of 'data.csv' would count twice in epoch 0"):
        ledger.commit([staged])
    with pytest.raises(LedgerError, match="would count twice"):
        ledger.commit([StagedRange(0, RecordRange(0, 1, 3))])


def test_requeued_ranges_go_first_and_in_their_old_order():
    ledger = make_ledger(records=12)
    ledger.lease("a"), ledger.lease("b")
    ledger.lose_worker("b"), ledger.lose_worker("a")
    assert [ledger.lease("c").records.start for _ in range(3)] == [0, 4, 8]


def test_epoch_ends_with_its_last_commit_and_is_audited():
    ledger = make_ledger(num_epochs=2)
    audits = [finish(ledger, ledger.lease("w")) for _ in range(6)]
    assert audits == [None, None, Audit(0, 10, 10, 0), None, None, Audit(1, 10, 10, 0)]
    assert ledger.is_finished
    assert ledger.lease("w") is NoTask.FINISHED


def test_next_epoch_begins_only_after_the_last_commit():
    ledger = make_ledger(records=4, num_epochs=2)
    task = ledger.lease("w")
    staged = ledger.stage(task.task_id, task.attempt, 0, 4)
    assert ledger.lease("w") is NoTask.WAIT
    assert ledger.only_staged_left
    ledger.commit([staged])
    assert ledger.lease("w").epoch == 1


def test_only_staged_left_waits_for_leases_that_may_come_back():
    ledger = make_ledger(records=8)
    first, second = ledger.lease("a"), ledger.lease("b")
    ledger.stage(first.task_id, first.attempt, 0, 4)
    assert not ledger.only_staged_left
    ledger.lose_worker("b")
    assert not ledger.only_staged_left
    again = ledger.lease("c")
    ledger.stage(again.task_id, again.attempt, 4, 8)
    assert ledger.only_staged_left
    assert second.records == again.records


def test_failing_range_is_halved_until_the_record_stands_alone():
    ledger = make_ledger(records=8, records_per_task=8, max_task_failures=2)
    failures = 0
    while True:
        task = ledger.lease("w")
        start, end = task.records.start, task.records.end
        if start <= 5 < end:
            verdict = ledger.fail(task.task_id, task.attempt, start, end)
            failures += 1
            if not isinstance(verdict, RetryRange):
                break
        else:
            finish(ledger, task)
    assert verdict == PoisonedRecord("data.csv", 5, attempts=2)
    assert failures == 5  # 8 → 4 → 2 → 1, and once more
    assert ledger.records_done == 5  # 0 to 3 and 4; 6 and 7 come after 5


def test_bad_record_is_skipped_within_its_allowance_and_audited():
    ledger = make_ledger(records=2, records_per_task=1, max_task_failures=1, skip_bad_records=1)
    bad = ledger.lease("w")
    assert ledger.fail(bad.task_id, bad.attempt, 0, 1) == SkipRecord("data.csv", 0)
    assert finish(ledger, ledger.lease("w")) == Audit(0, 2, 1, 1)
    assert ledger.skipped_records == [("data.csv", 0)]


def test_last_record_skipped_ends_the_epoch_without_an_update():
    ledger = make_ledger(records=1, max_task_failures=1, skip_bad_records=1)
    bad = ledger.lease("w")
    ledger.fail(bad.task_id, bad.attempt, 0, 1)
    assert ledger.end_epoch_if_complete() == Audit(0, 1, 0, 1)
    assert ledger.is_finished


def test_failures_are_counted_over_workers():
    ledger = make_ledger(records=1, max_task_failures=3)
    for _ in range(2):
        task = ledger.lease("w")
        assert ledger.fail(task.task_id, task.attempt, 0, 1) == RetryRange()
        ledger.lease("w")
        ledger.lose_worker("w")  # a death between does not wipe the count
    task = ledger.lease("v")
    assert isinstance(ledger.fail(task.task_id, task.attempt, 0, 1), PoisonedRecord)


def test_snapshot_brings_back_leased_and_staged_records_in_the_old_order():
    ledger = make_ledger(records=12)
    first = ledger.lease("a")
    ledger.commit([ledger.stage(first.task_id, first.attempt, 0, 2)])
    ledger.stage(first.task_id, first.attempt, 2, 3)
    ledger.lease("b")
    resumed = make_ledger(records=12)
    resumed.restore(ledger.snapshot())
    ranges = [resumed.lease("c").records for _ in range(3)]
    assert ranges == [RecordRange(0, 2, 4), RecordRange(0, 4, 8), RecordRange(0, 8, 12)]
    assert resumed.records_done == 2


@pytest.mark.parametrize(
    ("other", "key"),
    [
        pytest.param({"records": 11}, "records=10", id="other-data"),
        pytest.param({"records_per_task": 3}, "records_per_task=4", id="other-cut"),
    ],
)
def test_snapshot_of_another_job_is_refused(other, key):
    snapshot = make_ledger().snapshot()
    with pytest.raises(LedgerError, match=key):
        make_ledger(**other).restore(snapshot)


def test_a_million_tasks_cost_no_more_than_a_thousand():
    """Leasing looks at no other task."""
    ledger = Ledger([Shard("big", 0, 1_000_000)], LedgerConfig(1, 1))
    for index in range(1000):
        task = ledger.lease("w")
        assert task.records.start == index
        finish(ledger, task)
    assert ledger.num_queued == 999_000
    assert len(ledger.snapshot()["open"]) == 0
