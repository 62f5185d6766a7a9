"""When the lines of a local log were written."""

import time

import pytest

from elastic.platforms.local.directory import JobDirectory
from elastic.platforms.local.logs import follow_logs, read_logs

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
    # The last line has no end, and is no part of the tail that a reader sees before it.
    lines = read(directory, False, tail=1, since_s=NOON_S + 6)
    assert [line.text for line in lines] == list(LINES[3:])


def test_a_line_whose_time_nobody_knows_is_kept(directory):
    (directory.logs_path / "worker-0.log").write_text("hello\n")
    assert [(x.text, x.stamp) for x in read(directory, False, since_s=NOON_S)] == [("hello", "")]
