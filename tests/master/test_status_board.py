"""What the master tells of its job, and what it remembers over its lives."""

import asyncio
import time
from functools import partial

import pytest
from support.fake_platform import FakeReplicaRunner
from support.local_job import make_spec
from support.served_master import ServedMaster

from elastic.errors import TransitionError
from elastic.master.status_board import MAX_EVENTS, StatusBoard
from elastic.platforms.base import Replica, ReplicaId, ReplicaPhase
from elastic.platforms.local.directory import JobDirectory
from elastic.platforms.local.surroundings import LocalReplicaRunner
from elastic.policy.tasks.ledger import Audit
from elastic.policy.tasks.records import RecordRange, Shard, Task, TaskKind
from elastic.spec.status import JobPhase, JobStatus, Progress, WorkerStatus


def test_what_happens_often_does_not_push_out_what_happened_once():
    board = StatusBoard.open(make_spec("a.B", "data"), FakeReplicaRunner())
    board.note("WorkerLost", "worker-1 was killed")
    for epoch in range(3 * MAX_EVENTS):
        board.note("EpochEnded", f"epoch {epoch}")
        if epoch == MAX_EVENTS:
            board.note("WorkerStarted", "worker-1 is started again (launch 2)")
    events = board.build().events
    assert len(events) == MAX_EVENTS
    assert [e.message for e in events if e.kind != "EpochEnded"] == [
        "worker-1 was killed",
        "worker-1 is started again (launch 2)",
    ]
    epochs = [int(e.message.removeprefix("epoch ")) for e in events if e.kind == "EpochEnded"]
    assert epochs == list(range(3 * MAX_EVENTS - len(epochs), 3 * MAX_EVENTS))


def test_refused_gradients_are_those_of_all_lives():
    runner = FakeReplicaRunner()
    runner.publish_status(JobStatus(job_name="a", progress=Progress(rejected_gradients=242)))
    board = StatusBoard.open(make_spec("a.B", "data"), runner)
    assert board.build().progress.rejected_gradients == 242
    master = ServedMaster()
    board.follow(master.job)
    master.job.updates.rejected_gradients = 8
    assert board.build().progress.rejected_gradients == 250


RUNNING = JobStatus(
    job_name="a",
    phase=JobPhase.RUNNING,
    started_s=1.0,
    progress=Progress(samples_per_s=80.0),
    workers=(
        WorkerStatus(index=0, launch=1, phase="Running", records_done=70, samples_per_s=80.0),
    ),
)


def board_of(*told, launch=1):
    """The board of a master that follows what was told, and sees one worker that runs."""
    runner = FakeReplicaRunner()
    for status in told:
        runner.publish_status(status)
    board = StatusBoard.open(make_spec("a.B", "data"), runner)
    board.replicas = (Replica(ReplicaId("worker", 0, launch), ReplicaPhase.RUNNING),)
    return board


def register(job, launch=1):
    return job.sessions.open(ReplicaId("worker", 0, launch), 1, "test")


def speeds(board):
    status = board.build()
    [worker] = status.workers
    return status.progress.samples_per_s, worker.samples_per_s


def test_the_speed_told_last_is_not_that_of_a_job_that_recovers():
    board = board_of(RUNNING)
    assert board.phase is JobPhase.RECOVERING
    assert speeds(board) == (0.0, 0.0)


@pytest.mark.parametrize("phase", [JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.CANCELLED])
def test_a_job_that_has_ended_has_no_speed(phase):
    board, job = board_of(), ServedMaster().job
    board.follow(job)
    session = register(job)
    for _ in range(10):
        job.sessions.contributed(session, 8, 0.01)
    board.set_phase(JobPhase.RUNNING)
    assert min(speeds(board)) > 0
    board.set_phase(phase)
    assert speeds(board) == (0.0, 0.0)


def records_done(board):
    [worker] = board.build().workers
    return worker.records_done


def test_the_records_of_a_worker_outlive_its_master():
    board, job = board_of(RUNNING), ServedMaster().job
    assert records_done(board) == 70
    board.follow(job)
    session = register(job)
    assert records_done(board) == 70
    job.sessions.contributed(session, 8, 0.01)
    assert records_done(board) == 78
    # Its session ends before anybody has seen how its process does.
    job.tasks.lose(session.replica)
    assert records_done(board) == 78


