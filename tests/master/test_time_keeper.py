"""How a master's lives, waits and ends get into the account of the job's time."""

from support.fake_platform import FakeReplicaRunner
from support.local_job import make_spec

from elastic.master.status_board import StatusBoard, TimeKeeper
from elastic.policy.accounts import resumed, split_at
from elastic.spec.platforms import JobKind
from elastic.spec.status import JobPhase, JobStatus, TimeCategory, TimeSplit


class Clock:
    def __init__(self, now_s):
        self.now_s = now_s

    def __call__(self):
        return self.now_s


EARLIER = JobStatus(
    job_name="job",
    submitted_s=100.0,
    started_s=102.0,
    phase=JobPhase.RUNNING,
    time_split=TimeSplit(queue_s=2, train_s=8, current=TimeCategory.TRAIN, until_s=110.0),
)


def test_the_time_between_two_masters_was_spent_recovering():
    clock = Clock(115.0)
    keeper = TimeKeeper(EARLIER, was_running=True, clock=clock)
    clock.now_s = 118.0
    keeper.look(JobPhase.RUNNING, None)
    split = keeper.split(120.0)
    assert (split.queue_s, split.recover_s, split.train_s) == (2.0, 8.0, 10.0)


def test_the_time_before_a_job_is_resumed_was_spent_in_the_queue():
    split = TimeKeeper(EARLIER, was_running=False, clock=Clock(115.0)).split(116.0)
    assert (split.queue_s, split.train_s, split.start_s) == (7.0, 8.0, 1.0)


def test_the_time_of_a_job_that_was_suspended_was_spent_in_the_queue():
    suspended = EARLIER.model_copy(update={"phase": JobPhase.SUSPENDED})
    split = TimeKeeper(suspended, was_running=True, clock=Clock(115.0)).split(116.0)
    assert (split.queue_s, split.train_s, split.recover_s) == (7.0, 8.0, 1.0)


def test_a_resumed_job_accounts_for_all_of_its_lives():
    # Its first master did not know that it had been submitted at 97.
    ended = EARLIER.model_copy(
        update={"submitted_s": None, "phase": JobPhase.SUCCEEDED, "ended_s": 110.0}
    )
    waiting = resumed(ended, 97.0, JobKind.TRAIN)
    assert (waiting.phase, waiting.submitted_s, waiting.ended_s) == (JobPhase.PENDING, 97.0, None)
    split = split_at(waiting, 114.0)
    assert (split.queue_s, split.train_s, split.until_s) == (9.0, 8.0, 114.0)
    keeper = TimeKeeper(waiting, was_running=False, clock=Clock(115.0))
    running = waiting.model_copy(
        update={"phase": JobPhase.RUNNING, "time_split": keeper.split(116.0)}
    )
    split = split_at(running, 116.0)
    assert (split.queue_s, split.train_s, split.start_s) == (10.0, 8.0, 1.0)


def test_checkpoints_that_overlap_are_one_wait():
    clock = Clock(115.0)
    keeper = TimeKeeper(EARLIER, was_running=True, clock=clock)
    one, other = keeper.checkpointing(), keeper.checkpointing()
    one.__enter__()
    clock.now_s = 116.0
    other.__enter__()
    clock.now_s = 117.0
    one.__exit__(None, None, None)
    keeper.look(JobPhase.RUNNING, None)
    clock.now_s = 118.0
    other.__exit__(None, None, None)
    split = keeper.split(119.0)
    assert (split.checkpoint_s, split.recover_s, split.current) == (3.0, 6.0, "recover")


def test_the_end_of_a_job_is_the_end_of_its_account():
    runner = FakeReplicaRunner()
    runner.publish_status(JobStatus(job_name="job", submitted_s=100.0))
    board = StatusBoard.open(make_spec("a.B", "data"), runner)
    board.set_phase(JobPhase.RUNNING)
    board.set_phase(JobPhase.SUCCEEDED)
    assert board.publish()
    status = runner.last_status()
    assert status.time_split == split_at(status, status.ended_s + 60).model_copy(
        update={"current": status.time_split.current}
    )
    assert round(status.time_split.until_s, 3) == round(status.ended_s, 3)


def test_time_alone_publishes_nothing():
    runner = FakeReplicaRunner()
    board = StatusBoard.open(make_spec("a.B", "data"), runner)
    board.publish()
    first = runner.last_status()
    board.publish()
    assert runner.last_status() is first
