"""A trained model is evaluated and predicts in the cluster, whatever is lost meanwhile."""

import pytest
from support.cluster import needs_cluster
from support.single_pass import predicted_rows
from support.whole_jobs import CONTROL, Workshop

pytestmark = needs_cluster

NUM_RECORDS = 400
NUM_EPOCHS = 2
DATA = "/model_zoo/train.npz"


@pytest.fixture(scope="module")
def workshop():
    workshop = Workshop(NUM_RECORDS, "single")
    yield workshop
    workshop.close()


@pytest.fixture(scope="module")
def checkpoint(workshop):
    """Where pods find a model that has counted each record as often as there were epochs."""
    job = workshop.submit("trained", num_workers="2", num_epochs=NUM_EPOCHS, grads_to_wait=2)
    job.hurry()
    path = job.succeed().checkpoint
    job.platform.kill("trained", 60)
    return path


def _submit(workshop, kind, name, checkpoint, **changes):
    return workshop.submit(
        name,
        kind=kind,
        training_data_dir="",
        checkpoint_dir="",
        checkpoint_filename_for_init=checkpoint,
        model_params={"num_records": NUM_RECORDS, "delay_ms": 300},
        num_workers="2",
        **changes,
    )


def _break_everything(job):
    """One worker's pod, another's container, and the master's."""
    job.until(lambda s: [bool(w.records_done) for w in s.workers] == [True, True])
    job.delete_pod(job.pod("worker-0"), 0)
    job.until(lambda s: s.workers_lost == 1 and all(w.phase == "Running" for w in s.workers))
    assert job.kill_container(job.pod("worker-1"))
    job.until(lambda s: s.workers_lost == 2)
    assert job.kill_container(job.pod("master"))
    job.until(lambda s: s.master_restarts == 1)
    job.hurry()
    return job.succeed()


def test_evaluating_counts_each_record_once(workshop, checkpoint):
    job = _submit(workshop, "evaluate", "evaluated", checkpoint, evaluation_data_dir=DATA)
    status = _break_everything(job)
    assert status.progress.records_done == NUM_RECORDS
    # The mean over all records of what was counted for each.
    assert status.metrics["loss"] == pytest.approx(-NUM_EPOCHS, rel=1e-6)


def test_every_record_has_its_prediction_once(workshop, checkpoint):
    folder = workshop.shared / "predicted"
    job = _submit(
        workshop,
        "predict",
        "predicted",
        checkpoint,
        prediction_data_dir=DATA,
        prediction_outputs=f"{CONTROL}/predicted",
    )
    status = _break_everything(job)
    assert status.predictions == f"{CONTROL}/predicted"
    rows = predicted_rows(folder)
    assert {index: float(row["prediction"]) for index, row in rows.items()} == dict.fromkeys(
        range(NUM_RECORDS), float(NUM_EPOCHS)
    )
