"""Where results go: refused before anything starts, or told once, with where they lie instead."""

import json
import os
from contextlib import suppress

import pytest
from support.thread_job import ThreadJob, events, obedient_spec, run_job, write_records

from elastic.spec.status import JobPhase

NUM_RECORDS = 40


@pytest.fixture
def data(tmp_path):
    return write_records(tmp_path / "train.npz")


def _refusal(spec, tmp_path):
    """The message of a job that ended before it started anything."""
    job = ThreadJob(spec, tmp_path / "cuts")
    status = job.run()
    assert (status.phase, status.reason) == (JobPhase.FAILED, "JobSpec")
    assert job.runner.launched == []
    return status.message


@pytest.mark.parametrize("name", ["checkpoint_dir", "output"])
@pytest.mark.parametrize(
    ("folder", "words"),
    [
        ("/proc/elastic", "No such file or directory: name another path"),
        ("{tmp_path}/train.npz", "Not a directory: name another path"),
        ("{tmp_path}/train.npz/below", "Not a directory: name another path"),
    ],
)
def test_a_folder_that_cannot_be_written_is_refused(name, folder, words, data, tmp_path):
    folder = folder.format(tmp_path=tmp_path)
    path, what = (
        (folder, "cannot be a folder of checkpoints")
        if name == "checkpoint_dir"
        else (f"{folder}/model", "cannot be written")
    )
    spec = obedient_spec(data, **{name: path})
    assert _refusal(spec, tmp_path) == f"--{name}={path} {what}: {folder}: {words}"


@pytest.mark.parametrize("name", ["output", "commit_log"])
def test_a_folder_is_no_file(name, data, tmp_path):
    assert _refusal(obedient_spec(data, **{name: str(tmp_path)}), tmp_path) == (
        f"--{name}={tmp_path} is a folder: name a file, such as {tmp_path}/NAME"
    )


@pytest.mark.parametrize("name", ["checkpoint_dir", "output"])
def test_a_disk_that_is_full_already_is_refused(name, data, small_disk, tmp_path):
    _fill(small_disk)
    message = _refusal(obedient_spec(data, **{name: f"{small_disk}/results/1"}), tmp_path)
    assert message.endswith(": No space left on device: free space there or name another path")


def test_checking_leaves_nothing_behind(data, tmp_path):
    out = tmp_path / "new" / "out"
    status = run_job(obedient_spec(data, output=f"{out}/model"), tmp_path)
    assert status.export == f"{out}/model.safetensors"
    assert [path.name for path in out.iterdir()] == ["model.safetensors"]


def test_an_export_that_fails_ends_the_job_once(small_disk, tmp_path):
    num_records = 10_000  # 40 KB of parameters
    data = write_records(tmp_path / "train.npz", num_records=num_records)
    spec = obedient_spec(
        data, num_records, minibatch_size=5000, records_per_task=5000,
        output=f"{small_disk}/model", evaluation_data_dir=str(data),
    )  # fmt: skip
    _fill(small_disk, but_bytes=16 * 1024)
    status = run_job(spec, tmp_path)
    assert (status.phase, status.reason) == (JobPhase.FAILED, "JobSpec")
    assert status.message == (
        f"--output={small_disk}/model cannot be written: No space left on device; the trained "
        f"model is in the checkpoint {tmp_path}/cuts/version-0000000002: free space there or name "
        "another path, and run the job again with --resume"
    )
    assert [path.name for path in small_disk.iterdir()] == ["filling"]
    assert len(events(status, "Evaluated")) == 1
    (small_disk / "filling").unlink()
    status = run_job(spec.model_copy(update={"resume": True}), tmp_path)
    assert status.phase is JobPhase.SUCCEEDED
    assert status.export == f"{small_disk}/model.safetensors"
    assert not events(status, "Evaluated"), "nothing is computed again"


def test_a_job_whose_result_is_kept_nowhere_has_failed(data, small_disk, tmp_path):
    _fill(small_disk)
    status = run_job(obedient_spec(data), small_disk)
    assert (status.phase, status.reason) == (JobPhase.FAILED, "Checkpoint")
    assert status.message == (
        f"the trained model could not be kept as a checkpoint: NOT in {small_disk}/cuts: "
        "No space left on device: free space there or name another path, and run the job again "
        "with --resume"
    )
    output = tmp_path / "model.safetensors"
    status = run_job(obedient_spec(data, output=str(output)), small_disk)
    assert (status.phase, status.export) == (JobPhase.SUCCEEDED, str(output))


def test_a_commit_log_on_a_full_disk_fails_the_job_once(data, tmp_path):
    status = run_job(obedient_spec(data, commit_log="/dev/full"), tmp_path)
    assert (status.phase, status.reason) == (JobPhase.FAILED, "Training")
    assert status.message == (
        "--commit_log=/dev/full cannot be written: No space left on device: free space there or "
        "name another path, and run the job again with --resume"
    )


def test_a_file_that_is_no_commit_log_is_not_gone_on_with(data, tmp_path):
    run_job(obedient_spec(data), tmp_path)
    notes = tmp_path / "notes"
    notes.write_text("of mine\n")
    spec = obedient_spec(data, commit_log=str(notes), resume=True, num_epochs=2)
    status = run_job(spec, tmp_path)
    assert (status.phase, status.reason) == (JobPhase.FAILED, "JobSpec")
    assert status.message == (
        f"--commit_log={notes} is no commit log, so it cannot be gone on with: name another file"
    )
    assert notes.read_text() == "of mine\n"


def test_a_resumed_commit_log_forgets_the_lost_future(data, tmp_path):
    path = tmp_path / "log"
    spec = obedient_spec(data, commit_log=str(path), minibatch_size=10)
    run_job(spec, tmp_path)
    kept = path.read_text()
    path.write_text(kept + '{"version": 5, "epoch": 0, "records": []}\n{"version": 6, "ep')
    run_job(spec.model_copy(update={"resume": True, "num_epochs": 2}), tmp_path)
    lines = path.read_text()
    assert lines.startswith(kept)
    assert [json.loads(line)["version"] for line in lines.splitlines()] == list(range(1, 9))
    assert all(json.loads(line)["records"] for line in lines.splitlines())


def _fill(disk, but_bytes=0):
    """Write to a disk until it is full, and give some of it back."""
    filling = disk / "filling"
    with filling.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1024))
    assert os.statvfs(disk).f_bavail == 0
    os.truncate(filling, filling.stat().st_size - but_bytes)
