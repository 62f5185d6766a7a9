"""Why a replica ended."""

import signal
import subprocess
import sys

import pytest

from elastic.platforms.base import ExitReason
from elastic.platforms.local.directory import Termination
from elastic.platforms.local.replicas import MAX_DYING_S, ExitFacts, MemoryKills, classify
from elastic.platforms.process import UNFINISHED, exit_words

SAID = Termination(ExitReason.OUT_OF_MEMORY, "said so")
DONE = Termination(ExitReason.COMPLETED, "")


@pytest.mark.parametrize(
    ("facts", "reason", "message"),
    [
        pytest.param(ExitFacts(0), ExitReason.COMPLETED, "", id="code-0"),
        pytest.param(ExitFacts(0, SAID), ExitReason.COMPLETED, "", id="code-0-over-its-word"),
        pytest.param(ExitFacts(0, DONE, says_end=True), ExitReason.COMPLETED, "", id="said"),
        pytest.param(
            ExitFacts(-signal.SIGTERM, DONE, was_deleted=True),
            ExitReason.COMPLETED,
            "",
            id="said-and-deleted-while-it-left",
        ),
        pytest.param(
            ExitFacts(0, says_end=True), ExitReason.USER_ERROR, UNFINISHED, id="unsaid-success"
        ),
        pytest.param(
            ExitFacts(0, was_deleted=True, says_end=True),
            ExitReason.COMPLETED,
            "",
            id="a-deleted-one-need-not-say",
        ),
        pytest.param(ExitFacts(1, SAID), ExitReason.OUT_OF_MEMORY, "said so", id="its-word"),
        pytest.param(
            ExitFacts(-9, SAID, was_deleted=True),
            ExitReason.OUT_OF_MEMORY,
            "said so",
            id="its-word-over-a-kill",
        ),
        pytest.param(
            ExitFacts(3, DONE, last_line="x"),
            ExitReason.USER_ERROR,
            "exit code 3: x",
            id="code-over-success",
        ),
        pytest.param(
            ExitFacts(1, last_line="KeyError: 'x'"),
            ExitReason.USER_ERROR,
            "KeyError: 'x'",
            id="an-uncaught-exception",
        ),
        pytest.param(
            ExitFacts(3, last_line="2026-01-01 00:00:00,000 I elastic.master.x: Resumed: from 7"),
            ExitReason.USER_ERROR,
            "exit code 3, without a word why",
            id="our-own-news",
        ),
        pytest.param(ExitFacts(None, DONE), ExitReason.COMPLETED, "", id="unseen-success"),
        pytest.param(
            ExitFacts(-9, memory_message="full"), ExitReason.OUT_OF_MEMORY, "full", id="memory"
        ),
        pytest.param(
            ExitFacts(-9, was_deleted=True, memory_message="full"),
            ExitReason.KILLED,
            "deleted (SIGKILL)",
            id="our-own-kill-is-not-memory",
        ),
        pytest.param(
            ExitFacts(1, was_deleted=True, last_line="KeyboardInterrupt"),
            ExitReason.KILLED,
            "deleted (exit code 1)",
            id="a-deleted-one-may-exit-as-it-likes",
        ),
        pytest.param(ExitFacts(7), ExitReason.USER_ERROR, "exit code 7 and no output", id="mute"),
        pytest.param(ExitFacts(-50), ExitReason.USER_ERROR, "crashed with signal 50", id="signal"),
    ],
)
def test_classification(facts, reason, message):
    assert classify(facts) == (reason, message)


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGFPE", "SIGBUS", "SIGILL"])
def test_the_programs_own_signals_are_crashes(name):
    facts = ExitFacts(-signal.Signals[name])
    assert classify(facts) == (ExitReason.USER_ERROR, f"crashed with {name}")


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGINT", "SIGHUP"])
def test_signals_of_others_are_kills(name):
    assert classify(ExitFacts(-signal.Signals[name]))[0] is ExitReason.KILLED


class TestMemoryKills:
    @pytest.fixture
    def cgroup(self, tmp_path):
        self.count(tmp_path, 2)
        (tmp_path / "memory.max").write_text(f"{512 * 2**20}\n")
        return tmp_path

    def count(self, path, kills):
        (path / "memory.events").write_text(f"low 0\noom 9\noom_kill {kills}\n")

    def test_only_new_kills_count_and_each_once(self, cgroup):
        kills = MemoryKills.since_now(cgroup / "memory.events")
        assert kills.take() is None
        self.count(cgroup, 3)
        assert "512 MiB" in kills.take()
        assert kills.take() is None

    def test_a_kill_is_remembered_while_its_process_may_still_be_dying(self, cgroup):
        kills = MemoryKills.since_now(cgroup / "memory.events")
        self.count(cgroup, 3)
        kills.settle(now_s=100.0)
        kills.settle(now_s=100.0 + MAX_DYING_S)
        assert kills.take() is not None

    def test_a_kill_without_a_dead_replica_is_forgotten(self, cgroup):
        kills = MemoryKills.since_now(cgroup / "memory.events")
        self.count(cgroup, 3)
        kills.settle(now_s=100.0)
        kills.settle(now_s=101.0 + MAX_DYING_S)
        assert kills.take() is None

    def test_without_a_memory_controller_nothing_is_put_down_to_memory(self, tmp_path):
        assert MemoryKills.since_now(tmp_path / "memory.events").take() is None
        assert MemoryKills.since_now(None).take() is None


def test_what_a_replica_logs_is_known_for_our_own_news():
    program = (
        "import logging; from elastic.platforms.process import start_logging;"
        "start_logging('INFO'); logging.getLogger('elastic.master.x').info('Resumed: from 7')"
    )
    written = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stderr
    assert exit_words(3, written.strip()) == "exit code 3, without a word why"
    assert exit_words(3, "oh") == "exit code 3: oh"
