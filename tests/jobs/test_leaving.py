"""A worker that is asked to leave before it has begun leaves at once: it holds nothing."""

import os
import signal
import subprocess
import sys

import pytest
from support.local_jobs import Jobs, eventually

from elastic.platforms.base import ExitReason, ReplicaId

PATIENCE_S = 120.0
MODULE = """
import pathlib, time
pathlib.Path({ready!r}).touch()
while True:
    try:
        time.sleep(60)
    except BaseException:
        pass
"""


@pytest.fixture
def jobs(tmp_path):
    jobs = Jobs(tmp_path)
    yield jobs
    jobs.end_all()


def test_a_module_that_is_still_imported_does_not_hold_its_worker(jobs, tmp_path):
    ready = tmp_path / "ready"
    (tmp_path / "slow.py").write_text(MODULE.format(ready=str(ready)))
    jobs.submit(model_zoo=tmp_path, model_def="slow.CustomModel")
    directory = jobs.directory()
    worker = subprocess.Popen(
        [sys.executable, "-P", "-m", "elastic.worker", "--job-dir", str(directory.path),
         "--index=0", "--launch=1"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    try:
        eventually(ready.exists)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE_S) == 0
    finally:
        worker.kill()
        worker.wait()
    termination = directory.termination(ReplicaId("worker", 0, 1))
    assert termination.reason is ExitReason.COMPLETED