def test_a_worker_that_registers_again_goes_on_with_its_records():
    board, job = board_of(), ServedMaster().job
    board.follow(job)
    for number in (1, 2, 3):
        session = register(job)
        job.sessions.contributed(session, 8, 0.01)
        assert records_done(board) == 8 * number
        job.tasks.lose(session.replica)


@pytest.mark.parametrize(
    ("told", "launch"),
    [
        pytest.param(RUNNING, 2, id="another-launch"),
        pytest.param(
            RUNNING.model_copy(update={"phase": JobPhase.PENDING}), 1, id="another-submission"
        ),
    ],
)
def test_another_launch_begins_with_no_records(told, launch):
    board, job = board_of(told, launch=launch), ServedMaster().job
    assert records_done(board) == 0
    board.follow(job)
    job.sessions.contributed(register(job, launch), 8, 0.01)
    assert records_done(board) == 8


def test_a_damaged_status_is_replaced_by_the_next(tmp_path, caplog):
    directory = JobDirectory(tmp_path)
    directory.status_path.write_text("{")
    board = StatusBoard.open(make_spec("a.B", "data"), LocalReplicaRunner(tmp_path))
    assert "status.json is damaged" in caplog.text
    assert board.publish()
    assert directory.status().phase is JobPhase.STARTING


class Clock:
    """Stands still but for what a test lets pass."""

    def __init__(self, monkeypatch):
        self.now_s = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def training():
    board, job = board_of(), ServedMaster().job
    board.follow(job)
    board.set_phase(JobPhase.RUNNING)
    session = register(job)
    job.tasks.lease(session)
    return board, job, session


def train_for_a_second(clock, job, session):
    for _ in range(10):
        clock.now_s += 0.1
        job.sessions.contributed(session, 8, 0.01)


def test_a_long_pause_of_the_workers_is_no_part_of_the_speed(clock):
    board, job, session = training()
    train = partial(train_for_a_second, clock, job, session)

    def evaluate_for(taken_s):
        job.tasks.hold_training()
        job.tasks.lease(session)
        clock.now_s += taken_s
        job.tasks.hold_training(is_held=False)
        job.tasks.lease(session)

    train()
    assert speeds(board) == pytest.approx((80.0, 80.0))
    evaluate_for(60.0)
    assert speeds(board) == (0.0, 0.0)
    train()
    assert speeds(board) == pytest.approx((80.0, 80.0))
    evaluate_for(1.0)
    train()
    assert speeds(board) == pytest.approx((160 / 3, 160 / 3), abs=0.1)


def test_a_callback_that_takes_long_is_no_part_of_the_speed(clock):
    board, job, session = training()
    train_for_a_second(clock, job, session)

    async def upload(_result):
        clock.now_s += 600.0

    job.updates.subscribe(after_epoch=upload)
    asyncio.run(job.updates._end_epoch(Audit(0, 80, 80, 0)))
    train_for_a_second(clock, job, session)
    assert speeds(board) == pytest.approx((80.0, 80.0))


def test_nor_is_a_pause_of_a_job_that_trains_nothing(clock):
    job = ServedMaster().job
    session = register(job)
    job.sessions.contributed(session, 8, 0.01)
    clock.now_s += 600.0
    records = RecordRange(0, 0, 8)
    job.tasks._begin(
        session, Task(0, 1, TaskKind.PREDICTION, 0, records, Shard("a", 0, 8), model_version=1)
    )
    clock.now_s += 0.1
    job.sessions.contributed(session, 8, 0.01)
    assert job.sessions.samples_per_s == pytest.approx(80.0)


def test_a_job_that_has_ended_enters_no_other_phase():
    board = StatusBoard.open(make_spec("a.B", "data"), FakeReplicaRunner())
    board.set_phase(JobPhase.SUCCEEDED, "Succeeded", "every record has counted")
    with pytest.raises(TransitionError):
        board.set_phase(JobPhase.RUNNING)
    assert (board.phase, board.reason) == (JobPhase.SUCCEEDED, "Succeeded")
