"""`elastic plan`: what a policy would do to a snapshot, for people and for programs."""

import json

import pytest

from elastic.cli.main import main
from elastic.cli.policies import POLICY_NAMES
from elastic.planning.forms import read_snapshot
from elastic.planning.policies import POLICIES

SNAPSHOT = """
now_s: 100
nodes: [{name: n, count: 2, allocatable: {cpu: 10}}]
jobs:
  - {name: new, min: 1, max: 4, requests: {cpu: 1}, submitted_s: 90}
  - {name: old, min: 2, max: 8, requests: {cpu: 1}, placement: {n-0: 2}}
  - {name: full, min: 1, max: 1, requests: {cpu: 1}, placement: {n-1: 1}}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "now.yaml"
    path.write_text(SNAPSHOT)
    return str(path)


def test_the_names_that_help_lists_are_those_that_there_are():
    assert tuple(POLICIES) == POLICY_NAMES


def test_a_table_says_of_each_job_what_becomes_of_it_and_why(file, capsys):
    assert main(["plan", "--policy", "fulfillment", "--snapshot", file]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["JOB", "PHASE", "RANGE", "SIZE", "NODES", "WHY"]
    assert [line.split()[0].rpartition("/")[2] for line in lines[1:4]] == ["full", "new", "old"]
    assert "0 -> 4" in lines[2]
    assert "2 -> 8" in lines[3]
    assert lines[-1] == "2 of 3 jobs would change, 1 would not"


def test_without_jobs_it_says_so_and_who_would_be_one(tmp_path, capsys):
    path = tmp_path / "empty.yaml"
    path.write_text("now_s: 100\nnodes: [{name: n, allocatable: {cpu: 10}}]\njobs: []\n")
    assert main(["plan", "--policy", "goodput", "--snapshot", str(path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "no jobs to plan for; those of `elastic train` count where they have --autoscale"
    ]


def test_json_has_the_same(file, capsys):
    assert main(["plan", "--policy", "fulfillment", "--snapshot", file, "-o", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert {each["job"]: (each["from"], each["to"]) for each in plan["decisions"]} == {
        "TrainingJob/default/new": (0, 4),
        "TrainingJob/default/old": (2, 8),
    }
    assert all(each["reason"] for each in plan["decisions"])


def test_options_reach_the_policy(file, capsys):
    arguments = ["plan", "--policy", "fulfillment", "--snapshot", file, "-o", "json"]
    assert main([*arguments, "--max_load", "0.5"]) == 0
    plan = json.loads(capsys.readouterr().out)
    # Half of 20 cores, of which one is that of the job that stays.
    assert sum(each["to"] for each in plan["decisions"]) == 9


def test_a_snapshot_is_kept(file, tmp_path, capsys):
    kept = tmp_path / "kept.json"
    arguments = ["plan", "--policy", "fulfillment", "--snapshot", file, "--save", str(kept)]
    assert main(arguments) == 0
    assert read_snapshot(kept.read_text(), "kept") == read_snapshot(SNAPSHOT, "now")


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["--snapshot", "gone.yaml"], 1, "error: gone.yaml cannot be read: No such file"),
        (["--snapshot", "gone.yaml", "--starve_after", "soon"], 2, "'soon' is no duration such as"),
        (["--snapshot", "gone.yaml", "--starve_after", "2026-01-01"], 2, "is no duration such as"),
        (["--snapshot", "gone.yaml", "-n", "team"], 2, "--namespace is of the current cluster"),
        (["--snapshot", "gone.yaml", "--kinds", "tfjob"], 2, "not looked at with --snapshot"),
    ],
)
def test_what_is_wrong_is_said(arguments, code, expected, capsys):
    assert main(["plan", "--policy", "fulfillment", *arguments]) == code
    assert expected in capsys.readouterr().err


def test_an_unknown_policy_is_an_error(capsys):
    assert main(["plan", "--policy", "best"]) == 2
    assert "fulfillment" in capsys.readouterr().err


TOLD = """
now_s: 1000
nodes: [{name: n, count: 2, allocatable: {cpu: 16, nvidia.com/gpu: 4}}]
jobs:
  - name: told
    kind: ElasticTrainJob
    min: 1
    max: 8
    requests: {nvidia.com/gpu: 1}
    placement: {n-0: 1}
    telling:
      speeds: [{replicas: 1, nodes: 1, samples_per_s: 100}]
      remaining_samples: 1000000
  - {name: untold, min: 1, max: 8, requests: {nvidia.com/gpu: 1}, placement: {n-1: 1}}
  - {name: new, min: 1, max: 2, asked: 2, requests: {cpu: 1}}
  - {name: part, kind: TFJob, min: 1, max: 4, requests: {cpu: 1}, share: {gpu: 500m}}
"""


def test_goodput_says_which_jobs_tell_nothing_and_what_it_did_with_them(tmp_path, capsys):
    path = tmp_path / "now.yaml"
    path.write_text(TOLD)
    assert main(["plan", "--policy", "goodput", "--snapshot", str(path)]) == 0
    printed = capsys.readouterr().out
    rows = {line.split()[0].rpartition("/")[2]: line for line in printed.splitlines()[1:5]}
    assert "1 -> 4" in rows["told"]
    assert "tells no speed: keeps the size that it has" in rows["untold"]
    assert "0 -> 2" in rows["new"]
    assert "0 -> 1" in rows["part"]
    assert printed.splitlines()[-3:] == [
        "1 of 4 jobs: has parts of GPUs: gets its smallest size",
        "1 of 4 jobs: tells no speed: keeps the size that it has",
        "1 of 4 jobs: tells no speed: starts with what was asked for, within an equal share",
    ]
    assert main(["plan", "--policy", "goodput", "--snapshot", str(path), "-o", "json"]) == 0
    remarks = json.loads(capsys.readouterr().out)["remarks"]
    assert [each["job"].rpartition("/")[2] for each in remarks] == ["part", "new", "untold"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        pytest.param(lambda path: None, "cannot be read: No such file or directory", id="missing"),
        pytest.param(lambda path: path.mkdir(), "cannot be read: Is a directory", id="a-folder"),
        pytest.param(
            lambda path: path.write_bytes(b"\xff\xfe"), "is no text: invalid start byte", id="bytes"
        ),
    ],
)
def test_a_snapshot_that_cannot_be_read_is_named(make, words, tmp_path, capsys):
    path = tmp_path / "now.yaml"
    make(path)
    assert main(["plan", "--policy", "fifo", "--snapshot", str(path)]) == 1
    assert capsys.readouterr().err == f"error: {path} {words}\n"


def test_a_snapshot_that_cannot_be_kept_is_named(file, tmp_path, capsys):
    path = tmp_path / "none" / "kept.json"
    assert main(["plan", "--policy", "fifo", "--snapshot", file, "--save", str(path)]) == 1
    assert capsys.readouterr().err == (
        f"error: {path} cannot be written: No such file or directory\n"
    )
