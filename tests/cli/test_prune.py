"""`elastic prune`: what is removed, what is kept, and who agrees."""

import io
import sys

import pytest
from support.scripted_platform import ScriptedPlatform
from support.statuses import running

from elastic.errors import PlatformError
from elastic.spec.status import JobPhase, JobStatus

NOW_S = 1_000_000.0
DAY_S = 86_400.0


def ended(days_ago, phase=JobPhase.SUCCEEDED):
    at_s = NOW_S - days_ago * DAY_S
    return JobStatus(job_name="", phase=phase, submitted_s=at_s - 60, ended_s=at_s)


@pytest.fixture
def platform():
    platform = ScriptedPlatform(
        old=(ended(9.25),),
        young=(ended(6.9),),
        failed=(ended(8, JobPhase.FAILED),),
        busy=(running(),),
    )
    platform.clock = lambda: NOW_S
    platform.losses = {"failed": "what --resume goes on from", "young": "something"}
    return platform


class Terminal(io.StringIO):
    def isatty(self):
        return True


LISTED = (
    "job old: Succeeded 9d 6h ago\n"
    "job failed: Failed 8d 0h ago: kept, it has what --resume goes on from: --with_results "
    "removes it too\n"
)


def test_what_ended_long_ago_goes_and_what_would_be_lost_stays(run, platform):
    code, out, err = run("prune", "--yes", platform=platform)
    assert (code, out, err) == (0, f"{LISTED}1 job removed, 1 kept\n", "")
    assert platform.jobs() == ["young", "failed", "busy"]


def test_a_dry_run_says_the_same_and_removes_nothing(run, platform):
    code, out, _ = run("prune", "--dry-run", platform=platform)
    assert (code, out) == (0, f"{LISTED}1 job would be removed, 1 kept\n")
    assert len(platform.jobs()) == 4


def test_what_is_lost_goes_where_that_is_wanted(run, platform):
    code, out, _ = run("prune", "--with_results", "--older_than=1d", "-y", platform=platform)
    assert (code, out.splitlines()[-1]) == (0, "3 jobs removed")
    assert platform.jobs() == ["busy"]


def test_what_cannot_be_looked_at_stays(run, platform):
    platform.losses["failed"] = PlatformError("cannot list cuts")
    code, out, _ = run("prune", "--yes", platform=platform)
    assert (code, out.splitlines()[-1]) == (0, "1 job removed, 1 kept")
    assert "job failed: Failed 8d 0h ago: kept, it has what cannot be looked at (cannot " in out
    assert "failed" in platform.jobs()


def test_nothing_is_no_error_and_asks_nobody(run, platform):
    assert run("prune", "--older_than", "30d", platform=platform) == (0, "0 jobs removed\n", "")
    assert run("prune", "--older_than=1m", platform=ScriptedPlatform())[1] == "0 jobs removed\n"


@pytest.mark.parametrize(
    ("answer", "last", "num_left"),
    [("y\n", "1 job removed, 1 kept", 3), ("\n", "nothing is removed", 4)],
)
def test_a_terminal_is_asked(run, platform, monkeypatch, answer, last, num_left):
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    code, out, _ = run("prune", platform=platform)
    assert code == 0
    # What is typed is shown by the terminal.
    assert out == f"{LISTED}remove 1 job and all that is kept of it? [y/N]: {last}\n"
    assert len(platform.jobs()) == num_left


def test_without_a_terminal_somebody_has_to_say_yes(run, platform, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    code, _, err = run("prune", platform=platform)
    assert code == 2
    assert "nobody can be asked without a terminal: pass --yes" in err
    assert len(platform.jobs()) == 4


def test_what_is_no_time_is_told(run, platform):
    code, _, err = run("prune", "--older_than=week", platform=platform)
    assert code == 2
    assert "'week' is neither a duration such as" in err


def test_a_job_that_cannot_be_removed_does_not_keep_the_others(run, platform):
    forget = platform.forget

    def refuse(name):
        if name == "old":
            raise PlatformError("cannot remove it")
        forget(name)

    platform.forget = refuse
    code, out, err = run("prune", "--older_than=1d", "--with_results", "--yes", platform=platform)
    assert (code, err) == (101, "error: job old is not removed: cannot remove it\n")
    assert out.splitlines()[-1] == "2 jobs removed, 1 kept"
    assert platform.jobs() == ["old", "busy"]


def test_a_job_that_was_begun_anew_meanwhile_is_left_alone(run):
    platform = ScriptedPlatform(one=(ended(9), running()))
    platform.clock = lambda: NOW_S
    code, _, err = run("prune", "--yes", platform=platform)
    assert code == 101
    assert "job 'one' is another one by now: it is left alone" in err
    assert platform.jobs() == ["one"]
