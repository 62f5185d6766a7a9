"""A master's status: small for any number of epochs, and never tried for ever."""

from types import SimpleNamespace

import pytest
from support.fake_platform import FakeReplicaRunner
from support.local_job import make_spec

from elastic.errors import PlatformError
from elastic.master.status_board import StatusBoard
from elastic.platforms.base import ReplicaId, StatusRefusedError
from elastic.policy.tasks.ledger import Audit
from elastic.spec.status import EpochAudit, JobPhase, JobStatus


class RefusingRunner(FakeReplicaRunner):
    """Publishes nothing."""

    error: PlatformError
    tries = 0

    def publish_status(self, status):
        self.tries += 1
        raise self.error


@pytest.mark.parametrize(
    ("error", "is_done"),
    [
        pytest.param(PlatformError("the disk is full"), False, id="for-now"),
        pytest.param(StatusRefusedError("too long"), True, id="for-good"),
    ],
)
def test_an_end_that_is_refused_for_good_is_not_tried_again(error, is_done):
    runner = RefusingRunner()
    runner.error = error
    board = StatusBoard.open(make_spec("a.B", "data"), runner)
    board.set_phase(JobPhase.SUCCEEDED)
    assert [board.publish(), board.publish()] == [is_done, is_done]
    assert runner.tries == (1 if is_done else 2)


def board_with(audits):
    board = StatusBoard.open(make_spec("a.B", "data"), FakeReplicaRunner())
    board._told_audits()
    ledger = SimpleNamespace(audits=audits)
    board.follow(SimpleNamespace(ledger=ledger))
    return board


def test_the_audits_grow_with_the_ledger():
    audits = [Audit(0, 40, 40, 0)]
    board = board_with(audits)
    assert board._told_audits() == ((_run(1),), 0)
    audits.append(Audit(1, 40, 40, 0))
    assert board._told_audits() == ((_run(2),), 0)


def test_a_master_that_has_no_ledger_yet_tells_the_audits_of_its_earlier_life():
    runner = FakeReplicaRunner()
    runner.publish_status(
        JobStatus(job_name="job", audits=(_run(3),), audits_left_out=4, started_s=1.0)
    )
    status = StatusBoard.open(make_spec("a.B", "data"), runner).build()
    assert (status.audits, status.audits_left_out) == ((_run(3),), 4)


def _run(num_epochs):
    return EpochAudit(epoch=0, num_epochs=num_epochs, records=40, committed=40, skipped=0)


def test_a_worker_that_leaves_keeps_its_records_until_its_next_launch():
    board = board_with([])
    worker = ReplicaId("worker", 0, 1)
    session = SimpleNamespace(replica=worker, records_done=7)
    assert board._records_of(worker, None) == 0
    assert board._records_of(worker, session) == 7
    assert board._records_of(worker, None) == 7
    assert board._records_of(ReplicaId("worker", 0, 2), None) == 0
