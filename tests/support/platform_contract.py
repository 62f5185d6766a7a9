"""What every `ReplicaRunner` must do; each implementation runs this suite.

The command line's side of a platform has its own, in `jobs_contract`.
"""

import time
from collections.abc import Callable
from typing import Protocol

from elastic.platforms.base import (
    ExitReason,
    JobControl,
    Replica,
    ReplicaId,
    ReplicaPhase,
    ReplicaRunner,
)
from elastic.spec.status import JobPhase, JobStatus, Progress, WorkerStatus

TIMEOUT_S = 120.0
"""For what comes about by itself, and a grace that no test outlasts."""
FIRST = ReplicaId("worker", 0, 1)
SECOND = ReplicaId("worker", 1, 1)
THIRD = ReplicaId("worker", 0, 2)
"""Of the same index as the first."""


class Harness(Protocol):
    """A runner and what its surroundings do to it."""

    runner: ReplicaRunner

    def arrange(self, replica: ReplicaId, behaviour: str) -> None:
        """Choose what a replica does when it is launched.

        `run` (until it is ended), `stubborn` (ignores SIGTERM), `succeed`, `fail` (with
        ValueError: bad record), `crash` (SIGSEGV), `unstartable`.
        """

    def settle(self, replica: ReplicaId) -> None:
        """Wait until the replica does what was arranged."""

    def kill(self, replica: ReplicaId) -> None:
        """SIGKILL from outside."""

    def restart(self) -> None:
        """Replace the runner by that of the next life of the master."""

    def ask(self, num_workers: int | None = None, cancelled: bool = False) -> None:
        """Ask for something as a user does."""

    def identity(self, replica: Replica) -> object:
        """Tells one life of a replica from any other; None where it has not begun."""

    def published_address(self) -> str | None:
        """What workers would read."""

    def expected_address(self, published: str) -> str:
        """The same where workers read what was published; elsewhere the name they use instead."""


def until(runner: ReplicaRunner, is_so: Callable[[dict[ReplicaId, Replica]], bool]):
    """Wait for a state of the observed replicas and return them."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        observed = {replica.id: replica for replica in runner.observe()}
        if is_so(observed):
            return observed
        assert time.monotonic() < deadline_s, f"never came about; observed: {observed}"
        runner.wait(1.0)


def until_phase(runner: ReplicaRunner, replica: ReplicaId, phase: ReplicaPhase) -> Replica:
    """Wait until one launch is in a phase and return it."""
    return until(runner, lambda o: replica in o and o[replica].phase is phase)[replica]


def until_ended(runner: ReplicaRunner, replica: ReplicaId) -> Replica:
    """Wait until one launch has ended and return it."""
    return until(runner, lambda o: replica in o and o[replica].exit_reason is not None)[replica]


def launch(harness: Harness, replica: ReplicaId, behaviour: str = "run") -> Replica:
    """Launch a replica and wait until it does what was arranged."""
    harness.arrange(replica, behaviour)
    harness.runner.launch(replica)
    running = until_phase(harness.runner, replica, ReplicaPhase.RUNNING)
    harness.settle(replica)
    return running


def until_quiet(runner: ReplicaRunner, quiet_s: float) -> float:
    """Wait until nothing changes for `quiet_s`; returns how long the last `wait` took."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        started_s = time.monotonic()
        if not runner.wait(quiet_s):
            return time.monotonic() - started_s
        runner.observe()
        assert started_s < deadline_s, "something changes all the time"


