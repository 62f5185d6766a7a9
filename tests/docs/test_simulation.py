"""What `docs/simulation.md` shows is read, run and printed as it says."""

import re
from pathlib import Path

import pytest

from elastic.cli.main import main
from elastic.planning.forms import read_snapshot
from elastic.simulation.forms import read_nodes, read_workload
from elastic.simulation.workload import GENERATORS

PAGE = (Path(__file__).parents[2] / "docs" / "simulation.md").read_text()
SNAPSHOT, WORKLOAD = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)

PLANNED = """
now_s: 100
nodes: [{name: n, count: 2, allocatable: {cpu: 10}}]
jobs:
  - {name: new, min: 1, max: 4, requests: {cpu: 1}, submitted_s: 90}
  - {name: old, min: 2, max: 8, requests: {cpu: 1}, placement: {n-0: 2}}
  - {name: full, min: 1, max: 1, requests: {cpu: 1}, placement: {n-1: 1}}
"""


def test_the_snapshot_is_one():
    snapshot = read_snapshot(SNAPSHOT, "page")
    assert [job.name for job in snapshot.jobs] == ["a", "b"]
    assert len(read_nodes(SNAPSHOT, "page")) == 5


def test_the_workload_is_one():
    assert len(read_workload(WORKLOAD, "page").submissions) == 2


def test_the_plan_is_printed_so(tmp_path, capsys):
    file = tmp_path / "now.yaml"
    file.write_text(PLANNED)
    assert main(["plan", "--policy", "fulfillment", "--snapshot", str(file)]) == 0
    assert capsys.readouterr().out in PAGE


@pytest.mark.parametrize("name", GENERATORS)
def test_all_generators_are_told_of(name):
    assert f"| `{name}` |" in PAGE


@pytest.mark.sampled(2)
def test_the_comparison_is_printed_so(capsys):
    policies = "fulfillment,dragon,gang,fifo"
    arguments = ["simulate", "--generate", "tfjobs", "--seed", "1", "--policy", policies]
    assert " ".join(["elastic", *arguments]) in PAGE
    assert main(arguments) == 0
    printed = capsys.readouterr().out.splitlines()
    # All but how long it took.
    assert "\n".join(printed[:-1]) in PAGE
