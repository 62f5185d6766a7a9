"""What follows the end of a master."""

import pytest

from elastic.platforms.base import ExitReason, Replica, ReplicaId, ReplicaPhase
from elastic.policy.masters import (
    MAX_DELAY_S,
    MAX_MASTER_CRASHES,
    EndJob,
    MasterHistory,
    RestartMaster,
)
from elastic.spec.status import JobPhase, JobStatus, Progress


def ended(reason=ExitReason.USER_ERROR):
    return Replica(
        ReplicaId("master", 0, 1), ReplicaPhase.FAILED, exit_reason=reason, message="boom"
    )


def status(version=0, phase=JobPhase.RUNNING):
    return JobStatus(job_name="job", phase=phase, progress=Progress(model_version=version))


def crash(history, times, version=0, reason=ExitReason.USER_ERROR):
    return [history.on_exit(ended(reason), status(version), cancelled=False) for _ in range(times)]


@pytest.mark.parametrize("reason", list(ExitReason))
@pytest.mark.parametrize("phase", [p for p in JobPhase if p.is_final])
def test_a_published_end_is_the_end(reason, phase):
    assert MasterHistory().on_exit(ended(reason), status(phase=phase), cancelled=True) == EndJob()


def test_a_cancelled_job_gets_no_further_master():
    assert MasterHistory().on_exit(ended(), None, cancelled=True).phase is JobPhase.CANCELLED


def test_success_without_a_result_is_a_failure():
    verdict = MasterHistory().on_exit(ended(ExitReason.COMPLETED), status(), cancelled=False)
    assert verdict.phase is JobPhase.FAILED


def test_crashes_without_progress_back_off_and_give_up():
    *restarts, last = crash(MasterHistory(), MAX_MASTER_CRASHES)
    assert [restart.delay_s for restart in restarts] == [0.0, 0.5, 1.0, 2.0]
    assert last.phase is JobPhase.FAILED
    assert "boom" in last.message


def test_a_crash_loop_in_the_preparation_names_its_step():
    history = MasterHistory()
    verdicts = [
        history.on_exit(ended(), None, cancelled=False, step="dataset_fn of mine")
        for _ in range(MAX_MASTER_CRASHES)
    ]
    assert verdicts[-1].message == (
        "the master crashed 5 times without progress, last while it prepared the job "
        "(dataset_fn of mine): boom"
    )


def test_progress_forgives():
    history = MasterHistory()
    for version in range(3 * MAX_MASTER_CRASHES):
        assert crash(history, 1, version) == [RestartMaster(0.0)]


def test_falling_back_and_dying_at_the_same_update_is_no_progress():
    history = MasterHistory()
    for version in (37, 36, 37, 35):
        assert isinstance(crash(history, 1, version)[0], RestartMaster)
    assert isinstance(crash(history, 1, 37)[0], EndJob)


def test_a_phase_that_comes_and_goes_forgives_once():
    history = MasterHistory()
    phases = [JobPhase.STARTING, JobPhase.RECOVERING] * MAX_MASTER_CRASHES
    verdicts = [history.on_exit(ended(), status(0, phase), cancelled=False) for phase in phases]
    assert isinstance(verdicts[MAX_MASTER_CRASHES], EndJob)


def test_kills_from_outside_are_free_but_not_undelayed():
    verdicts = crash(MasterHistory(), 20, reason=ExitReason.KILLED)
    assert verdicts[0] == RestartMaster(0.0)
    assert verdicts[-1] == RestartMaster(MAX_DELAY_S)
