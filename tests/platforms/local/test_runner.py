"""`LocalReplicaRunner` against a real supervisor."""

import os
import signal
import time
from dataclasses import replace

import psutil
import pytest
from support.local_job import suspend
from support.local_jobs import eventually
from support.platform_contract import (
    FIRST,
    SECOND,
    TIMEOUT_S,
    ReplicaRunnerContract,
    launch,
    until_ended,
    until_phase,
    until_quiet,
)

import elastic.platforms.local.surroundings as runner_module
from elastic.platforms.base import ExitReason, Replica, ReplicaId, ReplicaPhase
from elastic.platforms.local.directory import JobDirectory, Observed
from elastic.platforms.local.supervisor import TICK_S
from elastic.platforms.local.surroundings import (
    LocalReplicaRunner,
    read_address,
    read_last_end,
    write_termination,
)


class LocalHarness:
    """The test stands in for the job's master, which idles."""

    def __init__(self, jobs, master="idle"):
        self.jobs = jobs
        self.platform = jobs.submit(master=master, num_workers="1:4")
        self.directory = jobs.directory()
        self.runner = LocalReplicaRunner(self.directory.path)

    def arrange(self, replica, behaviour):
        if behaviour == "unstartable":
            self.jobs.python.unlink()
        self.jobs.arrange(replica, {"succeed": "say Completed 0"}.get(behaviour, behaviour))

    def settle(self, replica):
        eventually(lambda: self.jobs.is_ready(replica))

    def restart(self):
        self.runner.close()
        self.runner = LocalReplicaRunner(self.directory.path)

    def kill(self, replica):
        pid = next(r.pid for r in self.runner.observe() if r.id == replica)
        os.kill(pid, signal.SIGKILL)

    def ask(self, num_workers=None, cancelled=False):
        if num_workers is not None:
            self.platform.scale("job", num_workers)
        if cancelled:
            # Kill would end the job with the test's replicas; this is its first step.
            self.directory.write_cancelled()

    def identity(self, replica):
        return replica.pid

    def expected_address(self, published):
        return published

    def published_address(self):
        return read_address(self.directory.path)

    def kill_supervisor(self):
        pid = self.jobs.pid_of("supervisor")
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not self.directory.supervisor_lock.is_held())
        return pid


@pytest.fixture
def harness(jobs):
    harness = LocalHarness(jobs)
    yield harness
    harness.runner.close()


class TestLocalReplicaRunner(ReplicaRunnerContract):
    pass


@pytest.mark.parametrize(
    ("behaviour", "reason", "message"),
    [
        pytest.param(
            "exit 3", ExitReason.USER_ERROR, "exit code 3: exit as", id="last-line-of-the-log"
        ),
        pytest.param("say OutOfMemory 1", ExitReason.OUT_OF_MEMORY, "said so", id="its-own-word"),
        pytest.param("say UserError 0", ExitReason.COMPLETED, "", id="code-0-is-success"),
        pytest.param(
            "exit 0", ExitReason.USER_ERROR, "exited with code 0 without", id="unsaid-success"
        ),
    ],
)
def test_exits_are_classified(harness, worker, behaviour, reason, message):
    harness.arrange(worker, behaviour)
    harness.runner.launch(worker)
    ended = until_ended(harness.runner, worker)
    assert ended.exit_reason is reason
    assert ended.message.startswith(message)


def test_a_deleted_launch_that_was_never_started_still_ends(harness, worker):
    supervisor = harness.jobs.pid_of("supervisor")
    suspend(supervisor)
    harness.runner.launch(worker)
    harness.runner.delete(worker, grace_s=1.0)
    os.kill(supervisor, signal.SIGCONT)
    assert until_ended(harness.runner, worker).exit_reason is ExitReason.KILLED
    assert not harness.jobs.members(role="worker")


def test_the_end_of_a_replica_takes_its_children_along(harness, worker):
    launch(harness, worker, "family")
    # Who is just executing another program shows nothing.
    eventually(lambda: len([m for m in harness.jobs.members() if m.replica == worker]) == 3)
    harness.kill(worker)
    until_ended(harness.runner, worker)
    eventually(lambda: not [m for m in harness.jobs.members() if m.replica == worker])


def test_each_launch_begins_with_a_line_in_one_log(harness, worker):
    for number in (1, 2):
        replica = ReplicaId("worker", 0, number)
        harness.arrange(replica, "exit 0")
        harness.runner.launch(replica)
        until_ended(harness.runner, replica)
    lines = harness.directory.log_path(worker).read_text().splitlines()
    assert [line.split(" of ")[0] for line in lines[::2]] == ["--- launch 1", "--- launch 2"]


