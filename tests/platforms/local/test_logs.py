"""When the lines of a local log were written."""

import re
import subprocess
import sys
import time
from datetime import datetime

import pytest

from elastic.platforms.local.directory import JobDirectory, follow_logs, read_logs

LINES = (
    "--- launch 1 of worker-0 at 2026-01-31T12:00:00+0000 ---",
    "2026-01-31 12:00:05,250 I elastic.worker.loop: registered",
    "2026-01-31 12:00:09,000 E elastic.worker.loop: it failed",
    "Traceback (most recent call last):",
    "2026-99-99 12:00:10,000 I a user's own",
)
NOON_S = 1769860800.0


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "worker-0.log").write_text("\n".join(LINES))
    yield JobDirectory(tmp_path)
    monkeypatch.undo()
    time.tzset()


def read(directory, follow, tail=None, since_s=None):
    if follow:
        return list(follow_logs(directory, [], tail, lambda: True, since_s))
    return list(read_logs(directory, [], tail, since_s))


def test_a_line_without_a_time_belongs_to_the_line_before(directory):
    assert [line.stamp[11:] for line in read(directory, False)] == [
        "12:00:00.000+00:00", "12:00:05.250+00:00", *["12:00:09.000+00:00"] * 3,
    ]  # fmt: skip


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize(
    ("second", "first"), [(0, 0), (0.1, 1), (5.25, 1), (5.251, 2), (9, 2), (9.1, 5)]
)
def test_only_what_was_written_since(directory, follow, second, first):
    lines = read(directory, follow, since_s=NOON_S + second)
    assert [line.text for line in lines] == list(LINES[first:])


def test_the_last_lines_are_counted_among_those_since(directory):
    lines = read(directory, False, tail=2, since_s=NOON_S + 6)
    assert [line.text for line in lines] == list(LINES[3:])


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("tail", [0, 1, 3, 9])
def test_a_line_without_an_end_is_one_of_the_last(directory, follow, tail):
    lines = read(directory, follow, tail=tail)
    assert [line.text for line in lines] == list(LINES[max(0, len(LINES) - tail) :])


def test_a_job_may_live_in_another_time_zone(directory):
    text = "2026-01-31 05:00:05,250-0700 I elastic.worker.loop: registered\n"
    (directory.logs_path / "worker-0.log").write_text(text)
    assert [line.stamp for line in read(directory, False)] == ["2026-01-31T12:00:05.250+00:00"]


def test_what_a_replica_logs_tells_its_time_zone(directory, tmp_path):
    program = (
        "import logging; from elastic.platforms.process import start_logging;"
        "start_logging('INFO'); logging.getLogger('a.b').info('hello')"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={"TZ": "Asia/Tokyo"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert re.fullmatch(r"[-\d]{10} [:\d]{8},\d{3}\+0900 I a\.b: hello\n", ended.stderr)
    (directory.logs_path / "worker-0.log").write_text(ended.stderr)
    (line,) = read(directory, False, since_s=time.time() - 600)
    assert abs(datetime.fromisoformat(line.stamp).timestamp() - time.time()) < 600


def test_a_line_whose_time_nobody_knows_is_kept(directory):
    (directory.logs_path / "worker-0.log").write_text("hello\n")
    assert [(x.text, x.stamp) for x in read(directory, False, since_s=NOON_S)] == [("hello", "")]
