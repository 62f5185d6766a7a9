"""Workloads and nodes as files: what is written is what is read."""

import json
from functools import partial

import pytest
import yaml

from elastic.errors import DescriptionError
from elastic.planning.forms import node_document
from elastic.simulation.forms import read_nodes, read_workload, workload_document
from elastic.simulation.workload import GENERATORS, Amdahl, Constant, Measured, Tells, Window

TEXT = """
jobs:
  - {name: b, submitted_s: 20, min: 1, max: 4, requests: {cpu: 2}, hold_s: 300}
  - name: a
    kind: ElasticJob
    min: 1
    max: 8
    asked: 2
    requests: {nvidia.com/gpu: 1}
    work_s: 600
    speed: {measured: {1: 1.0, 2: 1.8, 8: 4}, spread: 0.9}
    tells: all
    samples_per_s: 50
    rescale_s: 12
services:
  - {name: web, requests: {cpu: 1}, steps: [{at_s: 90, replicas: 1}, {at_s: 0, replicas: 4}]}
windows:
  steady: {from_s: 300}
  night: {from_s: 10, to_s: 20}
"""


def test_a_workload_is_read():
    workload = read_workload(TEXT, "w.yaml")
    a, b = workload.submissions
    assert (a.job.name, a.asked, a.job.kind, a.rescale_s) == ("a", 2, "ElasticJob", 12)
    assert a.work.speed == Measured(((1, 1.0), (2, 1.8), (8, 4.0)), 0.9)
    assert (a.work.tells, a.work.samples_per_s) == (Tells.ALL, 50)
    assert (b.work.seconds, b.work.speed, b.asked) == (300, Constant(), 4)
    assert workload.services[0].steps == ((0, 4), (90, 1))
    assert workload.windows == (Window("steady", 300), Window("night", 10, 20))


@pytest.mark.parametrize("dump", [json.dumps, partial(yaml.safe_dump, sort_keys=False)])
def test_what_is_written_is_read_again(dump):
    workload = read_workload(TEXT, "w.yaml")
    assert read_workload(dump(workload_document(workload)), "again") == workload


@pytest.mark.parametrize("name", GENERATORS)
def test_what_is_made_can_be_written(name):
    scenario = GENERATORS[name].make(5, 1)
    written = json.dumps(workload_document(scenario.workload))
    assert read_workload(written, "made") == scenario.workload
    nodes = json.dumps({"nodes": [node_document(each) for each in scenario.nodes]})
    assert read_nodes(nodes, "made") == scenario.nodes


def test_jobs_may_be_lines_of_a_table():
    text = (
        "name,kind,submitted_s,min,max,asked,cpu,memory,gpu,work_s,hold_s,serial,ps_replicas,ps_cpu\n"
        "a,TFJob,5,1,4,2,4,8Gi,,600,,0.1,1,500m\n"
        "b,,0,1,1,,1,,2,,30,,,\n"
    )
    b, a = read_workload(text, "w.csv").submissions
    assert (a.job.kind, a.work.seconds, a.work.speed) == ("TFJob", 600, Amdahl(0.1))
    assert a.job.workers.requests == {"cpu": 4000, "memory": 8 << 30}
    assert a.job.ps.requests == {"cpu": 500}
    assert (b.job.kind, b.job.ps, b.work.speed) == ("TrainingJob", None, Constant())
    assert b.job.workers.requests == {"cpu": 1000, "nvidia.com/gpu": 2000}


def test_nodes_of_a_snapshot_are_nodes():
    text = "now_s: 3\njobs: []\nnodes: [{name: n, count: 2, allocatable: {cpu: 1}}]"
    assert [node.name for node in read_nodes(text, "s.yaml")] == ["n-0", "n-1"]


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("jobs: [{name: a, min: 1}]", "w.yaml", "w.yaml: jobs.0: say either hold_s or work_s"),
        (
            "jobs: [{name: a, hold_s: 1, placement: {n: 1}}]",
            "w.yaml",
            "nothing of a job has a node before it is submitted",
        ),
        (
            "jobs: [{name: a, work_s: 1, speed: {serial: 0.1, measured: {1: 1}}}]",
            "w.yaml",
            "jobs.0.speed: say either serial or measured",
        ),
        ("jobs: [{name: a, work_s: 1, speed: {serial: 2}}]", "w.yaml", "jobs.0.speed.serial=2"),
        ("jobs: [{name: a, hold_s: 1}, {name: a, hold_s: 1}]", "w", "two jobs are named Training"),
        ("name,cores\na,1\n", "w.csv", "w.csv: no column cores is known"),
        ("name,hold_s\na,1,5\n", "w.csv", "w.csv, line 2: more cells than columns"),
        ("name,hold_s\na,soon\n", "w.csv", "jobs.0.hold_s='soon'"),
        ("name,cpu,hold_s,cpu\na,1,5,2\n", "w.csv", "w.csv: the column cpu comes twice"),
        ("name,hold_s\n", "w.csv", "w.csv has no jobs: there is nothing to simulate"),
        ("", "w.csv", "w.csv has no jobs"),
        ("jobs: []", "w.yaml", "w.yaml has no jobs"),
        ("", "w.yaml", "w.yaml is empty: expected keys with values"),
        ("jobs: [{name: a, hold_s: 1, submitted_s: .inf}]", "w", "jobs.0.submitted_s=inf"),
        ("jobs: [{name: a, hold_s: 1, max: 1000000001}]", "w", "jobs.0.max=1000000001"),
        (
            "jobs: [{name: a, hold_s: 1}]\nwindows: {x: {from_s: 9, to_s: 5}}",
            "w.yaml",
            "windows.x: to_s=5 is not after from_s=9",
        ),
    ],
)
def test_an_error_names_the_file_the_key_and_its_value(text, name, expected):
    with pytest.raises(DescriptionError) as error:
        read_workload(text, name)
    assert expected in str(error.value)


def test_a_cluster_without_nodes_is_an_error():
    with pytest.raises(DescriptionError, match="has no nodes"):
        read_nodes("nodes: []", "n.yaml")


@pytest.mark.parametrize(
    ("workers", "nodes", "expected"),
    [(0, 0, 0), (1, 1, 1), (2, 1, 1.8), (5, 1, 2.9), (8, 1, 4), (9, 1, 4), (2, 3, 1.8 * 0.81)],
)
def test_measured_speeds_are_linear_between_and_flat_beyond(workers, nodes, expected):
    speed = Measured.of({1: 1.0, 2: 1.8, 8: 4.0}, 0.9)
    assert speed.at(workers, nodes) == pytest.approx(expected)


def test_speeds_below_the_smallest_size_are_in_proportion():
    assert Measured.of({4: 2.0}).at(1, 1) == 0.5
