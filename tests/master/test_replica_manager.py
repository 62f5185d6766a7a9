"""What the master tells of workers that come and go."""

import asyncio
import time

import pytest
from support.fake_platform import FakeReplicaRunner
from support.local_job import make_spec
from support.local_jobs import eventually

from elastic.errors import PlatformError
from elastic.master.parameters.servers import ServerLife, ServerRing
from elastic.master.replica_manager import ReplicaManager
from elastic.master.status_board import StatusBoard
from elastic.platforms.base import ExitReason, ReplicaId
from elastic.policy import fleet
from elastic.policy.fleet import Fleet, FleetRules
from elastic.spec.status import JobPhase, JobStatus, WorkerStatus

PATIENCE_S = 60.0
FIRST, SECOND = ReplicaId("worker", 0, 1), ReplicaId("worker", 1, 1)


def events_of(play):
    """Events and counts of a job of two workers, with which `play(runner)` does something."""

    async def run():
        runner = FakeReplicaRunner()
        spec = make_spec("a.B", "data", num_workers="1:2")
        board = StatusBoard.open(spec, runner)
        manager = ReplicaManager(
            spec, runner, 2, Fleet(FleetRules({"worker": 3}, 60.0)), board, lambda: None
        )
        manager.start()
        deadline_s = time.monotonic() + PATIENCE_S

        async def until(condition):
            while not condition():
                assert time.monotonic() < deadline_s, board.build()
                await asyncio.sleep(0.01)

        await until(lambda: runner.launched == [FIRST, SECOND])
        await asyncio.to_thread(play, runner)
        await until(
            lambda: any(e.kind in ("WorkerLeft", "WorkerLost") for e in board.build().events)
        )
        await manager.stop()
        return board.build()

    status = asyncio.run(run())
    told = [(event.kind, event.message) for event in status.events]
    return told, status.workers_lost, status.worker_failures, status.workers[1].phase


@pytest.mark.parametrize("reason", [ExitReason.COMPLETED, ExitReason.KILLED])
def test_one_that_was_asked_to_end_is_not_lost_however_its_end_is_told(reason):
    def play(runner):
        runner.stubborn.add(SECOND)
        runner.ask(num_workers=1)
        eventually(lambda: runner.deleted)
        runner.end(SECOND, reason, "deleted")

    assert events_of(play) == (
        [("WorkerScaledAway", "worker-1 is asked to end"), ("WorkerLeft", "worker-1 has left")],
        0,
        0,
        "Succeeded",
    )


def test_one_that_is_asked_again_is_told_of_once(monkeypatch):
    def play(runner):
        monkeypatch.setattr(fleet, "ASK_AGAIN_S", 0.0)
        runner.stubborn.add(SECOND)
        runner.ask(num_workers=1)
        eventually(lambda: len(runner.deleted) > 2)
        runner.end(SECOND, ExitReason.KILLED, "deleted")

    told, *_ = events_of(play)
    assert [kind for kind, _ in told] == ["WorkerScaledAway", "WorkerLeft"]


def test_one_that_nobody_asked_is_lost():
    # By then its next launch may run.
    told, lost, failures, _phase = events_of(lambda runner: runner.end(SECOND, message="deleted"))
    assert told[0] == ("WorkerLost", "worker-1 was killed: deleted")
    assert (lost, failures) == (1, 0)


def test_a_platform_that_is_away_does_not_undo_the_end_of_a_job():
    class AwayRunner(FakeReplicaRunner):
        def wait(self, timeout_s):
            self.end(FIRST)
            raise PlatformError("cannot look at supervisor.lock: Stale file handle")

    async def run():
        runner, spec = AwayRunner(), make_spec("a.B", "data")
        board = StatusBoard.open(spec, runner)
        manager = ReplicaManager(
            spec, runner, 1, Fleet(FleetRules({"worker": 3}, 60.0)), board, lambda: None
        )
        runner.launch(FIRST)
        await manager.wait_for_exits(PATIENCE_S)
        return board.replicas

    (replica,) = asyncio.run(run())
    assert replica.phase.is_final


def test_one_that_is_still_starting_when_the_job_is_done_has_not_failed():
    async def run():
        runner, spec = FakeReplicaRunner(), make_spec("a.B", "data")
        board = StatusBoard.open(spec, runner)
        manager = ReplicaManager(
            spec, runner, 1, Fleet(FleetRules({"worker": 3}, 60.0)), board, lambda: None
        )
        runner.launch(FIRST)
        await manager.wait_for_exits(PATIENCE_S)
        return board.build()

    [worker] = asyncio.run(run()).workers
    assert worker.phase == "Succeeded"


def test_servers_are_told_to_leave_although_a_worker_takes_too_long_to():
    """Else they would serve for as long as a master may be away, since nobody else tells them."""
    told = []

    async def dismiss():
        told.append(True)

    async def run():
        runner, spec = FakeReplicaRunner(), make_spec("a.B", "data")
        board = StatusBoard.open(spec, runner)
        manager = ReplicaManager(
            spec, runner, 1, Fleet(FleetRules({"worker": 3}, 60.0)), board, lambda: None
        )
        runner.stubborn.add(FIRST)
        runner.launch(FIRST)
        await manager.wait_for_exits(0.1, dismiss)

    asyncio.run(run())
    assert told == [True]


def test_servers_that_do_not_hear_it_are_told_again_and_ended_at_last():
    """Else they would hold their nodes for as long as a master may be away."""
    hears, is_deaf = ReplicaId("ps", 0, 1), ReplicaId("ps", 1, 1)
    told = []

    async def run():
        runner, spec = FakeReplicaRunner(), make_spec("a.B", "data")
        ring = ServerRing(2)

        async def dismiss():
            told.append(True)
            if len(told) == 2:
                runner.end(hears, ExitReason.COMPLETED)

        for server in (hears, is_deaf):
            runner.launch(server)
            ring.announced(ServerLife(server, "life", "127.0.0.1:1"))
        board = StatusBoard.open(spec, runner)
        fleet = Fleet(FleetRules({"worker": 3}, 60.0))
        manager = ReplicaManager(spec, runner, 1, fleet, board, lambda: None, rings={"ps": ring})
        await manager.wait_for_exits(1.0, dismiss)
        return [replica for replica, _ in runner.deleted]

    assert asyncio.run(run()) == [is_deaf]
    assert len(told) > 1


def test_a_master_that_dies_before_it_has_looked_leaves_what_was_told():
    """Else the next one would count an end again that the status has told."""

    async def run():
        runner, spec = FakeReplicaRunner(), make_spec("a.B", "data", num_workers="2")
        told = WorkerStatus(index=1, launch=7, phase="Failed", last_exit="was killed")
        runner.publish_status(
            JobStatus(job_name="job", phase=JobPhase.RUNNING, started_s=1.0, workers=(told,))
        )
        runner.publish_status(StatusBoard.open(spec, runner).build())
        return StatusBoard.open(spec, runner).has_told_end(ReplicaId("worker", 1, 7))

    assert asyncio.run(run())
