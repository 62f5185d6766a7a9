"""A whole job tells how fast it was at each size that it has had, and why it was resized."""

from pathlib import Path

import numpy as np
import pytest
from support.thread_job import ThreadJob, events, obedient_spec, write_records

from elastic.checkpoints.cuts import read_cut
from elastic.master.status_board import StatusBoard
from elastic.policy import accounts

NUM_RECORDS = 40


@pytest.fixture(autouse=True)
def short_windows(monkeypatch):
    monkeypatch.setattr(accounts, "WINDOW_S", 0.5)


def told_sizes(statuses):
    return {each.workers for each in statuses[-1].scaling.speeds} if statuses else set()


def test_its_speed_at_each_size_and_what_a_change_costs(tmp_path):
    data = write_records(tmp_path / "train.npz", num_records=NUM_RECORDS, delay_ms=5)
    spec = obedient_spec(data, num_epochs=500, num_workers="1:2")
    with ThreadJob(spec, tmp_path) as job:
        job.runner.ask(num_workers=1)
        job.wait_until(lambda statuses: 1 in told_sizes(statuses))
        why = "+1: 6 CPU idle on n3"
        job.runner.ask(num_workers=2, autoscaled_for=why)
        job.wait_until(lambda statuses: 2 in told_sizes(statuses))
        status = job.runner.statuses[-1]
    assert all(each.samples_per_s > 0 for each in status.scaling.speeds)
    assert status.scaling.rescale_s >= 0
    assert events(status, "Autoscaled") == [f"2 workers from now on: {why}"]


def test_one_that_is_to_have_no_workers_says_so_waits_and_goes_on(tmp_path):
    data = write_records(tmp_path / "train.npz", num_records=NUM_RECORDS, delay_ms=5)
    spec = obedient_spec(data, num_epochs=3, num_workers="0:2")
    with ThreadJob(spec, tmp_path) as job:
        job.wait_until(lambda statuses: statuses and statuses[-1].progress.records_done)
        job.runner.ask(num_workers=0, autoscaled_for="-2: its room goes to others")
        job.wait_until(lambda statuses: statuses[-1].reason == "Paused")
        paused = job.runner.statuses[-1]
        job.runner.ask(num_workers=1, autoscaled_for="+1: starts")
        status = job.wait()
    assert (paused.phase, paused.message) == (
        "Recovering", "goes on when it is to have workers again: -2: its room goes to others",
    )  # fmt: skip
    assert paused.time_split.current == "queue"
    assert status.phase == "Succeeded"
    (counts,) = read_cut(Path(status.checkpoint)).parameters.values()
    assert np.array_equal(counts, np.full(NUM_RECORDS, 3))
    assert status.workers_lost == 0


def test_a_next_life_goes_on_with_what_was_told(tmp_path):
    data = write_records(tmp_path / "train.npz", num_records=NUM_RECORDS, delay_ms=5)
    spec = obedient_spec(data, num_epochs=500)
    with ThreadJob(spec, tmp_path) as job:
        job.wait_until(told_sizes)
    before = job.runner.statuses[-1]
    assert before.scaling.speeds
    assert StatusBoard(spec, job.runner, before).build().scaling == before.scaling
