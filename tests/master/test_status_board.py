"""What the master remembers of its job's events."""

from support.fake_platform import FakeReplicaRunner
from support.local_job import make_spec
from support.served_master import ServedMaster

from elastic.master.status_board import MAX_EVENTS, StatusBoard
from elastic.platforms.local.directory import JobDirectory
from elastic.platforms.local.runner import LocalReplicaRunner
from elastic.spec.status import JobPhase, JobStatus, Progress


def test_what_happens_often_does_not_push_out_what_happened_once():
    board = StatusBoard(make_spec("a.B", "data"), FakeReplicaRunner())
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
    board = StatusBoard(make_spec("a.B", "data"), runner)
    assert board.build().progress.rejected_gradients == 242
    master = ServedMaster()
    board.coordinator = master.coordinator
    master.coordinator.rejected_gradients = 8
    assert board.build().progress.rejected_gradients == 250


def test_a_damaged_status_is_replaced_by_the_next(tmp_path, caplog):
    directory = JobDirectory(tmp_path)
    directory.status_path.write_text("{")
    board = StatusBoard(make_spec("a.B", "data"), LocalReplicaRunner(tmp_path))
    assert "status.json is damaged" in caplog.text
    assert board.publish()
    assert directory.status().phase is JobPhase.STARTING
