"""A master that is to end keeps its newest version, after which nothing counts."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.local_job import LocalJob
from support.thread_job import ThreadJob, obedient_spec, write_records

from elastic.checkpoints.cuts import list_cuts, read_cut
from elastic.platforms.registry import Departure
from elastic.spec.status import JobPhase

NUM_RECORDS = 200
NUM_EPOCHS = 3


def departing(spec, folder, *, recovery_stays=False):
    job = ThreadJob(spec, folder)
    job.environment = replace(job.environment, departure=Departure(), recovery_stays=recovery_stays)
    return job, job.environment.departure


@pytest.mark.parametrize("kept", ["cuts", "checkpoints"])
def test_whoever_resumes_the_job_loses_no_update(kept, tmp_path):
    data = write_records(tmp_path / "train.npz", num_records=NUM_RECORDS, delay_ms=2)
    log = tmp_path / "commits.jsonl"
    where = {"cuts": {}, "checkpoints": {"checkpoint_dir": str(tmp_path / "checkpoints")}}[kept]
    spec = obedient_spec(
        data, NUM_RECORDS, minibatch_size=5, num_workers="2", num_epochs=NUM_EPOCHS,
        commit_log=str(log), **where,
    )  # fmt: skip
    job, departure = departing(spec, tmp_path / "cuts", recovery_stays=kept == "cuts")
    with job:
        job.wait_until(lambda all_: all_ and all_[-1].progress.model_version > 5)
        assert departure.ask(60.0)
        reached = len(log.read_text().splitlines())
    # The workers went on until the job was cancelled, and nothing of it has counted.
    assert len(log.read_text().splitlines()) == reached
    [cut] = list_cuts(tmp_path / kept)
    assert read_cut(cut).version == reached
    [told] = [event for event in job.runner.statuses[-1].events if event.kind == "VersionKept"]
    assert f"version {reached} is kept" in told.message
    # Where no folder was asked for, only `--resume` has to find it.
    assert job.runner.statuses[-1].checkpoint == {"cuts": None, "checkpoints": str(cut)}[kept]

    again = ThreadJob(spec.model_copy(update={"resume": True}), tmp_path / "cuts")
    status = again.run()
    assert status.phase is JobPhase.SUCCEEDED, status
    [resumed] = [event for event in status.events if event.kind == "Resumed"]
    assert f"(version {reached})" in resumed.message
    counts = read_cut(Path(status.checkpoint)).parameters["counts"]
    assert counts.tolist() == [NUM_EPOCHS] * NUM_RECORDS


def test_a_master_that_is_only_preparing_has_nothing_to_keep(tmp_path):
    data = write_records(tmp_path / "train.npz", num_records=20)
    job, departure = departing(obedient_spec(data, 20), tmp_path / "cuts")
    assert departure.ask(60.0)
    with job:
        job.wait_until(lambda all_: bool(all_))
    assert [e for e in job.runner.statuses[-1].events if e.kind == "VersionKept"] == []


def test_a_job_that_its_user_ends_keeps_its_newest_version(tmp_path):
    """No cut would come for an hour."""
    data = write_records(tmp_path / "train.npz", num_records=NUM_RECORDS, delay_ms=2)
    spec = obedient_spec(
        data, NUM_RECORDS, minibatch_size=5, num_epochs=NUM_EPOCHS, recovery_interval=3600
    )
    with LocalJob(spec, tmp_path) as job:
        job.wait_until(lambda status: status.progress.model_version > 5)
        job.platform.kill("job", 60.0)
        ended = job.status()
        assert (ended.phase, ended.message) == (JobPhase.CANCELLED, "cancelled by its user")
        [cut] = list_cuts(job.directory.cuts_path)
        reached = read_cut(cut).version
        assert reached == ended.progress.model_version

        job.platform.submit(spec.model_copy(update={"resume": True}))
        status = job.succeed()
        assert job.parameters()["counts"].tolist() == [NUM_EPOCHS] * NUM_RECORDS
    assert status.progress.computed_again == 0
    [resumed] = [event for event in status.events if event.kind == "Resumed"]
    assert f"(version {reached})" in resumed.message
