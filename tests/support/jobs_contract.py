"""What every `Platform` must do for the command line; each implementation runs this suite.

The master's side of a platform has its own, in `platform_contract`.
"""

import re
import secrets
import time
from collections.abc import Callable
from typing import Any, Protocol

import pytest

from elastic.cli.control import plan, remove
from elastic.errors import JobExistsError, JobNotFoundError, JobSpecError, PlatformError
from elastic.platforms.base import Platform
from elastic.spec.status import JobPhase, JobStatus, Progress
from elastic.spec.values import Since

TIMEOUT_S = 120.0
"""For what comes about by itself."""
KILL_S = 90.0
MIN_WORKERS, MAX_WORKERS = 1, 4
SEED = 7
FINAL_WORKER_PHASES = {"Succeeded", "Failed"}
ASKS = {
    "status": lambda platform, name: platform.status(name),
    "spec": lambda platform, name: platform.spec(name),
    "scale": lambda platform, name: platform.scale(name, MIN_WORKERS),
    "kill": lambda platform, name: platform.kill(name, KILL_S),
    "forget": lambda platform, name: platform.forget(name),
    "logs": lambda platform, name: list(platform.logs(name, [], False, None)),
}
"""What can be asked of a job by its name."""


class JobsHarness(Protocol):
    """A platform and what its surroundings show of its jobs."""

    platform: Platform

    def submit(self, job_name: str, does: str, **settings: Any) -> None:
        """Submit a job of `MIN_WORKERS` to `MAX_WORKERS` workers, whose master is a small program.

        `lead` runs until it is cancelled, wants as many workers as it is asked for, and tells of
        them as running even with its last word; `finish` succeeds at model version 7 and `fail`
        fails for the reason `BadRecords`, each after a last line. What it does is in its log.
        """

    def start_worker(self, job_name: str) -> None:
        """See to it that worker 0 of a job that `lead`s runs and writes, sooner or later."""

    def life(self, job_name: str) -> object:
        """Tells this submission, and the lives of its master and worker 0, from any others."""

    def runs(self, job_name: str) -> bool:
        """Whether anything of the job is running, as the surroundings see it."""

    def traces(self, job_name: str) -> list[str]:
        """What there is of the job, by names for people."""


def until(probe: Callable[[], Any]) -> Any:
    """Wait until the probe gives something true, and return it."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not (found := probe()):
        assert time.monotonic() < deadline_s, "never came about"
        time.sleep(0.1)
    return found


def until_phase(platform: Platform, job_name: str, phase: JobPhase) -> JobStatus:
    """Wait until the job is in a phase and return its status."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while (status := platform.status(job_name)).phase is not phase:
        assert time.monotonic() < deadline_s, f"not {phase}: {status}"
        time.sleep(0.1)
    return status


def until_ended(harness: JobsHarness, job_name: str, phase: JobPhase) -> JobStatus:
    """Wait until the job has ended and nothing of it runs, and return its status."""
    until_phase(harness.platform, job_name, phase)
    until(lambda: not harness.runs(job_name))
    return harness.platform.status(job_name)


def new_name() -> str:
    """A name that no other job has."""
    return f"job-{secrets.token_hex(3)}"


def lead(harness: JobsHarness, job_name: str) -> None:
    """Have a job whose master and whose worker 0 run and have written something."""
    harness.submit(job_name, "lead", seed=SEED)
    until_phase(harness.platform, job_name, JobPhase.RUNNING)
    harness.start_worker(job_name)
    until(lambda: "worker-0" in [replica for replica, _ in logged(harness, job_name)])


def logged(
    harness: JobsHarness,
    job_name: str,
    *replicas: str,
    tail: int | None = None,
    follow: bool = False,
) -> list[tuple[str, str]]:
    """Replica and text of each line."""
    lines = harness.platform.logs(job_name, replicas, follow, tail)
    return [(line.replica, line.text) for line in lines]


