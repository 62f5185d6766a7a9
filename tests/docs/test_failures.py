"""The reasons, events and limits that the page on failures names are those of the code."""

import re
from pathlib import Path

import elastic
from elastic.policy import fleet, replicas
from elastic.policy import fleet as liveness
from elastic.spec.job import settings
from elastic.spec.status import JobPhase

PAGE = (Path(__file__).parents[2] / "docs" / "failures.md").read_text()
SOURCES = "".join(path.read_text() for path in Path(elastic.__file__).parent.rglob("*.py"))
ERRORS = re.findall(r"^class (\w+)Error\(", SOURCES, re.MULTILINE)


def rows():
    section = PAGE.partition("## What you see, and what it costs\n")[2].partition("\n## ")[0]
    return [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in section.splitlines()
        if line.startswith("| ")
    ][2:]


def test_every_reason_and_event_can_be_seen():
    assert len(rows()) >= 15
    for what, phase, events, _ in rows():
        named = re.findall(r"`([A-Z]\w+)`", phase + events)
        assert all(f'"{name}"' in SOURCES or name in ERRORS for name in named), (what, named)
        words = re.findall(r"\b([A-Z][a-z]+)\b(?!`)", phase)
        assert set(words) <= {str(each) for each in JobPhase}, (what, words)


def test_every_flag_is_a_setting():
    names = {name for each in settings() for name in (each.name, *each.aliases)}
    others = {"timeout"}
    """Of other commands."""
    assert set(re.findall(r"--(\w+)", PAGE)) - others <= names


def test_limits_are_those_of_the_code():
    assert f"no heartbeat for {liveness.HEARTBEAT_LIMIT_S:.0f} s" in PAGE
    assert f"no progress for {liveness.HANG_FACTOR:.0f} times" in PAGE
    assert (fleet.FREE_LAUNCHES, fleet.MAX_BACKOFF_S) == (2, 60.0)
    assert "from the third time in a row" in PAGE
    assert replicas.MAX_MASTER_CRASHES == 5
    assert "the master crashes five times without progress" in PAGE
    assert f"after up to {replicas.MAX_DELAY_S:.0f} s where masters before it ended" in PAGE
