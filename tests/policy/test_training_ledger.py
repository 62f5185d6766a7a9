"""Positions of an epoch as tasks, and what a cut knows of them."""

import json

import pytest
from support.orders import epoch_of, finish, make_ledger, records_of, tasks_of

from elastic.policy.tasks.epochs import OrderForm, RecordOrder, Shuffle
from elastic.policy.tasks.ledger import Audit, LedgerConfig, LedgerError, NoTask, SkipRecord
from elastic.policy.tasks.ledger_kinds import FORESEEN_RECORDS, TaskCut, TrainingLedger
from elastic.policy.tasks.records import Places, Shard


def cut_of(ledger):
    """As it comes back from the disk."""
    return json.loads(json.dumps(ledger.snapshot()))


def test_tasks_name_the_records_at_their_positions():
    ledger = make_ledger(100, 10, num_epochs=2)
    first, second = tasks_of(ledger), epoch_of(ledger)
    assert [len(task) for task in first] == [10] * 10
    first = [record for task in first for record in task]
    assert sorted(first) == sorted(second) == list(range(100))
    assert first != second


@pytest.mark.parametrize(
    ("shuffle", "tasks"),
    [
        pytest.param(Shuffle.NONE, [[0, 1, 2], [3, 4, 5], [6, 7]], id="none"),
        pytest.param(Shuffle.TASKS, [[0, 1, 2], [6, 7, 3], [4, 5]], id="tasks"),
    ],
)
def test_other_shuffles_keep_records_together(shuffle, tasks):
    assert tasks_of(make_ledger(8, 3, shuffle=shuffle, seed=2)) == tasks


def test_tasks_hold_whole_minibatches_over_all_files_and_only_the_last_is_short():
    shards = [Shard("a", 0, 5), Shard("b", 2, 9), Shard("empty", 0, 0), Shard("c", 0, 11)]
    places = Places(shards)
    order = RecordOrder(places.num_records, 0, OrderForm(Shuffle.NONE))
    ledger = TrainingLedger(places, order, TaskCut(10, 4), LedgerConfig(10, 1))
    tasks = []
    while not isinstance(task := ledger.lease("w"), NoTask):
        tasks.append([(shard.name, start, end) for shard, start, end in task.picks.runs()])
        finish(ledger, task)
    assert tasks == [
        [("a", 0, 5), ("b", 2, 5)],
        [("b", 5, 9), ("c", 0, 4)],
        [("c", 4, 11)],
    ]


def test_drop_last_leaves_other_records_out_in_each_epoch_and_says_how_many():
    ledger = make_ledger(103, 20, num_epochs=2, minibatch_size=10, drop_last=True)
    first, second = (set(epoch_of(ledger)) for _ in range(2))
    assert len(first) == len(second) == 100
    assert set(range(103)) - first != set(range(103)) - second
    assert ledger.audits == [Audit(0, 103, 100, 0, left_out=3), Audit(1, 103, 100, 0, left_out=3)]


def test_what_fails_for_good_is_named_as_in_its_file():
    ledger = make_ledger_of_one_attempt()
    task = ledger.lease("w")
    start = task.records.start
    index = records_of(task)[0]
    assert ledger.fail(task.task_id, task.attempt, start, start + 1) == SkipRecord("data", index)
    assert ledger.skipped_records == [("data", index)]
    assert ledger.named(task.records, 0) == [("data", i, i + 1) for i in records_of(task)]


def test_what_had_counted_before_a_job_went_back_is_computed_again():
    ledger = make_ledger(40, 10, num_epochs=2)
    epoch_of(ledger)
    ledger.computed_again = 3
    # Told of before: ten records of the second epoch, and five that were refused since the cut.
    assert ledger.count_undone(50, 8) == 10
    assert ledger.computed_again == 18
    # What is told of a job that goes on where it was is nothing new.
    assert ledger.count_undone(40, 18) == 0
    assert cut_of(ledger)["computed_again"] == 18


def make_ledger_of_one_attempt():
    config = LedgerConfig(4, 1, max_task_failures=1, skip_bad_records=1)
    order = RecordOrder(40, 0, OrderForm(Shuffle.RECORDS))
    return TrainingLedger(Places([Shard("data", 0, 40)]), order, TaskCut(4, 4), config)


@pytest.mark.parametrize("records_per_task", [8, 4, 12, 100])
def test_a_cut_within_an_epoch_is_gone_on_with_in_the_same_order_whatever_the_tasks(
    records_per_task,
):
    whole = epoch_of(make_ledger(60, 8, minibatch_size=4))
    ledger = make_ledger(60, 8, minibatch_size=4)
    done, tasks = [], [ledger.lease(worker) for worker in "abc"]
    first, _, third = tasks
    done += records_of(first)[:4]
    ledger.commit([ledger.stage(first.task_id, first.attempt, 0, 4)])
    done += records_of(third)
    finish(ledger, third)
    resumed = make_ledger(60, records_per_task, minibatch_size=4)
    resumed.restore(cut_of(ledger))
    assert resumed.records_done == 12
    rest = epoch_of(resumed)
    assert rest == [record for record in whole if record not in done]
    assert resumed.audits == [Audit(0, 60, 60, 0)]


