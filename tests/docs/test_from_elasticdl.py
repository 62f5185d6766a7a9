"""What the page for those who come from ElasticDL says of flags is what the flags are."""

import re
from pathlib import Path

import pytest
from cli.test_train_flags import ELASTICDL_FLAGS

from elastic.cli.main import SUMMARIES
from elastic.spec.job import INSTEAD, settings

PAGE = (Path(__file__).parents[2] / "docs" / "from_elasticdl.md").read_text()
SETTINGS = {name for each in settings() for name in (each.name, *each.aliases)}
OTHERS = {"dry_run", "config", "detach"}
"""Flags of `elastic train` that are no settings."""


def rows(title):
    """The rows of the first table of a section, as lists of cells."""
    section = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


FLAGS = {row[0].strip("`"): row[1:] for row in rows("Flags")}


@pytest.mark.parametrize("flag", sorted(FLAGS))
def test_a_flag_is_what_the_page_says(flag):
    state, difference = FLAGS[flag]
    if state == "same":
        assert flag in SETTINGS
        return
    assert flag in INSTEAD, "say what takes its place"
    if state == "gone":
        assert flag not in SETTINGS
        assert difference, "say why, or what to use"
    else:
        (other,) = re.fullmatch(r"renamed `(\w+)`", state).groups()
        assert flag not in SETTINGS
        assert other in SETTINGS | OTHERS
        assert f"--{other}" in INSTEAD[flag]


def test_no_flag_is_missing():
    assert set(ELASTICDL_FLAGS) <= set(FLAGS)


def test_settings_that_differences_point_to_are_there():
    named = {name for row in FLAGS.values() for name in re.findall(r"`([a-z]\w+)`", row[1])}
    # `cluster` is an object of the user's file, `train` a command.
    assert named - {"default", "cluster", "train"} <= SETTINGS | OTHERS


def test_what_takes_a_place_is_there():
    named = {name for text in INSTEAD.values() for name in re.findall(r"--(\w+)", text)}
    assert named <= SETTINGS | OTHERS
    assert not INSTEAD.keys() & SETTINGS


def test_aliases_are_called_so():
    aliases = {alias: each.name for each in settings() for alias in each.aliases}
    for flag in FLAGS.keys() & aliases.keys():
        assert FLAGS[flag][1] == f"an alias of `{aliases[flag]}`"


def test_commands_are_there_or_not_as_the_page_says():
    table = rows("Commands")
    named = {name for row in table for name in re.findall(r"`elastic (\w+)", row[1])}
    assert named <= set(SUMMARIES)
    lacking = next(row for row in table if "`predict`" in row[0])
    assert (lacking[1] == "") == ("predict" not in SUMMARIES)
