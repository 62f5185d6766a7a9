"""Every command of the pages that starts a job is one that `elastic` takes."""

import re
import shlex
from pathlib import Path

import pytest

from elastic.cli.main import main

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "model_zoo").rglob("*.md")),
]
COMMAND = re.compile(r"^ *elastic (?:train|evaluate|predict) (?:.*\\\n)*.*$", re.MULTILINE)


def commands(page):
    """The commands of a page, but those of which it shows a part."""
    blocks = re.findall(r"```\w*\n(.*?)```", page.read_text(), re.DOTALL)
    found = [text for block in blocks for text in COMMAND.findall(block)]
    return [text for text in found if "…" not in text and "[OPTIONS]" not in text]


COMMANDS = [
    pytest.param(text, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, text in enumerate(commands(page))
]


def test_there_are_some():
    assert len(COMMANDS) >= 20


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """What the pages assume to be there, made as they say."""
    place = tmp_path_factory.mktemp("place")
    (place / "manifests").symlink_to(ROOT / "manifests")
    assert main(["zoo", "new", str(place / "flowers")]) == 0
    model = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    (place / "my_zoo" / "data").mkdir(parents=True)
    (place / "my_zoo" / "my_model.py").write_text(model)
    (place / "my_zoo" / "data" / "train.csv").touch()
    (place / "my_zoo" / "data" / "test.csv").touch()
    return place


@pytest.mark.parametrize("text", COMMANDS)
def test_a_command_has_all_that_it_needs(text, place, monkeypatch, capsys):
    monkeypatch.delenv("ELASTIC_PLATFORM", raising=False)
    monkeypatch.chdir(place)
    # What reads the output of another command is not ours.
    alone = text.replace("\\\n", " ").partition(" | ")[0]
    arguments = shlex.split(alone, comments=True)
    assert main([*arguments[1:], "--dry_run"]) == 0, capsys.readouterr().err


def test_who_follows_readme_and_jobs_in_this_order_meets_no_name_twice():
    text = "".join((ROOT / page).read_text() for page in ("README.md", "docs/jobs.md"))
    folders = re.findall(r"^elastic zoo new (\S+)", text, re.MULTILINE)
    jobs = re.findall(r"--job_name (\S+)", text)
    # A folder's first job has its name.
    assert len(jobs) >= 4
    assert len({*folders, *jobs}) == len([*folders, *jobs])
    assert not {*folders} & {*re.findall(r"--output (\S+)", text)}
