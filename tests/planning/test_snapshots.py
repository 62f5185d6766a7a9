"""Snapshots as files: what is written is what is read, and errors name the key."""

import json

import pytest
import yaml
from hypothesis import given
from support.random_clusters import clusters

from elastic.errors import DescriptionError
from elastic.planning.forms import read_snapshot, snapshot_document
from elastic.policy.cluster import JobPhase, Share

TEXT = """
now_s: 100
nodes:
  - {name: n, count: 12, allocatable: {cpu: 8, memory: 32Gi, nvidia.com/gpu: 2}}
  - name: old
    allocatable: {cpu: 500m}
    ready: false
    taints: [{key: dedicated, value: ml, effect: NoSchedule}]
    card_memory: 16Gi
jobs:
  - name: waits
    min: 2
    max: 10
    requests: {cpu: 2}
    limits: {memory: 4Gi}
    asked: 6
    submitted_s: 40
    ps: {replicas: 3, requests: {cpu: 1}}
    others: [{role: master, replicas: 1, requests: {cpu: 1}}]
    telling:
      remaining_samples: 1000
      speeds: [{replicas: 2, nodes: 1, samples_per_s: 10}]
  - name: runs
    kind: TFJob
    min: 1
    max: 4
    replicas: 3
    requests: {cpu: 1}
    share: {gpu: 500m, memory: 1Gi}
    placement: {n-00: 2, n-01: 1}
    cards: {n-00: {a: 2}, n-01: {b: 1}}
    first_node: n-00
    last_scaled_s: 90
    stoppable: true
    program: resnet
    tolerations: [{key: dedicated, operator: Exists}]
    affinity_nodes: [n-00, n-01]
pods:
  - {node: n-02, requests: {cpu: 1}, count: 2}
  - {requests: {cpu: 1}}
last_change_s: 90
shown:
  resnet:
    speeds: [{replicas: 4, nodes: 1, samples_per_s: 40}]
"""


@pytest.fixture(scope="module")
def snapshot():
    return read_snapshot(TEXT, "s.yaml")


def test_nodes_that_are_alike_are_written_once(snapshot):
    assert [node.name for node in snapshot.nodes][:3] == ["n-00", "n-01", "n-02"]
    assert len(snapshot.nodes) == 13
    assert snapshot.nodes[0].allocatable == {
        "cpu": 8000,
        "memory": 32 << 30,
        "nvidia.com/gpu": 2000,
    }


def test_a_job_is_stopped_only_where_it_is_said_of_it(snapshot):
    assert [job.is_stoppable for job in snapshot.jobs] == [False, True]
    written = json.dumps(snapshot_document(snapshot))
    again = read_snapshot(written, "s.json")
    assert [job.is_stoppable for job in again.jobs] == [False, True]


def test_limits_and_requests_stand_for_each_other(snapshot):
    workers = snapshot.jobs[0].workers
    assert workers.requests == workers.limits == {"cpu": 2000, "memory": 4 << 30}
    assert workers.size_at_start == 6


def test_a_job_without_its_smallest_size_waits_since_it_was_submitted(snapshot):
    waits, runs = snapshot.jobs
    assert (waits.phase, waits.waiting_since_s) == (JobPhase.WAITING, 40)
    assert (runs.phase, runs.waiting_since_s) == (JobPhase.RUNNING, None)


def test_parameter_servers_have_no_range_where_none_is_written(snapshot):
    ps = snapshot.jobs[0].ps
    assert (ps.min, ps.max, ps.replicas) == (3, 3, 3)
    assert snapshot.jobs[0].others[0].role == "master"


def test_parts_of_cards_are_read(snapshot):
    assert snapshot.jobs[1].workers.share == Share(500, 1 << 30)


def test_pods_that_are_alike_are_written_once(snapshot):
    assert [pod.node for pod in snapshot.pods] == ["n-02", "n-02", None]


@pytest.mark.parametrize("dump", [json.dumps, yaml.safe_dump])
def test_what_is_written_is_read_again(snapshot, dump):
    assert read_snapshot(dump(snapshot_document(snapshot)), "again") == snapshot


@given(clusters())
def test_any_cluster_is_read_as_it_was_written(cluster):
    assert read_snapshot(json.dumps(snapshot_document(cluster)), "any") == cluster


