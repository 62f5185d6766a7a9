"""What `elastic logs` says besides the lines themselves."""

import pytest
from support.scripted_platform import ScriptedPlatform

from elastic.spec.status import JobPhase, JobStatus

PENDING = JobStatus(
    job_name="one", phase=JobPhase.PENDING, reason="Unschedulable", message="no node has room"
)
NOTE = "note: nothing of job one runs yet: Unschedulable: no node has room\n"


@pytest.mark.parametrize("flags", [(), ("-f",)], ids=["now", "followed"])
def test_who_sees_no_line_of_a_pending_job_sees_why(run, flags):
    platform = ScriptedPlatform(one=(PENDING,))
    assert run("logs", "one", *flags, platform=platform) == (0, "", NOTE)


def test_lines_are_not_commented(run):
    platform = ScriptedPlatform(one=(PENDING,))
    platform.log_lines = [("master-0", "ready")]
    assert run("logs", "one", platform=platform) == (0, "[master-0] ready\n", "")


@pytest.mark.parametrize("flags", [(), ("-f",)], ids=["now", "followed"])
def test_a_job_that_runs_may_be_silent(run, flags):
    platform = ScriptedPlatform(one=(PENDING.model_copy(update={"phase": JobPhase.RUNNING}),))
    assert run("logs", "one", *flags, platform=platform) == (0, "", "")
