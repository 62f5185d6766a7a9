"""`--elastic_batch`: the master chooses how many gradients make an update; each record counts."""

from pathlib import Path

import numpy as np
import pytest
from support.scraping import free_ports, scrape, value
from support.thread_job import ThreadJob, events, obedient_spec, run_job, write_records

from elastic.checkpoints.cuts import read_cut
from elastic.master.status_board import StatusBoard
from elastic.policy import accounts

NUM_RECORDS, NUM_EPOCHS = 40, 40
BATCH = {"minibatch_size": 4, "elastic_batch": "8:40"}


@pytest.fixture(autouse=True)
def short_windows(monkeypatch):
    monkeypatch.setattr(accounts, "WINDOW_S", 0.2)


@pytest.mark.parametrize("num_workers", ["1", "3"])
def test_the_batch_grows_and_each_record_counts_once(num_workers, tmp_path):
    """Gradients that have nothing in common are all noise: the largest batch is as good as any."""
    data = write_records(tmp_path / "train.npz", num_records=NUM_RECORDS, delay_ms=2)
    spec = obedient_spec(data, num_epochs=NUM_EPOCHS, num_workers=num_workers, **BATCH)
    status = run_job(spec, tmp_path)
    (counts,) = read_cut(Path(status.checkpoint)).parameters.values()
    assert np.array_equal(counts, np.full(NUM_RECORDS, NUM_EPOCHS))
    assert status.progress.records_done == NUM_RECORDS * NUM_EPOCHS
    assert status.progress.model_version < NUM_RECORDS * NUM_EPOCHS // 8
    told = status.scaling.batch
    assert (told.minimum, told.maximum) == (8, 40)
    assert told.grad_var == pytest.approx(1.0, rel=1e-3)
    assert events(status, "BatchChanged")[0] == (
        "updates of 40 records instead of 8, each worth 100%: to see how fast it is"
    )
    assert {each.batch for each in status.scaling.speeds} >= {8, 40}


def test_a_next_life_begins_with_the_batch_and_the_noise_that_were_told(tmp_path):
    data = write_records(tmp_path / "train.npz", num_records=NUM_RECORDS, delay_ms=2)
    port = free_ports()
    spec = obedient_spec(data, num_epochs=5000, metrics_port=port, **BATCH)
    with ThreadJob(spec, tmp_path) as job:
        job.wait_until(lambda statuses: statuses and events(statuses[-1], "BatchChanged"))
        assert value(scrape(port), "elastic_batch_records") in (8, 40)
    before = job.runner.statuses[-1]
    assert before.scaling.batch.records == 40
    board = StatusBoard(spec, job.runner, before)
    assert board.build().scaling == before.scaling
    earlier, told = board.earlier_batch, before.scaling.batch
    assert (earlier.batch, earlier.noise.num_updates) == (40, told.updates_measured)
    assert told.first_grad_var > 0
    first = earlier.first_noise
    assert (first.sqr, first.var) == (told.first_grad_sqr, told.first_grad_var)
    assert earlier.measured_at == told.measured_at > 0
    assert earlier.growth == (told.noise_growth, told.changes_measured)


def test_a_next_life_that_has_no_cut_begins_with_the_smallest_batch(tmp_path):
    """Its gradients are those of the first records again."""

    def grown(statuses):
        batches = [each.scaling and each.scaling.batch for each in statuses]
        return [
            status
            for status, batch in zip(statuses, batches, strict=True)
            if batch and batch.records == 40
        ]

    data = write_records(tmp_path / "train.npz", num_records=NUM_RECORDS, delay_ms=2)
    spec = obedient_spec(data, num_epochs=500, recovery_interval=600, **BATCH)
    with ThreadJob(spec, tmp_path / "first") as job:
        job.wait_until(grown)
    told = grown(job.runner.statuses)[0]
    next_life = ThreadJob(spec, tmp_path / "nothing")
    next_life.runner.publish_status(told)
    earlier = len(events(told, "BatchChanged"))
    with next_life:
        next_life.wait_until(lambda all_: len(events(all_[-1], "BatchChanged")) > earlier)
    change = events(next_life.runner.statuses[-1], "BatchChanged")[earlier]
    assert change.startswith("updates of 40 records instead of 8,")


def test_without_it_nothing_is_measured(tmp_path):
    data = write_records(tmp_path / "train.npz", num_records=NUM_RECORDS)
    status = run_job(obedient_spec(data, num_workers=2), tmp_path)
    assert status.scaling.batch is None
    assert {each.batch for each in status.scaling.speeds} <= {None}
