"""Tasks that count whole or not at all, whoever dies and whatever fails."""

import random

import pytest
from support.bounds import until

from elastic.policy.minibatches import Retry
from elastic.policy.tasks.ledger import (
    LedgerConfig,
    NoTask,
    PoisonedRecord,
    Refusal,
    SkipRecord,
)
from elastic.policy.tasks.ledger_kinds import FixedRangeLedger
from elastic.policy.tasks.records import RecordRange, Shard, Task, TaskKind

SHARDS = [Shard("a", 0, 25), Shard("b", 10, 17)]


def ledger(skip=0, shards=SHARDS):
    config = LedgerConfig(
        10, 1, kind=TaskKind.PREDICTION, max_task_failures=2, skip_bad_records=skip
    )
    return FixedRangeLedger(shards, config)


def commit(book, task):
    return book.commit_whole(task.task_id, task.attempt, task.records.start, task.records.end)


def test_a_task_counts_whole():
    book = ledger()
    task = book.lease("w")
    assert book.commit_whole(task.task_id, 0, 0, 5) is Refusal.OUT_OF_ORDER
    assert book.records_done == 0
    assert commit(book, task) == task
    assert book.records_done == 10
    assert commit(book, task) is Refusal.LEASE_LOST


def test_what_comes_back_is_whole_and_fences_who_had_it():
    book = ledger()
    task = book.lease("w")
    book.lose_worker("w")
    again = book.lease("v")
    assert again.records == task.records
    assert not book.is_leased(task.task_id, task.attempt)
    assert commit(book, task) is Refusal.LEASE_LOST
    assert book.is_leased(again.task_id, again.attempt)


def test_a_record_that_fails_for_good_is_left_out_by_whoever_comes_next():
    book = ledger(skip=1)
    task = book.lease("w")
    assert book.fail(task.task_id, 0, 3, 5) is Refusal.OUT_OF_ORDER
    assert book.fail(task.task_id, 0, 3, 4) is Retry.ALONE
    task = book.lease("w")
    assert (task.records, task.skipped) == (RecordRange(0, 0, 10), ())
    assert book.fail(task.task_id, task.attempt, 3, 4) == SkipRecord("a", 3)
    task = book.lease("w")
    assert (task.records, task.skipped) == (RecordRange(0, 0, 10), (3,))
    assert commit(book, task).skipped == (3,)
    assert book.records_done == 10
    task = book.lease("w")
    book.fail(task.task_id, task.attempt, 12, 13)
    task = book.lease("w")
    assert book.fail(task.task_id, task.attempt, 12, 13) == PoisonedRecord("a", 12, 2)


def test_a_task_of_which_every_record_fails_is_over():
    book = ledger(skip=1, shards=[Shard("a", 0, 1)])
    for _ in range(2):
        task = book.lease("w")
        verdict = book.fail(task.task_id, task.attempt, 0, 1)
    assert verdict == SkipRecord("a", 0)
    audit = book.end_epoch_if_complete()
    assert (audit.committed, audit.skipped) == (0, 1)
    assert book.lease("w") is NoTask.FINISHED


@pytest.mark.parametrize("known", [
    pytest.param({}, id="nothing"),
    pytest.param({RecordRange(0, 10, 20): [11, 13]}, id="one"),
    pytest.param({RecordRange(1, 10, 17): list(range(10, 17))}, id="all-skipped"),
    pytest.param({RecordRange(0, 0, 9): []}, id="of-another-cut"),
])  # fmt: skip
def test_what_has_counted_before_is_not_given_out_again(known):
    book = ledger(skip=10)
    book.restore_whole(known)
    leased = []
    while isinstance(task := book.lease("w"), Task):
        leased.append(task.records)
        commit(book, task)
    every = [RecordRange(0, 0, 10), RecordRange(0, 10, 20), RecordRange(0, 20, 25)]
    assert leased == [r for r in [*every, RecordRange(1, 10, 17)] if r not in known]
    (audit,) = book.audits
    skipped = sum(len(known[r]) for r in known if r not in leased and r.end != 9)
    assert (audit.records, audit.skipped) == (32, skipped)


def test_everything_has_counted_before():
    book = ledger()
    ranges = [RecordRange(0, 0, 10), RecordRange(0, 10, 20), RecordRange(0, 20, 25)]
    book.restore_whole({r: [] for r in [*ranges, RecordRange(1, 10, 17)]})
    assert book.is_finished
    assert book.lease("w") is NoTask.FINISHED


@pytest.mark.parametrize("seed", range(50))
def test_each_record_counts_once_in_any_order_of_events(seed):
    rng = random.Random(seed)
    book = ledger(skip=100)
    counted = {}
    held = {}
    for _ in until(lambda: book.is_finished):
        worker = rng.choice("uvw")
        if worker not in held:
            task = book.lease(worker)
            if isinstance(task, Task):
                held[worker] = task
            continue
        task = held.pop(worker)
        deed = rng.choice(["commit", "lose", "release", "fail"])
        if deed == "lose":
            book.lose_worker(worker)
        elif deed == "release":
            assert book.release(task.task_id, task.attempt)
        elif deed == "fail":
            left = sorted(set(range(task.records.start, task.records.end)) - set(task.skipped))
            if left:
                index = rng.choice(left)
                book.fail(task.task_id, task.attempt, index, index + 1)
                book.end_epoch_if_complete()
            else:
                held[worker] = task
        else:
            assert commit(book, task).records not in counted
            counted[task.records] = set(task.skipped)
    seen = [
        (r.shard_index, i)
        for r, skipped in counted.items()
        for i in range(r.start, r.end)
        if i not in skipped
    ]
    lost = {(["a", "b"].index(name), index) for name, index in book.skipped_records}
    assert len(seen) == len(set(seen))
    assert set(seen).isdisjoint(lost)
    assert len(seen) + len(lost) == 32
