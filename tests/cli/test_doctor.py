"""What `elastic doctor` looks like, and what it says of optional extras."""

import re
import sys
from pathlib import Path

import pytest
from cli.test_processes import Terminal

from elastic.cli.doctor import check_extras, checks_of, distribution_check, extras_in
from elastic.platforms.registry import Check, Outcome

REQUIREMENTS = [
    "click>=8.1",
    "torch>=2.4; extra == 'torch'",
    'tensorflow-cpu>=2.18 ; extra == "tensorflow"',
    "ruff>=0.8; extra == 'dev'",
    'pyarrow>=17; extra == "parquet"',
    'one[x]>=1; python_version < "4" and extra == "pair"',
    "two; extra == 'pair'",
]
COMMAND = [sys.executable, "-m", "elastic", "doctor"]
NO_ENGINE = ["--docker_base_url", "unix:///no/such.sock"]
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def test_extras_are_those_of_the_metadata_and_no_frameworks():
    assert extras_in(REQUIREMENTS) == {"parquet": ["pyarrow"], "pair": ["one", "two"]}


def test_an_extra_says_what_it_is_for_and_how_to_get_it():
    installed = {"pyarrow": "17.0", "one": "1"}
    checks = list(checks_of(extras_in(REQUIREMENTS), installed.get))
    assert checks == [
        Check(
            "extra pair",
            Outcome.SKIPPED,
            "what needs one, two: not installed: two",
            "pip install two",
        ),
        Check("extra parquet", Outcome.OK, "Parquet files as training data (pyarrow 17.0)"),
    ]


@pytest.mark.parametrize(
    ("installed", "expected"),
    [
        ({"elastic-jobs": "0.1.0"}, Check("distribution", Outcome.OK, "elastic-jobs 0.1.0")),
        (
            {"elastic-jobs": "0.1.0", "elastic": "5.2.5", "Other_One": "1"},
            Check(
                "distribution",
                Outcome.WARNING,
                "Other_One 1, elastic 5.2.5 is installed too, with files of one name",
                "pip uninstall Other_One elastic, then install this one from its wheel or checkout",
            ),
        ),
        (
            {},
            Check(
                "distribution",
                Outcome.SKIPPED,
                "elastic runs without being installed as elastic-jobs",
                f"pip install -e {Path(__file__).parents[2]}",
            ),
        ),
    ],
)
def test_another_distribution_of_the_name_is_told(installed, expected):
    names = {"elastic", "Elastic.Jobs", *installed}
    assert distribution_check(names, installed.get) == expected


def test_a_distribution_that_brings_the_module_is_found(run, tmp_path, monkeypatch):
    info = tmp_path / "stranger-3.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 3.0\n")
    (info / "top_level.txt").write_text("elastic\n")
    (info / "RECORD").write_text("elastic/__init__.py,,\n")
    monkeypatch.syspath_prepend(tmp_path)
    out = run("doctor", "--platform=local")[1]
    assert "warn  distribution: stranger 3.0 is installed too" in out


def test_the_extras_of_this_elastic_stop_nothing():
    assert all(check.outcome is not Outcome.FAILURE for check in check_extras())


def test_a_failure_without_a_fix_is_a_bug():
    with pytest.raises(AssertionError, match="moon has no fix"):
        Check("moon", Outcome.FAILURE, "is not there")


def test_every_failure_and_warning_is_followed_by_what_to_do(run):
    code, out, _ = run("doctor", *NO_ENGINE)
    assert code == 1
    lines = out.splitlines()
    bad = [index for index, line in enumerate(lines) if line.startswith(("fail", "warn"))]
    assert len(bad) == 2
    for index in bad:
        assert lines[index + 1].startswith("      → "), lines[index]


@pytest.mark.parametrize("columns", [50, 80, 160])
def test_no_word_is_cut_at_the_end_of_a_line(columns):
    shown, code = Terminal([*COMMAND, *NO_ENGINE], columns).end()
    assert code == 1
    assert COLOUR.search(shown)
    lines = COLOUR.sub("", shown).splitlines()
    longest = len("      --docker_image_repository")
    assert all(len(line.rstrip()) <= max(columns, longest) for line in lines), lines
    text = " ".join(" ".join(lines).split())
    assert "no ~/.kube/config, no service account): add --platform local to run" in text
    # What goes on below a check stands under its words.
    assert all(re.match(r"(ok  |fail|warn|skip)  \S| {6}\S| {8}\S", line) for line in lines)


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_without_colours_gets_none(variables):
    assert "\x1b" not in Terminal([*COMMAND, *NO_ENGINE], 80, **variables).end()[0]


def test_a_home_that_is_no_folder_is_told(run, tmp_path, monkeypatch):
    monkeypatch.setenv("ELASTIC_HOME", str(tmp_path / "file"))
    assert f"ok    home: jobs are kept in {tmp_path}/file" in run("doctor", "--platform=local")[1]
    (tmp_path / "file").touch()
    code, out, _ = run("doctor", "--platform=local")
    assert code == 1
    assert f"fail  home: jobs cannot be kept in {tmp_path}/file" in out


def test_a_pipe_gets_a_line_a_check(run):
    _, out, _ = run("doctor", *NO_ENGINE)
    assert "\x1b" not in out
    assert out.splitlines()[0].endswith("add --platform local to run on this machine")
