"""`kill` leaves no process behind, whatever state the job's processes are in."""

import os
import signal
import time
from threading import Thread

import pytest
from support.local_job import suspend
from support.local_jobs import eventually, unreadable

from elastic.errors import PlatformError
from elastic.platforms.base import ReplicaId
from elastic.platforms.local import platform as local_platform
from elastic.platforms.local.platform import FORCE_TIMEOUT_S
from elastic.policy.replicas import KEEPING
from elastic.spec.status import JobPhase, JobStatus

TIMEOUT_S = 8.0
"""A quarter of it is for SIGKILL alone, which a loaded machine can do with."""
SLACK_S = 4.0
"""Less than any grace of the job's own processes, which must not be waited for."""


@pytest.fixture
def platform(jobs):
    """A job with a worker that obeys, one that ignores SIGTERM, and one with grandchildren."""
    for index, behaviour in enumerate(["run", "stubborn", "family"]):
        jobs.arrange(ReplicaId("worker", index, 1), behaviour)
    platform = jobs.submit(master="obey", num_workers="3")
    for index in range(3):
        eventually(lambda index=index: jobs.is_ready(ReplicaId("worker", index, 1)))
    # Supervisor, master, three workers, two children.
    eventually(lambda: len(jobs.members()) == 7)
    return platform


def stop(role):
    return lambda jobs: [suspend(m.pid) for m in jobs.members(role=role)]


def kill(*roles):
    def kill_roles(jobs):
        members = [m for role in roles for m in jobs.members(role=role)]
        for member in members:
            os.kill(member.pid, signal.SIGKILL)

    return kill_roles


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda jobs: None, id="healthy"),
        pytest.param(stop("worker"), id="workers-stopped"),
        pytest.param(stop("master"), id="master-stopped"),
        pytest.param(stop("supervisor"), id="supervisor-stopped"),
        pytest.param(stop(None), id="all-stopped"),
        pytest.param(kill("supervisor"), id="supervisor-dead"),
        pytest.param(kill("master"), id="master-dead"),
        pytest.param(kill("supervisor", "master"), id="both-dead"),
        pytest.param(kill("supervisor", "master", "worker"), id="only-grandchildren"),
    ],
)
def test_kill_leaves_nothing(jobs, platform, spoil):
    spoil(jobs)
    started_s = time.monotonic()
    platform.kill("job", TIMEOUT_S)
    assert time.monotonic() - started_s < TIMEOUT_S + FORCE_TIMEOUT_S + SLACK_S
    assert jobs.members() == []
    assert platform.status("job").phase is JobPhase.CANCELLED


def test_kill_tells_whom_it_waits_for(jobs):
    platform = jobs.submit(master="obey")
    jobs.pid_of("master")
    told = []
    platform.kill("job", TIMEOUT_S, told.append)
    assert told
    assert all(text.endswith(" to end") for text in told)
    assert any("master-0" in text or "its supervisor" in text for text in told)


def test_a_healthy_master_publishes_the_end_itself(jobs, platform):
    platform.kill("job", 120.0)
    status = platform.status("job")
    # The master's words have no message, the platform's do.
    assert (status.phase, status.message) == (JobPhase.CANCELLED, "")


def test_a_master_that_keeps_its_newest_version_is_waited_for(jobs, monkeypatch):
    monkeypatch.setattr(local_platform, "MASTER_S", 0.0)
    platform = jobs.submit(master="keep")
    eventually(lambda: platform.status("job").reason == KEEPING)
    platform.kill("job", 120.0)
    assert (platform.status("job").phase, platform.status("job").message) == (
        JobPhase.CANCELLED,
        "",
    )


def test_a_second_kill_waits_for_no_version(jobs):
    platform = jobs.submit(master="hoard")
    eventually(lambda: platform.status("job").reason == KEEPING)
    started_s = time.monotonic()
    first = Thread(target=platform.kill, args=("job", 240.0))
    first.start()
    eventually(jobs.directory().is_cancelled)
    platform.kill("job", 240.0)
    first.join()
    # The master's half of the time would be 120 s.
    assert time.monotonic() - started_s < 100.0
    assert jobs.members() == []
    assert platform.status("job").phase is JobPhase.CANCELLED


def test_kill_while_the_master_ends_again_and_again_cancels(jobs):
    platform = jobs.submit(master="falter")
    eventually(lambda: platform.status("job").phase is JobPhase.RECOVERING)
    platform.kill("job", 20.0)
    assert jobs.members() == []
    assert platform.status("job").phase is JobPhase.CANCELLED


def test_scale_does_not_undo_a_kill(jobs):
    jobs.submit(num_workers="1:3")
    directory = jobs.directory()
    directory.write_cancelled()
    directory.write_size(2)
    assert directory.control().cancelled


def test_a_job_that_lost_all_its_processes_can_be_cancelled(jobs):
    platform = jobs.submit(master="obey")
    jobs.pid_of("master")
    jobs.directory().write_status(JobStatus(job_name="job", phase=JobPhase.RUNNING))
    jobs.end_all()
    platform.kill("job", TIMEOUT_S)
    assert platform.status("job").phase is JobPhase.CANCELLED


def test_a_damaged_status_keeps_no_process_alive(jobs):
    platform = jobs.submit(master="obey")
    jobs.pid_of("master")
    eventually(lambda: jobs.directory().status())
    jobs.directory().status_path.write_text("{")
    platform.kill("job", TIMEOUT_S)
    assert jobs.members() == []
    assert platform.status("job").phase is JobPhase.CANCELLED


def test_a_status_that_cannot_be_read_now_is_not_overwritten(jobs):
    platform = jobs.submit(master="finish")
    eventually(lambda: platform.status("job").phase is JobPhase.SUCCEEDED)
    eventually(lambda: not jobs.members())
    with unreadable(jobs.directory().status_path), pytest.raises(PlatformError):
        platform.kill("job", TIMEOUT_S)
    assert platform.status("job").phase is JobPhase.SUCCEEDED


def test_a_master_that_has_not_trained_is_not_waited_for(jobs):
    platform = jobs.submit(master="idle")
    jobs.pid_of("master")
    started_s = time.monotonic()
    # Half of it would be the master's, which hears nothing while it imports its framework.
    platform.kill("job", 240.0)
    assert time.monotonic() - started_s < 100.0
    assert platform.status("job").phase is JobPhase.CANCELLED
