"""The ledger's rules, one by one; `test_ledger_schedules.py` mixes them at random."""

import pytest

from elastic.policy.minibatches import Retry, SizeFault
from elastic.policy.tasks.ledger import (
    Audit,
    Ledger,
    LedgerConfig,
    LedgerError,
    NoTask,
    PoisonedRecord,
    Refusal,
    SkipRecord,
    StagedRange,
)
from elastic.policy.tasks.records import RecordRange, Shard, Task


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


def fail(ledger, task, start=None, end=None, runs_at=0):
    """Have the whole of a task fail, or a part of it."""
    start = task.records.start if start is None else start
    end = task.records.end if end is None else end
    return ledger.fail(task.task_id, task.attempt, start, end, runs_at)


def lease_search(ledger, worker="w"):
    """Lease a minibatch until it has failed as often as makes a search of it."""
    assert fail(ledger, ledger.lease(worker)) is Retry.WHOLE
    assert fail(ledger, ledger.lease(worker)) is Retry.IN_PARTS
    task = ledger.lease(worker)
    assert task.is_search
    return task


def leased_ranges(ledger, worker="w"):
    """All that is left, as ranges of records."""
    ranges = []
    while isinstance(task := ledger.lease(worker), Task):
        ranges.append((task.records.start, task.records.end))
    return ranges


def test_failing_minibatch_is_tried_again_whole_and_then_in_parts():
    ledger = make_ledger(records=8, records_per_task=8)
    task = ledger.lease("w")
    assert fail(ledger, task, 0, 4) is Retry.WHOLE
    again = ledger.lease("w")
    assert (again.records, again.is_search) == (RecordRange(0, 0, 4), False)
    assert fail(ledger, again) is Retry.IN_PARTS
    search = ledger.lease("w")
    assert (search.records, search.is_search) == (RecordRange(0, 0, 4), True)
    assert leased_ranges(ledger) == [(4, 8)]


def test_what_lies_behind_a_failing_minibatch_comes_again_were_it_one_record():
    ledger = make_ledger(records=4)
    fail(ledger, ledger.lease("w"), 0, 3)
    assert leased_ranges(ledger) == [(0, 3), (3, 4)]


def test_what_failed_goes_to_another_worker_where_there_is_one():
    ledger = make_ledger(records=8)
    fail(ledger, ledger.lease("w"))
    following = ledger.lease("w", has_peers=True)
    assert following.records == RecordRange(0, 4, 8), "its own work goes on meanwhile"
    assert ledger.lease("w", has_peers=True) is NoTask.WAIT
    assert ledger.lease("v", has_peers=True).records == RecordRange(0, 0, 4)


def test_what_failed_is_tried_by_the_same_worker_where_there_is_no_other():
    ledger = make_ledger(records=4)
    fail(ledger, ledger.lease("w"))
    assert ledger.lease("w", has_peers=False).records == RecordRange(0, 0, 4)


def test_a_search_is_not_begun_ahead():
    ledger = make_ledger(records=8)
    assert fail(ledger, ledger.lease("w")) is Retry.WHOLE
    assert fail(ledger, ledger.lease("w")) is Retry.IN_PARTS
    assert ledger.lease("w", is_ahead=True).records == RecordRange(0, 4, 8)
    assert ledger.lease("w").is_search


def test_minibatch_that_runs_after_all_counts():
    ledger = make_ledger(records=4)
    search = lease_search(ledger)
    assert finish(ledger, search) == Audit(0, 4, 4, 0)


def test_record_found_is_tried_alone_and_its_neighbours_together():
    ledger = make_ledger(records=8, records_per_task=8, max_task_failures=2)
    search = lease_search(ledger)
    assert fail(ledger, search, 5, 6) is Retry.ALONE
    finish(ledger, ledger.lease("w"))
    alone = ledger.lease("w")
    assert (alone.records, alone.is_search) == (RecordRange(0, 5, 6), False)
    assert fail(ledger, alone) is Retry.ALONE
    assert fail(ledger, ledger.lease("w")) == PoisonedRecord("data.csv", 5, attempts=2)
    assert ledger.records_done == 5
    assert leased_ranges(ledger) == [(6, 8)]


