"""What follows the end of a master."""

import pytest

from elastic.platforms.base import ExitReason, Replica, ReplicaId, ReplicaPhase
from elastic.policy.replicas import (
    MAX_DELAY_S,
    MAX_MASTER_CRASHES,
    EndJob,
    RestartMaster,
    on_exit,
)
from elastic.spec.status import NO_MASTERS, JobPhase, JobStatus, Progress


def ended(reason=ExitReason.USER_ERROR):
    return Replica(
        ReplicaId("master", 0, 1), ReplicaPhase.FAILED, exit_reason=reason, message="boom"
    )


def status(version=0, phase=JobPhase.RUNNING):
    return JobStatus(job_name="job", phase=phase, progress=Progress(model_version=version))


class Masters:
    """The masters of one job, which end one after the other."""

    def __init__(self):
        self.history = NO_MASTERS

    def end(self, reason=ExitReason.USER_ERROR, last=None, cancelled=False, step=""):
        self.history, verdict = on_exit(self.history, ended(reason), last, cancelled, step)
        return verdict


def crash(masters, times, version=0, reason=ExitReason.USER_ERROR):
    return [masters.end(reason, status(version)) for _ in range(times)]


@pytest.mark.parametrize("reason", list(ExitReason))
@pytest.mark.parametrize("phase", [p for p in JobPhase if p.is_final])
def test_a_published_end_is_the_end(reason, phase):
    assert Masters().end(reason, status(phase=phase), cancelled=True) == EndJob()


def test_a_cancelled_job_gets_no_further_master():
    assert Masters().end(cancelled=True).phase is JobPhase.CANCELLED


def test_success_without_a_result_is_a_failure():
    verdict = Masters().end(ExitReason.COMPLETED, status())
    assert verdict.phase is JobPhase.FAILED


def test_crashes_without_progress_back_off_and_give_up():
    *restarts, last = crash(Masters(), MAX_MASTER_CRASHES)
    assert [restart.delay_s for restart in restarts] == [0.0, 0.5, 1.0, 2.0]
    assert last.phase is JobPhase.FAILED
    assert "boom" in last.message


def test_a_crash_loop_in_the_preparation_names_its_step():
    masters = Masters()
    verdicts = [masters.end(step="dataset_fn of mine") for _ in range(MAX_MASTER_CRASHES)]
    assert verdicts[-1].message == (
        "the master crashed 5 times without progress, last while it prepared the job "
        "(dataset_fn of mine): boom"
    )


def test_progress_forgives():
    masters = Masters()
    for version in range(3 * MAX_MASTER_CRASHES):
        assert crash(masters, 1, version) == [RestartMaster(0.0)]


def test_falling_back_and_dying_at_the_same_update_is_no_progress():
    masters = Masters()
    for version in (37, 36, 37, 35):
        assert isinstance(crash(masters, 1, version)[0], RestartMaster)
    assert isinstance(crash(masters, 1, 37)[0], EndJob)


def test_coming_from_one_phase_of_the_preparation_to_another_is_no_progress():
    masters = Masters()
    phases = [None, *[JobPhase.STARTING, JobPhase.RECOVERING] * 2]
    verdicts = [masters.end(last=phase and status(0, phase)) for phase in phases]
    assert [isinstance(verdict, EndJob) for verdict in verdicts] == [False] * 4 + [True]


def test_beginning_to_work_forgives_once():
    masters = Masters()
    phases = [JobPhase.STARTING, JobPhase.STARTING, *[JobPhase.RUNNING, JobPhase.RECOVERING] * 3]
    verdicts = [masters.end(last=status(0, phase)) for phase in phases]
    assert isinstance(verdicts[2 + MAX_MASTER_CRASHES - 1], EndJob)
    assert isinstance(verdicts[2 + MAX_MASTER_CRASHES - 2], RestartMaster)


def test_kills_from_outside_are_free_but_not_undelayed():
    verdicts = crash(Masters(), 20, reason=ExitReason.KILLED)
    assert verdicts[0] == RestartMaster(0.0)
    assert verdicts[-1] == RestartMaster(MAX_DELAY_S)
