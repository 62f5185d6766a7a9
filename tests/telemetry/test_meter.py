"""What is added up between two points."""

import pytest

from elastic.spec.job import JobSpec
from elastic.telemetry.board import job_text
from elastic.telemetry.meter import Counts, JobMeter, Window


def test_the_loss_is_the_mean_of_records_and_not_of_gradients():
    meter = JobMeter()
    meter.accept(1.0, records=30, staleness=0, step_s=0.1)
    meter.accept(5.0, records=10, staleness=3, step_s=0.1)
    assert meter.take_window() == Window(2.0, mean_staleness=1.5, max_staleness=3)


def test_a_window_begins_where_the_one_before_ended():
    meter = JobMeter()
    meter.accept(1.0, records=1, staleness=4, step_s=0.1)
    meter.take_window()
    assert meter.take_window() == Window(None, 0.0, 0)
    meter.accept(7.0, records=1, staleness=0, step_s=0.1)
    assert meter.take_window() == Window(7.0, 0.0, 0)


def test_counts_are_of_all_windows_and_lives():
    meter = JobMeter()
    meter.reject("stale", records=8, step_s=0.1)
    meter.commit(16)
    meter.update(0.1)
    meter.exit("Killed")
    meter.take_window()
    earlier = Counts(100, 10, 5, {"stale": 1, "lease_lost": 2}, {})
    assert earlier.plus(meter.counts()) == Counts(
        116, 18, 6, {"lease_lost": 2, "stale": 2}, {"Killed": 1}
    )


@pytest.mark.parametrize("name", ["on_step_s", "on_update_s"])
def test_who_wants_to_know_is_told_each_time(name):
    meter, told = JobMeter(), []
    setattr(meter, name, told.append)
    meter.accept(1.0, 1, 0, 0.25)
    meter.reject("stale", 1, 0.5)
    meter.update(2.0)
    assert told == {"on_step_s": [0.25, 0.5], "on_update_s": [2.0]}[name]


def test_the_text_of_a_job_has_what_was_chosen_and_breaks_no_table():
    spec = JobSpec(
        model_zoo="zoo", model_def="a.B", training_data_dir="a|b`c\nd", minibatch_size=8,
        model_params={"hidden": 3},
    )  # fmt: skip
    rows = job_text(spec).splitlines()
    assert rows[:2] == ["| setting | value |", "| --- | --- |"]
    assert "| training_data_dir | `a\\|b'c d` |" in rows
    assert "| model_params | `hidden=3` |" in rows
    assert not [row for row in rows if "num_epochs" in row]
