"""Jobs whose master or workers do not get through what comes before the first task."""

import pytest
import torch  # noqa: F401 - so that no time of a test goes into importing it on a job's thread
from support.gate import Gate
from support.local_job import LocalJob
from support.thread_job import (
    ZOO,
    ThreadJob,
    events,
    held_spec,
    obedient_spec,
    run_job,
    write_records,
)

from elastic.master.replica_manager import SET_UP_GRACE_S
from elastic.policy.replicas import PREPARING, ReplicaId
from elastic.spec.status import JobPhase

HEAD = """import os, threading, time
from pathlib import Path
from held import *
from held import CustomModel as Held
FOLDER = Path({folder!r})
"""
NUM_HEAD_LINES = HEAD.count("\n")
HANGING_DATASET_FN = """def dataset_fn(dataset, mode):
    while not (FOLDER / "released").exists(): time.sleep(0.01)
    yield from ()
"""
LEAVING_DATASET_FN = """def dataset_fn(dataset, mode):
    raise SystemExit("bye")
"""
HANG_ONCE = """def hang_once_in_worker_1(name):
    if name.startswith("worker-1") and not (FOLDER / "hung").exists():
        (FOLDER / "hung").touch()
        while not (FOLDER / "released").exists(): time.sleep(0.01)
"""
HANGS_IN_ITS_IMPORT = f"""{HANG_ONCE}
hang_once_in_worker_1(os.environ["ELASTIC_REPLICA"])
"""
HANGS_IN_ITS_MODEL = f"""{HANG_ONCE}
class CustomModel(Held):
    def __init__(self, **params):
        super().__init__(**params)
        hang_once_in_worker_1(threading.current_thread().name)
"""
FIRST_EXPORT_FAILS = """class CustomModel(Held):
    def state_dict(self, *args, **kwargs):
        if self.counts.any() and not (FOLDER / "failed").exists():
            (FOLDER / "failed").touch()
            raise MemoryError("no room for the export")
        return super().state_dict(*args, **kwargs)
"""


@pytest.fixture
def folder(tmp_path):
    """Where the modules of these tests look and leave their marks."""
    path = tmp_path / "marks"
    path.mkdir()
    yield path
    (path / "released").touch()


def _with_module(spec, folder, text):
    """The job with a module of its own: the held one with something added."""
    zoo = folder.with_name("zoo")
    zoo.mkdir()
    for name in ("held.py", "obedient.py", "waiting.py"):
        (zoo / name).symlink_to(ZOO / name)
    (zoo / "mine.py").write_text(HEAD.format(folder=str(folder)) + text)
    return spec.model_copy(update={"model_zoo": zoo, "model_def": "mine.CustomModel"})


def test_a_dataset_fn_that_hangs_is_told_while_it_does_and_fails_the_job(tmp_path, folder):
    spec = obedient_spec(write_records(tmp_path / "train.npz"), start_timeout=3)
    spec = _with_module(spec, folder, HANGING_DATASET_FN)
    step = "dataset_fn of mine on the first records"
    with ThreadJob(spec, tmp_path / "cuts") as job:
        job.wait_until(lambda statuses: statuses and statuses[-1].message == step)
        status = job.runner.statuses[-1]
        assert (status.phase, status.reason) == (JobPhase.STARTING, PREPARING)
        status = job.wait()
    assert (status.phase, status.reason) == (JobPhase.FAILED, "PreparationTimeout")
    assert status.message == (
        f"dataset_fn ({tmp_path}/zoo/mine.py:{NUM_HEAD_LINES + 2}) hangs while the master prepares "
        f"the job ({step}): that took longer than start_timeout=3 s: mend it, or raise "
        "--start_timeout"
    )


def test_a_dataset_fn_that_ends_the_process_fails_the_job_at_once(tmp_path, folder):
    spec = obedient_spec(write_records(tmp_path / "train.npz"))
    status = run_job(_with_module(spec, folder, LEAVING_DATASET_FN), tmp_path)
    assert (status.phase, status.reason) == (JobPhase.FAILED, "ModelDef")
    assert status.message == (
        f"dataset_fn failed: SystemExit: bye ({tmp_path}/zoo/mine.py:{NUM_HEAD_LINES + 2})"
        "; the master's log has the traceback"
    )


def test_a_worker_that_hangs_in_set_up_is_replaced(tmp_path, folder):
    """It stands still before it has called the master once."""
    gate = Gate(tmp_path / "gate")
    # Ten times what a worker of these needs.
    spec = held_spec(write_records(tmp_path / "train.npz"), gate, num_workers="2", start_timeout=20)
    with LocalJob(_with_module(spec, folder, HANGS_IN_ITS_IMPORT), tmp_path) as job, gate:
        job.wait_until(lambda s: events(s, "WorkerHung"))
        # Held until then, so that the job had not ended.
        job.wait_until(lambda s: s.workers[1].launch == 2)
        gate.open()
        status = job.succeed()
    assert events(status, "WorkerHung") == [
        "worker-1 hung in set-up: no first task within start_timeout=20 s and is replaced"
    ]
    assert events(status, "WorkerScaledAway") == []
    assert (status.workers_lost, status.worker_failures) == (1, 0)


def test_the_end_of_a_job_does_not_wait_for_a_worker_in_set_up(tmp_path, folder):
    gate = Gate(tmp_path / "gate")
    spec = held_spec(write_records(tmp_path / "train.npz"), gate, num_workers="2")
    spec = _with_module(spec, folder, HANGS_IN_ITS_MODEL)
    with ThreadJob(spec, tmp_path / "cuts") as job, gate:
        job.wait_until(lambda _: (folder / "hung").exists())
        gate.open()
        job.wait_until(lambda _: job.runner.deleted)
        (folder / "released").touch()
        assert job.wait().phase is JobPhase.SUCCEEDED
    assert job.runner.deleted == [(ReplicaId("worker", 1, 1), SET_UP_GRACE_S)]


def test_a_master_that_dies_of_an_exception_leaves_its_workers_alone(tmp_path, folder):
    gate = Gate(tmp_path / "gate")
    gate.open()
    spec = held_spec(
        write_records(tmp_path / "train.npz"), gate, output=str(tmp_path / "model.safetensors")
    )
    with LocalJob(_with_module(spec, folder, FIRST_EXPORT_FAILS), tmp_path) as job:
        status = job.succeed()
    assert (folder / "failed").exists()
    assert events(status, "MasterRestarted") == [
        "the master was restarted: the one before failed: MemoryError: no room for the export"
    ]
    assert events(status, "WorkerStarted") == []
    assert (status.workers_lost, status.workers[0].launch) == (0, 1)