def test_changes_are_noticed_when_they_happen(harness, monkeypatch):
    """No tick tells of them: neither the supervisor nor the runner has one here."""
    harness.kill_supervisor()
    harness.jobs.start_supervisor(TICK_S=10 * TIMEOUT_S)
    monkeypatch.setattr(runner_module, "CHECK_S", 10 * TIMEOUT_S)
    launch(harness, FIRST)
    launch(harness, SECOND)
    until_quiet(harness.runner, 0.2)
    began_s = time.monotonic()
    harness.kill(FIRST)
    assert harness.runner.wait(TIMEOUT_S)
    until_ended(harness.runner, FIRST)
    harness.runner.delete(SECOND, grace_s=10 * TIMEOUT_S)
    until_ended(harness.runner, SECOND)
    assert time.monotonic() - began_s < TIMEOUT_S


def test_an_idle_supervisor_costs_next_to_nothing(harness, worker):
    launch(harness, worker)
    supervisor = psutil.Process(harness.jobs.pid_of("supervisor"))
    until_quiet(harness.runner, 2 * TICK_S)
    began_s, before = time.monotonic(), _costs(supervisor)
    time.sleep(3 * TICK_S)
    num_ticks, after = (time.monotonic() - began_s) / TICK_S + 1, _costs(supervisor)
    num_wakes, cpu_s = (b - a for a, b in zip(before, after, strict=True))
    assert num_wakes <= 2 * num_ticks
    # The least that the system counts, and of a tick what a slow machine needs to read its files.
    assert cpu_s <= 0.02 + 0.01 * num_ticks


def _costs(process):
    times = process.cpu_times()
    return process.num_ctx_switches().voluntary, times.user + times.system


class TestLossOfTheSupervisor:
    def test_wait_starts_another_one_that_adopts_the_replicas(self, harness, worker):
        running = launch(harness, worker)
        master = harness.jobs.pid_of("master")
        until_quiet(harness.runner, 0.2)
        first = harness.kill_supervisor()
        assert harness.runner.wait(TIMEOUT_S)
        assert harness.jobs.pid_of("supervisor") != first
        assert until_phase(harness.runner, worker, ReplicaPhase.RUNNING).pid == running.pid
        assert harness.jobs.pid_of("master") == master
        # It watches what is no child of its own, and obeys as the first one did.
        harness.kill(worker)
        assert until_ended(harness.runner, worker).exit_reason is ExitReason.KILLED
        launch(harness, SECOND)
        harness.runner.delete(SECOND, grace_s=TIMEOUT_S)
        until_ended(harness.runner, SECOND)

    def test_ends_while_it_was_away_are_told_by_the_replicas_own_word(self, harness):
        said, unsaid = ReplicaId("worker", 0, 1), ReplicaId("worker", 1, 1)
        for replica in (said, unsaid):
            launch(harness, replica)
        harness.kill_supervisor()
        write_termination(harness.directory.path, said, ExitReason.COMPLETED, "")
        for replica in (said, unsaid):
            harness.kill(replica)
        harness.runner.wait(TIMEOUT_S)
        assert until_ended(harness.runner, said).phase is ReplicaPhase.SUCCEEDED
        ended = until_ended(harness.runner, unsaid)
        assert ended.exit_reason is ExitReason.KILLED
        assert "supervisor was away" in ended.message

    def test_a_launch_caught_between_its_start_and_its_record_is_not_started_twice(
        self, harness, worker
    ):
        running = launch(harness, worker)
        harness.kill_supervisor()
        # What is on disk when the supervisor dies just after the start.
        harness.directory.write_observed(Observed(Replica(worker, ReplicaPhase.PENDING)))
        harness.runner.wait(TIMEOUT_S)
        assert until_phase(harness.runner, worker, ReplicaPhase.RUNNING).pid == running.pid
        assert len(harness.jobs.members(role="worker")) == 1

    def test_a_reused_pid_is_not_adopted(self, harness, worker):
        launch(harness, worker)
        harness.kill_supervisor()
        (observed,) = [o for o in harness.directory.observed() if o.replica.id == worker]
        harness.kill(worker)
        stranger = harness.jobs.pid_of("master")
        harness.directory.write_observed(
            replace(observed, replica=replace(observed.replica, pid=stranger), birth="another")
        )
        harness.runner.wait(TIMEOUT_S)
        until_ended(harness.runner, worker)
        assert harness.jobs.pid_of("master") == stranger


def test_how_the_newest_master_ended_is_told_and_keeps_none_from_its_work(tmp_path):
    directory = JobDirectory(tmp_path)
    directory.observed_path.mkdir()
    assert read_last_end(tmp_path) == ""
    running = Replica(ReplicaId("master", 0, 3), ReplicaPhase.RUNNING)
    killed = [
        Replica(ReplicaId("master", 0, n), ReplicaPhase.FAILED, ExitReason.KILLED, message=f"{n}")
        for n in (1, 2)
    ]
    for master in (*killed, running):
        directory.write_observed(Observed(master))
    assert read_last_end(tmp_path) == "was killed: 2"
    (directory.observed_path / "worker-0-1.json").write_text("{")
    assert read_last_end(tmp_path) == ""
