"""Ctrl-C while a real local job is submitted: what came of it ends, and nobody else's job does."""

import pytest
from cli.test_train_flags import REQUIRED
from support.local_jobs import Jobs, eventually

from elastic.platforms.local.platform import LocalPlatform
from elastic.spec.status import JobPhase

TRAIN = ("train", *REQUIRED, "--platform=local")


class Interrupted:
    """A platform on which Ctrl-C meets the submission: before it does anything, or when it has."""

    def __init__(self, platform: LocalPlatform, has_submitted: bool) -> None:
        self._platform = platform
        self._has_submitted = has_submitted

    def __call__(self, name, choice):
        return self

    def __getattr__(self, name):
        return getattr(self._platform, name)

    def submit(self, spec):
        if self._has_submitted:
            self._platform.submit(spec)
        raise KeyboardInterrupt


@pytest.fixture
def jobs(tmp_path, zoo):
    jobs = Jobs(tmp_path / "jobs")
    yield jobs
    jobs.end_all()


def ended(jobs):
    """A job that has succeeded, and of which no process is left."""
    platform = jobs.submit("test", master="finish")
    eventually(lambda: platform.status("test").phase is JobPhase.SUCCEEDED)
    eventually(lambda: not jobs.members("test"))


def test_a_resumed_job_is_stopped(run, jobs):
    ended(jobs)
    earlier = jobs.directory("test").submission().uid
    platform = Interrupted(jobs.platform("obey"), has_submitted=True)
    code, _, err = run(*TRAIN, "--resume", platform=platform)
    uid = jobs.directory("test").submission().uid
    jobs.uids.add(uid)
    assert uid != earlier
    assert (code, err.splitlines()[-1]) == (130, "job test has been stopped")
    assert jobs.members("test") == []
    assert platform.status("test").phase is JobPhase.CANCELLED


def test_a_job_that_has_ended_before_is_left_as_it_is(run, jobs):
    ended(jobs)
    platform = Interrupted(jobs.platform(), has_submitted=False)
    code, _, err = run(*TRAIN, "--resume", platform=platform)
    assert (code, err) == (130, "\njob test has not been submitted\n")
    assert platform.status("test").phase is JobPhase.SUCCEEDED


@pytest.mark.parametrize("flags", [(), ("--resume",)])
def test_an_older_job_of_the_name_runs_on(run, jobs, flags):
    older = jobs.submit("test", master="obey")
    eventually(lambda: older.status("test").phase is JobPhase.RUNNING)
    master = jobs.pid_of("master", "test")
    platform = Interrupted(jobs.platform(), has_submitted=False)
    code, _, err = run(*TRAIN, *flags, platform=platform)
    assert (code, err) == (130, "\njob test has not been submitted\n")
    assert older.status("test").phase is JobPhase.RUNNING
    assert [member.pid for member in jobs.members("test", "master")] == [master]
