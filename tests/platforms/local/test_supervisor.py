"""What a supervisor does beyond the contract of the runner."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.local_jobs import eventually, unreadable

from elastic.errors import PlatformError
from elastic.platforms.base import ReplicaId
from elastic.platforms.local.directory import JobDirectory, read_whole
from elastic.platforms.local.processes import JOB_UID_VARIABLE, find_members
from elastic.platforms.local.supervisor import (
    EXIT_BUSY,
    SUPERVISOR_MODULE,
    TICK_S,
    start_supervisor,
)
from elastic.platforms.local.surroundings import share_cores
from elastic.spec.status import JobPhase


@pytest.fixture
def platform(jobs):
    for index, behaviour in enumerate(["run", "stubborn"]):
        jobs.arrange(ReplicaId("worker", index, 1), behaviour)
    platform = jobs.submit(master="obey", num_workers="2")
    for index in range(2):
        eventually(lambda index=index: jobs.is_ready(ReplicaId("worker", index, 1)))
    return platform


def test_a_second_supervisor_leaves_the_first_alone(jobs, platform):
    first = jobs.pid_of("supervisor")
    command = [sys.executable, "-m", SUPERVISOR_MODULE, str(jobs.directory().path)]
    assert subprocess.run(command, check=False).returncode == EXIT_BUSY
    start_supervisor(jobs.directory())
    assert [member.pid for member in jobs.members(role="supervisor")] == [first]


def test_a_folder_without_a_job_gets_none(tmp_path):
    with pytest.raises(PlatformError, match="holds no job"):
        start_supervisor(JobDirectory(tmp_path))


def test_a_supervisor_asked_to_stop_takes_its_replicas_along(jobs, platform):
    os.kill(jobs.pid_of("supervisor"), signal.SIGTERM)
    eventually(lambda: not jobs.members())
    # The job itself has not ended, so it can be resumed.
    eventually(lambda: platform.status("job").phase is JobPhase.RECOVERING)


def test_the_processes_of_a_removed_job_end(jobs, platform):
    uid = jobs.directory().submission().uid
    shutil.rmtree(jobs.directory().path)
    eventually(lambda: not find_members(uid))


def test_what_runs_goes_on_while_the_folder_cannot_be_looked_at(jobs):
    jobs.submit(master="idle")
    directory, master = jobs.directory(), ReplicaId("master", 0, 1)
    # It has read what it needs.
    eventually(lambda: "master idle" in (read_whole(directory.log_path(master)) or ""))
    before = sorted(member.pid for member in jobs.members())
    with unreadable(directory.path):
        warned = directory.path.with_name(".job.aside") / "supervisor.log"
        eventually(lambda: warned.read_text().count("cannot look at") > 1)
    assert sorted(member.pid for member in jobs.members()) == before
    os.kill(jobs.pid_of("master"), signal.SIGKILL)
    eventually(lambda: jobs.members(role="master") and jobs.pid_of("master") not in before)


def test_a_supervisor_that_cannot_see_what_runs_waits_until_it_can(jobs):
    jobs.submit(master="idle")
    master = jobs.pid_of("master")
    directory = jobs.directory()
    os.kill(jobs.pid_of("supervisor"), signal.SIGKILL)
    eventually(lambda: not directory.supervisor_lock.is_held())
    with unreadable(directory.observed_path):
        start_supervisor(directory)
        eventually(lambda: "cannot list" in directory.supervisor_log_path.read_text())
        assert directory.supervisor_lock.is_held()
    eventually(lambda: "adopted master-0-1" in directory.supervisor_log_path.read_text())
    assert jobs.pid_of("master") == master


def test_a_master_keeps_its_share_of_the_cores_to_itself(jobs, monkeypatch):
    jobs.submit(master="idle")
    master = jobs.pid_of("master")
    os.kill(jobs.pid_of("supervisor"), signal.SIGKILL)
    os.kill(master, signal.SIGKILL)
    directory = jobs.directory()
    eventually(lambda: not directory.supervisor_lock.is_held() and not jobs.members())
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_THREADS")}
    environment["TF_NUM_INTRAOP_THREADS"] = "7"
    monkeypatch.setattr(os, "environ", environment)
    # As a master does, before it finds that its supervisor is gone.
    share_cores(1)
    assert "OMP_NUM_THREADS" in environment
    start_supervisor(directory)
    told = Path(f"/proc/{jobs.pid_of('master')}/environ").read_text().split("\0")
    assert [text for text in told if "_THREADS=" in text] == ["TF_NUM_INTRAOP_THREADS=7"]


def test_a_clock_that_was_set_ends_no_replica(jobs):
    jobs.submit(master="idle")
    master, directory = jobs.pid_of("master"), jobs.directory()
    eventually(lambda: [o.replica.pid for o in directory.observed()] == [master])
    os.kill(jobs.pid_of("supervisor"), signal.SIGKILL)
    eventually(lambda: not directory.supervisor_lock.is_held())
    # All times of day that the system tells of its processes have moved by as much.
    program = (
        "import psutil, sys\n"
        "create_time = psutil.Process.create_time\n"
        "psutil.Process.create_time = lambda process: create_time(process) + 5.0\n"
        "from elastic.platforms.local import supervisor\n"
        "supervisor.main([sys.argv[1]])\n"
    )
    with directory.supervisor_log_path.open("ab") as log:
        subprocess.run(
            [sys.executable, "-c", program, str(directory.path)],
            env=os.environ | {JOB_UID_VARIABLE: directory.submission().uid},
            stderr=log,
            check=True,
        )
    eventually(lambda: f"with pid {master}" in directory.supervisor_log_path.read_text())
    assert [member.pid for member in jobs.members(role="master")] == [master]


def test_an_end_seen_while_the_disk_was_full_is_told_later(jobs, platform):
    supervisor = jobs.pid_of("supervisor")
    limits = resource.prlimit(supervisor, resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
    worker = next(m for m in jobs.members(role="worker") if m.replica.index == 0)
    jobs.arrange(ReplicaId("worker", 0, 2), "run")
    os.kill(worker.pid, signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{worker.pid}").exists())
    # It was reaped; only then is its end written. A whole tick, so that it was tried.
    time.sleep(TICK_S)
    (told,) = [o.replica for o in jobs.directory().observed() if o.replica.id == worker.replica]
    assert told.exit_reason is None
    resource.prlimit(supervisor, resource.RLIMIT_FSIZE, limits)
    eventually(lambda: jobs.is_ready(ReplicaId("worker", 0, 2)))
    assert jobs.pid_of("supervisor") == supervisor


def test_a_master_that_stays_on_after_its_job_is_ended(jobs):
    jobs.submit(master="linger")
    directory = jobs.directory()
    eventually(lambda: directory.status() is not None)
    os.kill(jobs.pid_of("supervisor"), signal.SIGKILL)
    eventually(lambda: not directory.supervisor_lock.is_held())
    jobs.start_supervisor(MASTER_GRACE_S=0.1)
    eventually(lambda: not jobs.members())
    assert directory.status().phase is JobPhase.SUCCEEDED