class PlatformContract:
    """Inherit, and provide the fixture `harness` with the scope of the module."""

    @pytest.fixture(scope="class")
    @classmethod
    def running(cls, harness):
        """A job with a worker; tests may scale it, but leave it running."""
        name = f"{new_name()}-2"
        lead(harness, name)
        return name

    # -- a job that runs

    def test_a_job_is_found_by_its_name(self, harness, running):
        platform = harness.platform
        assert running in platform.jobs()
        assert running in [status.job_name for status in platform.statuses()]
        status = platform.status(running)
        assert (status.job_name, status.phase) == (running, JobPhase.RUNNING)
        assert status.submitted_s is not None
        assert status.ended_s is None

    def test_the_specification_reads_back(self, harness, running):
        spec = harness.platform.spec(running)
        assert (spec.job_name, spec.seed) == (running, SEED)
        assert (spec.num_workers.minimum, spec.num_workers.maximum) == (MIN_WORKERS, MAX_WORKERS)

    @pytest.mark.parametrize("how", [{}, {"overwrite": True}, {"resume": True}], ids=str)
    def test_a_second_job_of_its_name_is_refused_and_changes_nothing(self, harness, running, how):
        before = harness.life(running), harness.platform.spec(running)
        with pytest.raises(
            JobExistsError, match=rf"choose another --job_name, or `elastic kill {running}"
        ):
            harness.submit(running, "finish", seed=SEED + 1, **how)
        assert (harness.life(running), harness.platform.spec(running)) == before
        assert harness.platform.status(running).phase is JobPhase.RUNNING

    def test_a_running_job_is_not_forgotten(self, harness, running):
        with pytest.raises(JobExistsError, match="`elastic kill` it first"):
            harness.platform.forget(running)
        assert harness.platform.status(running).phase is JobPhase.RUNNING

    @pytest.mark.parametrize("num_workers", [MIN_WORKERS - 1, MAX_WORKERS + 1])
    def test_a_number_of_workers_outside_the_range_is_refused(self, harness, running, num_workers):
        harness.platform.scale(running, 2)
        until(lambda: harness.platform.status(running).desired_workers == 2)
        message = f"{num_workers} workers are outside the range {MIN_WORKERS}:{MAX_WORKERS} of job"
        with pytest.raises(JobSpecError, match=message):
            harness.platform.scale(running, num_workers)
        assert harness.platform.status(running).desired_workers == 2

    def test_scaling_changes_the_wanted_number(self, harness, running):
        for num_workers in (MAX_WORKERS, MIN_WORKERS):
            harness.platform.scale(running, num_workers)
            until(lambda n=num_workers: harness.platform.status(running).desired_workers == n)
        assert harness.platform.status(running).phase is JobPhase.RUNNING

    def test_logs_are_told_by_replica_the_master_first(self, harness, running):
        lines = logged(harness, running)
        assert lines[0][0] == "master-0"
        assert any("lead" in text for replica, text in lines if replica == "master-0")
        assert {replica for replica, _ in logged(harness, running, "worker-0")} == {"worker-0"}
        assert "master-0" not in {replica for replica, _ in logged(harness, running, "worker")}
        assert [replica for replica, _ in logged(harness, running, "worker-0", tail=1)] == [
            "worker-0"
        ]
        assert logged(harness, running, tail=0) == []

    def test_a_replica_without_a_log_is_refused_with_those_that_have_one(self, harness, running):
        with pytest.raises(PlatformError, match=r"'worker-7'.*name one of: master-0, worker-0"):
            logged(harness, running, "worker-7")

    def test_kill_leaves_nothing_running_and_may_be_repeated(self, harness, running):
        # Its name is the beginning of the other's.
        name = running.removesuffix("-2")
        platform, other = harness.platform, harness.life(running)
        lead(harness, name)
        assert harness.runs(name)
        platform.kill(name, KILL_S)
        assert not harness.runs(name)
        status = platform.status(name)
        assert status.phase is JobPhase.CANCELLED
        assert status.ended_s is not None
        assert {worker.phase for worker in status.workers} <= FINAL_WORKER_PHASES
        platform.kill(name, KILL_S)
        assert platform.status(name) == status
        with pytest.raises(JobSpecError, match=r"has ended as Cancelled.*--resume"):
            platform.scale(name, MAX_WORKERS)
        assert harness.life(running) == other
        assert platform.status(running).phase is JobPhase.RUNNING

    # -- a job that has ended

    @pytest.mark.parametrize(
        ("does", "phase", "reason"),
        [
            pytest.param("finish", JobPhase.SUCCEEDED, "", id="succeeded"),
            pytest.param("fail", JobPhase.FAILED, "BadRecords", id="failed"),
        ],
    )
    def test_the_end_of_a_job_stays_until_it_is_forgotten(self, harness, does, phase, reason):
        name, platform = new_name(), harness.platform
        harness.submit(name, does)
        status = until_ended(harness, name, phase)
        assert (status.reason, status.ended_s is None) == (reason, False)
        for num_workers in (MAX_WORKERS, MAX_WORKERS + 1):
            with pytest.raises(JobSpecError, match=f"has ended as {phase}") as refused:
                platform.scale(name, num_workers)
            # Of one that has succeeded nothing is left to do.
            assert ("--resume" in str(refused.value)) is (phase is JobPhase.FAILED)
        life = harness.life(name)
        with pytest.raises(JobExistsError, match=rf"ended as {phase}.*--resume.*--overwrite"):
            harness.submit(name, "finish")
        assert harness.life(name) == life
        platform.kill(name, KILL_S)
        assert platform.status(name) == status
        assert status in platform.statuses()
        platform.forget(name)
        assert harness.traces(name) == []

    def test_an_ended_job_has_its_whole_log_until_it_is_forgotten(self, harness):
        name = new_name()
        harness.submit(name, "finish")
        until_ended(harness, name, JobPhase.SUCCEEDED)
        whole = logged(harness, name, follow=True)
        assert len(whole) > 1
        assert whole[-1] == ("master-0", "last line")
        assert logged(harness, name) == whole
        for follow in (False, True):
            assert logged(harness, name, "master", tail=1, follow=follow) == whole[-1:]
        # Nothing of it runs, so nobody has to kill it first.
        harness.platform.forget(name)
        assert harness.traces(name) == []
        assert name not in harness.platform.jobs()
        for call in (harness.platform.status, harness.platform.forget):
            with pytest.raises(JobNotFoundError):
                call(name)

    def test_jobs_that_have_ended_are_pruned_and_no_others(self, harness, running):
        platform, names = harness.platform, [new_name(), new_name()]
        for name, does, phase in zip(
            names, ("finish", "fail"), (JobPhase.SUCCEEDED, JobPhase.FAILED), strict=True
        ):
            harness.submit(name, does)
            until_ended(harness, name, phase)
        before = harness.life(running)
        assert not {*names} & {s.job_name for s in plan(platform, Since(3600.0, True), True).going}
        # A server tells its time in whole seconds.
        found = plan(platform, Since(platform.now_s() + 60.0, False), False)
        going = [status for status in found.going if status.job_name in names]
        assert [status.job_name for status in going] == names
        assert running not in {status.job_name for status in found.going}
        for status in going:
            remove(platform, status)
        assert [trace for name in names for trace in harness.traces(name)] == []
        # Somebody else may prune at the same time.
        remove(platform, going[0])
        with pytest.raises(JobExistsError):
            remove(platform, platform.status(running))
        assert harness.life(running) == before

    def test_overwrite_begins_anew(self, harness):
        name = new_name()
        harness.submit(name, "finish")
        old = until_ended(harness, name, JobPhase.SUCCEEDED)
        assert old.progress.model_version == 7
        life = harness.life(name)
        harness.submit(name, "lead", seed=SEED, overwrite=True)
        # At once, whether or not the new master has spoken.
        status = harness.platform.status(name)
        assert (status.progress, status.ended_s) == (Progress(), None)
        assert not status.phase.is_final
        until_phase(harness.platform, name, JobPhase.RUNNING)
        assert harness.life(name) != life
        assert harness.platform.spec(name).seed == SEED

    # -- several jobs, and none

    def test_jobs_are_told_oldest_first_and_together_as_each_by_itself(self, harness):
        # Neither the order of the names nor its reverse.
        names = [f"{letter}-{new_name()}" for letter in "bca"]
        for name in names:
            harness.submit(name, "finish")
            assert harness.platform.status(name).job_name == name
        for name in names:
            until_ended(harness, name, JobPhase.SUCCEEDED)
        assert [name for name in harness.platform.jobs() if name in names] == names
        found = [status for status in harness.platform.statuses() if status.job_name in names]
        assert found == [harness.platform.status(name) for name in names]

    @pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
    def test_an_unknown_job_is_not_found(self, harness, ask):
        for name in ("none", "", "../jobs/none"):
            with pytest.raises(JobNotFoundError, match=f"^no job {name!r} in "):
                ask(harness.platform, name)

    @pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
    def test_a_name_that_only_begins_like_a_jobs_is_unknown_too(self, harness, running, ask):
        for name in (running[:-1], f"{running}#2", f"{running}?a=b", f"{running}/", f"{running} "):
            with pytest.raises(JobNotFoundError, match=f"^no job {re.escape(repr(name))} in "):
                ask(harness.platform, name)
        assert harness.platform.status(running).phase is JobPhase.RUNNING

    def test_a_job_needs_a_name(self, harness):
        with pytest.raises(JobSpecError, match="--job_name"):
            harness.submit("", "finish")