def test_a_cut_of_shuffled_tasks_brings_their_size_along():
    first, second = (make_ledger(60, size, shuffle=Shuffle.TASKS, seed=1) for size in (6, 10))
    whole = epoch_of(make_ledger(60, 6, shuffle=Shuffle.TASKS, seed=1))
    finish(first, first.lease("w"))
    second.restore(cut_of(first))
    assert epoch_of(second) == whole[6:]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        pytest.param({"seed": 9}, "seed=0, this job has seed=9", id="seed"),
        pytest.param(
            {"shuffle": Shuffle.NONE}, "shuffle=records, this job has shuffle=none", id="shuffle"
        ),
        pytest.param({"num_records": 41}, "records=40, this job has records=41", id="data"),
    ],
)
def test_a_cut_of_another_order_is_refused(other, message):
    num_records = other.pop("num_records", 40)
    with pytest.raises(LedgerError, match=message):
        make_ledger(num_records, **other).restore(cut_of(make_ledger(40)))


def test_a_cut_of_other_chunks_is_refused():
    def ledger_of(size):
        places = Places([Shard("data", at, at + size) for at in range(0, 60, size)])
        order = RecordOrder(60, 0, OrderForm(Shuffle.RECORDS, mixed=2), places.firsts)
        return TrainingLedger(places, order, TaskCut(10, 10), LedgerConfig(10, 1))

    ledger_of(6).restore(cut_of(ledger_of(6)))
    with pytest.raises(LedgerError, match="other numbers of records in them"):
        ledger_of(6).restore(cut_of(ledger_of(10)))


def old_cut(**changes):
    """As versions wrote it that shuffled tasks."""
    return {
        "format": 1,
        "fingerprint": {"records_per_task": 4, "seed": 0, "shuffle": True, "shards": 1,
                        "records": 40, "layout": "0123456789abcdef"},
        "epoch": 1, "position": 0, "open": [], "committed": 0, "skipped": 0,
        "skipped_records": [], "audits": [[0, 40, 40, 0]], "computed_again": 3,
        **changes,
    }  # fmt: skip


def test_a_cut_of_the_version_before_is_gone_on_with_between_epochs():
    ledger = make_ledger(40, num_epochs=2)
    ledger.restore(old_cut())
    assert sorted(epoch_of(ledger)) == list(range(40))
    assert ledger.audits == [Audit(0, 40, 40, 0), Audit(1, 40, 40, 0)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"position": 3, "committed": 12}, "within epoch 1 by a version", id="within"),
        pytest.param({"fingerprint": {"records": 50}}, "records=50, this job", id="other-data"),
    ],
)
def test_a_cut_of_the_version_before_is_refused_with_the_reason(changes, message):
    with pytest.raises(LedgerError, match=message):
        make_ledger(40, num_epochs=2).restore(old_cut(**changes))


LARGE = FORESEEN_RECORDS
"""Records of a task whose records are worth looking up ahead."""


def _foresee(ledger):
    look_up = ledger.foresee()
    if look_up is not None:
        look_up()
    return look_up is not None


@pytest.mark.parametrize("shuffle", [Shuffle.RECORDS, Shuffle.TASKS])
def test_records_that_were_looked_up_ahead_are_the_same(shuffle):
    plain, foreseeing = (
        make_ledger(3 * LARGE + 5, LARGE, num_epochs=2, shuffle=shuffle) for _ in range(2)
    )
    expected, found, foreseen = [], [], []
    for _ in range(8):
        expected.append(records_of(task := plain.lease("w")))
        finish(plain, task)
        foreseen.append(_foresee(foreseeing))
        found.append(records_of(task := foreseeing.lease("w")))
        finish(foreseeing, task)
    assert found == expected
    # The last task of an epoch is small.
    assert foreseen == [True, True, True, False] * 2


def test_what_was_looked_up_is_for_those_positions_alone():
    plain, ledger = (make_ledger(4 * LARGE, LARGE, num_epochs=2) for _ in range(2))
    first, expected = records_of(plain.lease("a")), records_of(plain.lease("a"))
    task = ledger.lease("a")
    assert _foresee(ledger)
    # What comes back goes first, whatever was looked up, which stays of use.
    ledger.release(task.task_id, task.attempt)
    assert records_of(ledger.lease("b")) == first
    assert records_of(ledger.lease("b")) == expected


def test_what_is_at_hand_is_not_looked_up_again():
    """Tasks of an evaluation are leased meanwhile, which leave the positions where they are."""
    ledger = make_ledger(3 * LARGE, LARGE)
    assert [_foresee(ledger) for _ in range(3)] == [True, False, False]
    ledger.lease("w")
    assert _foresee(ledger)


def test_nothing_is_looked_up_behind_the_end_of_an_epoch():
    ledger = make_ledger(2 * LARGE, LARGE)
    ledger.lease("w")
    assert _foresee(ledger)
    ledger.lease("w")
    assert not _foresee(ledger)


def test_what_was_looked_up_before_a_cut_was_gone_back_to_is_of_its_order():
    """A task of a cut may have had another size, and so another order of tasks."""
    before = make_ledger(4 * LARGE, LARGE, shuffle=Shuffle.TASKS)
    after = make_ledger(4 * LARGE, 2 * LARGE, shuffle=Shuffle.TASKS)
    assert _foresee(after)
    after.restore(cut_of(before))
    left = []
    while not isinstance(task := after.lease("w"), NoTask):
        left += records_of(task)
        finish(after, task)
    rest = []
    while not isinstance(task := before.lease("w"), NoTask):
        rest += records_of(task)
        finish(before, task)
    assert left == rest


def test_what_was_looked_up_too_late_is_not_for_the_next_epoch():
    plain, ledger = (make_ledger(2 * LARGE, LARGE, num_epochs=2) for _ in range(2))
    expected, found, late = [], [], None
    for number in range(4):
        expected.append(records_of(task := plain.lease("w")))
        finish(plain, task)
        found.append(records_of(task := ledger.lease("w")))
        finish(ledger, task)
        if late is not None:
            late()
        late = ledger.foresee() if number == 0 else None
    assert found == expected