class ReplicaRunnerContract:
    """Inherit, and provide the fixture `harness`."""

    def test_nothing_is_there_at_first(self, harness):
        assert list(harness.runner.observe()) == []
        assert harness.runner.control() == JobControl()
        assert harness.runner.last_status() is None

    def test_a_launch_is_observed_at_once_and_runs(self, harness):
        harness.arrange(FIRST, "run")
        harness.runner.launch(FIRST)
        assert [replica.id for replica in harness.runner.observe()] == [FIRST]
        running = until_phase(harness.runner, FIRST, ReplicaPhase.RUNNING)
        assert harness.identity(running) is not None
        assert running.started_s is not None
        assert running.exit_reason is None

    def test_launching_twice_changes_nothing(self, harness):
        first = harness.identity(launch(harness, FIRST))
        harness.runner.launch(FIRST)
        launch(harness, SECOND)
        observed = {r.id: r for r in harness.runner.observe()}
        assert observed[FIRST].phase is ReplicaPhase.RUNNING
        assert harness.identity(observed[FIRST]) == first

    def test_an_ended_launch_is_not_started_again(self, harness):
        harness.arrange(FIRST, "succeed")
        harness.runner.launch(FIRST)
        ended = until_ended(harness.runner, FIRST)
        harness.runner.launch(FIRST)
        launch(harness, SECOND)
        assert {r.id: r for r in harness.runner.observe()}[FIRST] == ended

    def test_a_new_launch_of_an_index_is_a_new_life(self, harness):
        first = harness.identity(launch(harness, FIRST))
        harness.kill(FIRST)
        until_ended(harness.runner, FIRST)
        second = launch(harness, ReplicaId("worker", 0, 2))
        assert harness.identity(second) != first
        assert len(harness.runner.observe()) == 2

    def test_delete_ends_a_replica_as_killed(self, harness):
        launch(harness, FIRST)
        harness.runner.delete(FIRST, grace_s=TIMEOUT_S)
        ended = until_ended(harness.runner, FIRST)
        assert (ended.phase, ended.exit_reason) == (ReplicaPhase.FAILED, ExitReason.KILLED)

    def test_delete_leaves_others_alone(self, harness):
        launch(harness, FIRST)
        launch(harness, SECOND)
        harness.runner.delete(FIRST, grace_s=TIMEOUT_S)
        until_ended(harness.runner, FIRST)
        until_phase(harness.runner, SECOND, ReplicaPhase.RUNNING)

    def test_delete_overcomes_a_stubborn_replica_only_after_the_grace(self, harness):
        launch(harness, FIRST, "stubborn")
        harness.runner.delete(FIRST, grace_s=TIMEOUT_S)
        launch(harness, SECOND)
        until_phase(harness.runner, FIRST, ReplicaPhase.RUNNING)
        harness.runner.delete(FIRST, grace_s=0.0)
        assert until_ended(harness.runner, FIRST).exit_reason is ExitReason.KILLED

    def test_delete_of_an_unknown_replica_changes_nothing(self, harness):
        harness.runner.delete(FIRST, grace_s=0.0)
        launch(harness, SECOND)
        assert [replica.id for replica in harness.runner.observe()] == [SECOND]

    def test_a_replica_killed_from_outside_is_killed(self, harness):
        launch(harness, FIRST)
        harness.kill(FIRST)
        ended = until_ended(harness.runner, FIRST)
        assert (ended.phase, ended.exit_reason) == (ReplicaPhase.FAILED, ExitReason.KILLED)

    def test_a_replica_that_says_so_and_exits_with_0_has_completed(self, harness):
        harness.arrange(FIRST, "succeed")
        harness.runner.launch(FIRST)
        ended = until_ended(harness.runner, FIRST)
        assert (ended.phase, ended.exit_reason) == (ReplicaPhase.SUCCEEDED, ExitReason.COMPLETED)
        assert ended.exit_code == 0

    def test_a_failing_replica_is_a_user_error_with_its_last_words(self, harness):
        harness.arrange(FIRST, "fail")
        harness.runner.launch(FIRST)
        ended = until_ended(harness.runner, FIRST)
        assert (ended.phase, ended.exit_reason) == (ReplicaPhase.FAILED, ExitReason.USER_ERROR)
        assert ended.message == "ValueError: bad record"
        assert ended.exit_code == 1

    def test_a_crash_is_a_user_error_that_names_the_signal(self, harness):
        harness.arrange(FIRST, "crash")
        harness.runner.launch(FIRST)
        ended = until_ended(harness.runner, FIRST)
        assert ended.exit_reason is ExitReason.USER_ERROR
        assert "SIGSEGV" in ended.message

    def test_what_cannot_be_started_is_observed_so(self, harness):
        harness.arrange(FIRST, "unstartable")
        harness.runner.launch(FIRST)
        assert until_ended(harness.runner, FIRST).exit_reason is ExitReason.NEVER_STARTED

    def test_a_forgotten_launch_is_gone_and_stays_gone(self, harness):
        launch(harness, FIRST)
        harness.kill(FIRST)
        until_ended(harness.runner, FIRST)
        harness.runner.forget(FIRST)
        launch(harness, SECOND)
        assert [replica.id for replica in harness.runner.observe()] == [SECOND]

    def test_a_forgotten_end_that_no_status_tells_is_found_by_the_next_master(self, harness):
        """It died before it could tell of it."""
        launch(harness, FIRST)
        harness.kill(FIRST)
        until_ended(harness.runner, FIRST)
        harness.runner.forget(FIRST)
        assert FIRST not in {replica.id for replica in harness.runner.observe()}
        harness.restart()
        seen = {replica.id: replica for replica in harness.runner.observe()}
        assert seen[FIRST].exit_reason is ExitReason.KILLED

    def test_a_forgotten_end_that_a_status_tells_is_not(self, harness):
        launch(harness, FIRST)
        harness.kill(FIRST)
        until_ended(harness.runner, FIRST)
        harness.arrange(THIRD, "run")
        harness.runner.launch(THIRD)
        harness.runner.forget(FIRST)
        worker = WorkerStatus(index=FIRST.index, launch=THIRD.launch, phase="Pending")
        # One that ends the job is stored at once.
        harness.runner.publish_status(
            JobStatus(job_name="job", phase=JobPhase.SUCCEEDED, workers=(worker,))
        )
        harness.restart()
        assert FIRST not in {replica.id for replica in harness.runner.observe()}

    def test_wait_ends_when_something_changed_and_times_out_when_not(self, harness):
        launch(harness, FIRST)
        assert until_quiet(harness.runner, 0.2) >= 0.2
        harness.kill(FIRST)
        assert harness.runner.wait(TIMEOUT_S)

    def test_what_users_ask_is_told_and_wakes(self, harness):
        until_quiet(harness.runner, 0.2)
        harness.ask(num_workers=3)
        assert harness.runner.wait(TIMEOUT_S)
        assert harness.runner.control() == JobControl(num_workers=3)
        harness.ask(num_workers=3, cancelled=True)
        # Other changes wake, too.
        while harness.runner.control() != JobControl(num_workers=3, cancelled=True):
            assert harness.runner.wait(TIMEOUT_S)

    def test_a_status_comes_back_as_it_was_published(self, harness):
        status = JobStatus(
            job_name="job",
            phase=JobPhase.RUNNING,
            message="ünïcode\n",
            progress=Progress(model_version=7, loss=0.25),
        )
        harness.runner.publish_status(JobStatus(job_name="job"))
        harness.runner.publish_status(status)
        assert harness.runner.last_status() == status

    def test_an_address_is_readable_and_can_change(self, harness):
        harness.runner.publish_address("127.0.0.1:1234")
        harness.runner.publish_address("127.0.0.1:9")
        assert harness.published_address() == harness.expected_address("127.0.0.1:9")