def test_nothing_of_a_search_counts_before_its_end():
    ledger = make_ledger(records=8, records_per_task=8)
    search = lease_search(ledger)
    assert fail(ledger, search, 0, 4) is Refusal.OUT_OF_ORDER, "a part is no culprit"
    assert fail(ledger, search, 0, 8, runs_at=8) is Refusal.OUT_OF_ORDER
    assert fail(ledger, search, 0, 4, runs_at=2) is Refusal.OUT_OF_ORDER
    assert ledger.records_done == 0


def test_worker_that_dies_in_a_search_leaves_it_to_another():
    ledger = make_ledger(records=8)
    search = lease_search(ledger)
    ledger.lose_worker("w")
    assert fail(ledger, search, 1, 2) is Refusal.LEASE_LOST
    again = ledger.lease("v")
    assert again.is_search
    assert again.records == search.records


def test_minibatch_too_large_comes_back_whole():
    ledger = make_ledger(records=8, records_per_task=8)
    search = lease_search(ledger)
    assert fail(ledger, search, runs_at=2) == SizeFault(fails_at=8, runs_at=2, goes_on=False)
    again = ledger.lease("w")
    assert (again.records, again.is_search) == (RecordRange(0, 0, 8), False)
    assert again.minibatch_size is None


def test_job_that_may_shrink_goes_on_at_the_size_that_runs():
    ledger = make_ledger(records=8, may_shrink=True)
    other = ledger.lease("v")
    search = lease_search(ledger)
    assert fail(ledger, search, runs_at=2) == SizeFault(fails_at=4, runs_at=2, goes_on=True)
    assert fail(ledger, other) is Retry.WHOLE, "it has the old size still"
    for start in (0, 4):
        task = ledger.lease("w")
        assert (task.minibatch_size, task.is_search) == (2, False)
        for step in (start, start + 2):
            ledger.commit([ledger.stage(task.task_id, task.attempt, step, step + 2)])
    assert ledger.audits == [Audit(0, 8, 8, 0)]


def test_minibatch_of_the_old_size_is_not_searched_once_they_have_shrunk():
    ledger = make_ledger(records=8, may_shrink=True)
    other = ledger.lease("v")
    search = lease_search(ledger)
    fail(ledger, other)
    assert fail(ledger, ledger.lease("v")) is Retry.IN_PARTS
    fail(ledger, search, runs_at=2)
    tasks = [ledger.lease("w"), ledger.lease("w")]
    assert not any(task.is_search for task in tasks)
    assert fail(ledger, tasks[1], 4, 6) is Retry.WHOLE, "the first failure of this minibatch"


@pytest.mark.parametrize("may_shrink", [True, False])
def test_the_size_that_runs_is_in_every_cut(may_shrink):
    ledger = make_ledger(records=8, may_shrink=True)
    fail(ledger, lease_search(ledger), runs_at=2)
    resumed = make_ledger(records=8, may_shrink=may_shrink)
    resumed.restore(ledger.snapshot())
    assert resumed.lease("w").minibatch_size == (2 if may_shrink else None)


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
        assert ledger.fail(task.task_id, task.attempt, 0, 1) is Retry.ALONE
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


def test_a_skipped_record_does_not_come_again_after_a_restart():
    config = {"records": 4, "max_task_failures": 1, "skip_bad_records": 1}
    ledger = make_ledger(**config)
    task = ledger.lease("w")
    ledger.fail(task.task_id, task.attempt, 0, 1)
    resumed = make_ledger(**config)
    resumed.restore(ledger.snapshot())
    assert resumed.lease("w").records == RecordRange(0, 1, 4)


def test_an_epoch_that_lacks_a_record_is_an_error():
    ledger, resumed = make_ledger(), make_ledger()
    finish(ledger, ledger.lease("w"))
    resumed.restore(ledger.snapshot() | {"committed": 3})
    finish(resumed, resumed.lease("w"))
    with pytest.raises(LedgerError, match="ended with 9 committed and 0 skipped of 10 records"):
        finish(resumed, resumed.lease("w"))