@pytest.mark.parametrize(
    ("written", "phase"),
    [
        ("creating", "Waiting"),
        ("Running", "Running"),
        ("RESTARTING", "Running"),
        ("failed", "Over"),
    ],
)
def test_phases_are_those_of_all_kinds(written, phase):
    text = f"now_s: 0\nnodes: []\njobs: [{{name: a, min: 1, max: 2, phase: {written}}}]"
    assert read_snapshot(text, "s").jobs[0].phase == phase


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now_s: 0", "s: nodes is missing"),
        ("[1]", "s holds a list: expected keys with values"),
        ("{", "s, line 1: no JSON"),
        ("a: [", "s is no YAML"),
        ("now_s: x\nnodes: []", "s: now_s='x'"),
        (
            "now_s: 0\nnodes: [{name: n, allocatable: {cpu: 4cores}}]",
            "s: nodes.0.allocatable: expected a quantity",
        ),
        ("now_s: 0\nnodes: [{name: n, allocatable: 3}]", "nodes.0.allocatable=3: expected quant"),
        (
            "now_s: 0\nnodes: []\njobs: [{name: a, min: 3, max: 2}]",
            "s: jobs.0: min=3 is above max=2",
        ),
        (
            "now_s: 0\nnodes: []\njobs: [{name: a, min: 1, max: 2, placement: {n: 3}}]",
            "s: jobs.0: replicas=0, of which 3 have a node, and max=2",
        ),
        (
            "now_s: 0\nnodes: []\njobs: [{name: a, mim: 3}]",
            "s: jobs.0.mim is no key that is known here: did you mean min?",
        ),
        (
            "now_s: 0\nnodes: []\njobs: [{name: a, telling: {remaining: 3}}]",
            "s: jobs.0.telling.remaining is no key",
        ),
        (
            "now_s: 0\nnodes: [{name: n, allocatable: {}}, {name: n, allocatable: {}}]",
            "s: two nodes are named n",
        ),
        (
            "now_s: 0\nnodes: []\njobs: [{name: a, share: {gpu: 2}}]",
            "jobs.0.share.gpu=2: expected a part of one GPU",
        ),
    ],
)
def test_an_error_names_the_file_the_key_and_its_value(text, expected):
    with pytest.raises(DescriptionError) as error:
        read_snapshot(text, "s")
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("telling", "expected"),
    [
        ("elastic_batch: {min: 0, max: 8}", "min, max and step are above 0, and min at most max"),
        ("elastic_batch: {min: 9, max: 8}", "min, max and step are above 0, and min at most max"),
        ("elastic_batch: {min: 4, max: 8, step: 0}", "min, max and step are above 0"),
        ("elastic_batch: {min: 4, max: 8, measured_at: -4}", "measured_at=-4 is to be above 0"),
        ("elastic_batch: {min: 4, max: 8, noise_growth: .nan}", "noise_growth=nan is to be finite"),
        ("elastic_batch: {min: 4, max: 8, grad_var: .inf}", "are finite, and 0 or more"),
        ("first_gradients: {sqr: -1, var: 1}", "are finite, and 0 or more"),
        ("trained_samples: .inf", "trained_samples=inf is to be finite"),
        ("remaining_samples: .nan", "remaining_samples=nan is to be finite"),
        ("global_batch_size: 0", "global_batch_size=0 is to be above 0"),
        ("max_local_batch: -1", "max_local_batch=-1 is to be above 0"),
        ("rescale_s: .inf", "rescale_s=inf is to be finite"),
        (
            "speeds: [{replicas: 1, nodes: 1, samples_per_s: .inf}]",
            "samples_per_s=inf is to be finite",
        ),
    ],
)
def test_numbers_that_no_job_could_tell_are_refused(telling, expected):
    text = f"now_s: 0\nnodes: []\njobs: [{{name: a, telling: {{{telling}}}}}]"
    with pytest.raises(DescriptionError) as error:
        read_snapshot(text, "s.yaml")
    assert str(error.value).startswith("s.yaml: jobs.0.telling: ")
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ("gradients: {sqr: .inf, var: 1}", "are finite, and 0 or more"),
        ("noise_growth: .inf", "noise_growth=inf is to be finite"),
    ],
)
def test_so_are_those_of_jobs_that_are_over(shown, expected):
    with pytest.raises(DescriptionError, match=rf"^s.yaml: shown.p: .*{expected}"):
        read_snapshot(f"now_s: 0\nnodes: []\nshown: {{p: {{{shown}}}}}", "s.yaml")
