"""Where the time goes: no gap, no overlap, whatever happens in whatever order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.policy.accounts import STALL_S, Moment, TimeAccount, split_at
from elastic.spec.status import JobPhase, JobStatus, TimeCategory, TimeSplit

BEGUN_S = 1_700_000_000.123
CATEGORIES = list(TimeCategory)


def seconds(split):
    """What is not zero, by category."""
    given_s = {category.value: getattr(split, f"{category}_s") for category in TimeCategory}
    return {name: value for name, value in given_s.items() if value}


def total_ms(split):
    return sum(round(value * 1000) for value in seconds(split).values())


def at(second, phase=JobPhase.RUNNING, last=None, **facts):
    """A moment of a job whose gradients count all the time, unless `last` says when."""
    last_s = BEGUN_S + (second if last is None else last)
    return Moment(BEGUN_S + second, phase, last_contribution_s=last_s, **facts)


def account_of(*moments):
    account = TimeAccount(BEGUN_S)
    for moment in moments:
        account.look(moment)
    return account


events = st.lists(
    st.tuples(st.sampled_from(CATEGORIES), st.floats(-50.0, 5000.0)), min_size=1, max_size=30
)


@given(events, st.floats(0.0, 9000.0))
def test_every_millisecond_is_counted_once_even_where_clocks_are_set_back(events, end):
    account = TimeAccount(BEGUN_S)
    for category, second in events:
        account.enter(category, BEGUN_S + second)
    split = account.split(BEGUN_S + end)
    assert total_ms(split) == round(split.until_s * 1000) - round(BEGUN_S * 1000)
    assert split.current is events[-1][0]
    assert all(value > 0 for value in seconds(split).values())


@given(events, events, st.floats(0.0, 500.0))
def test_a_restarted_master_goes_on_where_the_last_one_ended(before, after, down_s):
    account = TimeAccount(BEGUN_S)
    for category, second in before:
        account.enter(category, BEGUN_S + second)
    told = account.split(BEGUN_S + 5000)
    next_life = TimeAccount(0.0, told.model_copy(update={"current": TimeCategory.RECOVER}))
    for category, second in after:
        next_life.enter(category, BEGUN_S + 5000 + down_s + max(0.0, second))
    split = next_life.split(BEGUN_S + 20_000)
    assert total_ms(split) == 20_000_000
    assert round(split.recover_s * 1000) >= round(told.recover_s * 1000) + round(down_s * 1000) - 1


def test_a_life_from_the_queue_to_its_end():
    account = account_of(
        at(0, JobPhase.PENDING),
        at(3, JobPhase.STARTING),
        at(8),
        at(20, is_evaluating=True),
        at(26, is_computing=True),
        at(30, JobPhase.RECOVERING),
        at(37),
        at(40, is_trained=True, is_evaluating=True),
        at(44, is_trained=True),
    )
    account.enter(TimeCategory.CHECKPOINT, BEGUN_S + 45)
    assert seconds(account.split(BEGUN_S + 46.5)) == {
        "queue": 3.0, "start": 5.0, "train": 12.0 + 4.0 + 3.0, "evaluate": 6.0 + 4.0,
        "checkpoint": 1.5, "recover": 7.0, "stall": 1.0,
    }  # fmt: skip


def test_who_is_to_have_no_workers_waits_in_the_queue():
    recovering = JobPhase.RECOVERING
    account = account_of(at(0), at(5, recovering, is_paused=True), at(9, recovering), at(11))
    assert seconds(account.split(BEGUN_S + 12)) == {"train": 6.0, "queue": 4.0, "recover": 2.0}


def test_who_trains_beside_an_evaluation_trains():
    account = account_of(at(0), at(5, is_evaluating=True, is_computing=True), at(9))
    assert seconds(account.split(BEGUN_S + 10)) == {"train": 10.0}


def test_a_silence_that_lasts_was_a_stall_from_its_beginning():
    account = account_of(at(0), at(4), at(5, last=4), at(4 + STALL_S, last=4))
    assert account.current is TimeCategory.TRAIN
    account.look(at(4.1 + STALL_S, last=4))
    account.look(at(40, last=4))
    account.look(at(41, last=41))
    assert seconds(account.split(BEGUN_S + 43)) == {"train": 6.0, "stall": 37.0}


def test_long_steps_are_no_stall():
    slow = {"last": 1, "typical_step_s": 60.0}
    account = account_of(at(0), at(1), at(200, **slow), at(300, **slow))
    assert account.current is TimeCategory.TRAIN
    account.look(at(302, **slow))
    assert account.current is TimeCategory.STALL


def test_an_evaluation_is_no_silence_of_the_training_after_it():
    account = account_of(at(0), at(1, is_evaluating=True), at(60, last=1), at(65, last=1))
    assert seconds(account.split(BEGUN_S + 65)) == {"train": 6.0, "evaluate": 59.0}


# -- as it is read


def told(split, **fields):
    return JobStatus(job_name="job", submitted_s=BEGUN_S, time_split=split, **fields)


RUNNING = TimeSplit(
    queue_s=2, start_s=3, train_s=5, current=TimeCategory.TRAIN, until_s=BEGUN_S + 10
)


@pytest.mark.parametrize(
    ("fields", "category"),
    [
        pytest.param({"phase": JobPhase.RUNNING}, "train", id="lives"),
        pytest.param({"phase": JobPhase.RECOVERING}, "recover", id="lost-its-master"),
        pytest.param(
            {"phase": JobPhase.FAILED, "ended_s": BEGUN_S + 14}, "recover", id="never-came-back"
        ),
    ],
)
def test_what_nobody_told_of_is_counted_too(fields, category):
    split = split_at(told(RUNNING, **fields), BEGUN_S + 14)
    expected = {"queue": 2.0, "start": 3.0, "train": 5.0}
    expected[category] = expected.get(category, 0.0) + 4.0
    assert seconds(split) == expected
    assert split.until_s == round(BEGUN_S + 14, 3)


def test_an_ended_job_does_not_grow_older():
    ended = told(RUNNING, phase=JobPhase.SUCCEEDED, ended_s=BEGUN_S + 10)
    assert seconds(split_at(ended, BEGUN_S + 999)) == seconds(RUNNING)


def test_a_job_without_a_master_queues():
    assert seconds(split_at(told(TimeSplit()), BEGUN_S + 7)) == {"queue": 7.0}


def test_a_master_that_does_not_know_its_submission_leaves_the_rest_to_the_queue():
    split = RUNNING.model_copy(update={"queue_s": 0.0})
    late = told(split, phase=JobPhase.RUNNING).model_copy(update={"submitted_s": BEGUN_S - 4})
    assert seconds(split_at(late, BEGUN_S + 10)) == {"queue": 6.0, "start": 3.0, "train": 5.0}


@given(st.floats(-20.0, 20.0))
def test_clocks_that_disagree_do_not_break_the_sum(skew_s):
    status = told(RUNNING, phase=JobPhase.SUCCEEDED, ended_s=BEGUN_S + 10)
    status = status.model_copy(update={"submitted_s": BEGUN_S + skew_s})
    split = split_at(status, BEGUN_S)
    assert total_ms(split) == max(
        0, round((BEGUN_S + 10) * 1000) - round((BEGUN_S + skew_s) * 1000)
    )
