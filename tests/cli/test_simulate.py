"""`elastic simulate`: policies side by side, for people and for programs."""

import json

import pytest
from support.api_server_in_memory import InMemoryApi

from elastic.cli.main import main
from elastic.cli.policies import GENERATOR_NAMES, POLICY_NAMES
from elastic.controller.snapshots.reading import RESOURCES
from elastic.platforms.kubernetes.api.resources import NODES as ALL_NODES
from elastic.simulation.workload import GENERATORS
from elastic.telemetry import progress

WORKLOAD = "jobs: [{name: a, min: 1, max: 4, asked: 1, work_s: 60, requests: {cpu: 1}}]"
NODES = "nodes: [{name: n, allocatable: {cpu: 10}}]"


@pytest.fixture
def files(tmp_path):
    (tmp_path / "jobs.yaml").write_text(WORKLOAD)
    (tmp_path / "nodes.yaml").write_text(NODES)
    return ["--workload", str(tmp_path / "jobs.yaml"), "--nodes", str(tmp_path / "nodes.yaml")]


def simulated(arguments, capsys):
    assert main(["simulate", *arguments, "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)["policies"]


def test_the_names_that_help_lists_are_those_that_there_are():
    assert tuple(GENERATORS) == GENERATOR_NAMES


def test_a_table_has_a_column_for_each_policy(files, capsys):
    assert main(["simulate", *files]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert tuple(lines[0].split()) == POLICY_NAMES
    rows = {line[:20].strip(): line[20:].split() for line in lines[1:]}
    assert rows["jobs"] == ["1"] * len(POLICY_NAMES)
    assert all(len(cells) == len(POLICY_NAMES) for cells in rows.values())


def test_json_has_numbers_and_jobs(files, capsys):
    found = simulated([*files, "--policy", "fulfillment"], capsys)["fulfillment"]
    # A minute of work, by four.
    assert found["metrics"]["completion"]["mean_s"] == 15
    assert found["jobs"][0]["sizes"] == [[0.0, 4], [15.0, 0]]


def test_a_simulation_that_takes_long_says_how_far_it_is(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(progress, "LINE_INTERVAL_S", 0.0)
    jobs = ", ".join(
        f"{{name: {name}, min: 1, hold_s: {hold}}}"
        for name, hold in zip("abc", (9, 5, 5), strict=True)
    )
    (tmp_path / "jobs.yaml").write_text(f"jobs: [{jobs}]")
    (tmp_path / "nodes.yaml").write_text(NODES)
    files = ["--workload", str(tmp_path / "jobs.yaml"), "--nodes", str(tmp_path / "nodes.yaml")]
    assert main(["simulate", *files, "--policy", "dragon,gang"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(", ")[0] for line in lines] == [
        "simulation: dragon", "simulation: dragon", "simulation: gang", "simulation: gang",
    ]  # fmt: skip
    assert [line.split(", ")[1] for line in lines] == [
        "2 of 3 jobs have ended", "3 of 3 jobs have ended",
    ] * 2  # fmt: skip


def test_a_change_of_size_costs_what_is_said(files, capsys):
    later = [*files, "--policy", "fulfillment", "--period", "10"]
    free = simulated([*later, "--kind", "ElasticJob", "--rescale", "ElasticJob=0"], capsys)
    assert free["fulfillment"]["jobs"][0]["ended_s"] == 15


def test_what_is_made_is_kept_and_gives_the_same_again(tmp_path, capsys):
    kept = tmp_path / "kept"
    made = simulated(
        ["--generate", "tfjobs", "--jobs", "12", "--seed", "3", "--save", str(kept)], capsys
    )
    files = ["--workload", str(kept / "workload.json"), "--nodes", str(kept / "nodes.json")]
    again = simulated(files, capsys)
    for name in POLICY_NAMES:
        assert again[name]["jobs"] == made[name]["jobs"]


def test_a_policy_that_is_named_twice_has_one_column(capsys):
    arguments = ["simulate", "--generate", "tfjobs", "--jobs", "2", "--policy", "gang,gang"]
    assert main(arguments) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["gang"]


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        ([], 2, "say one of --workload, --generate and --from_cluster"),
        (["--workload", "w"], 2, "--workload needs --nodes"),
        (["--workload", "w", "--nodes", "n", "--jobs", "3"], 2, "--jobs is of --generate"),
        (["--generate", "philly", "--policy", "best"], 2, "--policy best is none of"),
        (["--generate", "philly", "--policy", ","], 2, "--policy names no policy"),
        (["--workload", "gone", "--nodes", "n"], 1, "gone cannot be read"),
        (["--generate", "philly", "--elastic", "2:1"], 2, "0 < LEAST <= 1 <= MOST"),
        (["--generate", "philly", "--rescale", "TFJob"], 2, "is no KIND=SECONDS"),
        (["--generate", "tfjobs", "--jobs", "3", "--rescale", "tfjob=30"], 2, "kind tfjob; known"),
        (["--generate", "philly", "-n", "team"], 2, "--namespace is of the current cluster"),
    ],
)
def test_what_is_wrong_is_said(arguments, code, expected, capsys):
    assert main(["simulate", *arguments]) == code
    assert expected in capsys.readouterr().err


def test_it_says_what_plots_need_before_anything_is_simulated(files, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert main(["simulate", *files, "--plots", str(tmp_path / "plots")]) == 1
    assert "matplotlib, which is not installed here: pip install" in capsys.readouterr().err


ENDED = {
    "startTime": "2026-01-01T00:00:10Z",
    "completionTime": "2026-01-01T00:01:50Z",
    "conditions": [
        {
            "type": "Succeeded",
            "status": "True",
            "reason": "done",
            "message": "",
            "lastUpdateTime": "2026-01-01T00:01:50Z",
            "lastTransitionTime": "2026-01-01T00:01:50Z",
        }
    ],
}


@pytest.fixture
def cluster_files(tmp_path):
    """A cluster of one node, with a job of two workers that took 100 s and has succeeded."""
    with InMemoryApi() as api:
        cluster = api.cluster()
        for kind in RESOURCES.values():
            api.serve(kind)
        ready = [{"type": "Ready", "status": "True"}]
        status = {"allocatable": {"cpu": "8"}, "conditions": ready}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n0"}}
        cluster.create(ALL_NODES.path(), {**node, "status": status})
        cluster.patch(ALL_NODES.path(None, "n0", "status"), {"status": status})
        _ended_job(cluster, "team")
        yield ["--kubeconfig", str(api.kubeconfig(tmp_path / "config", "somebody"))]


def _ended_job(cluster, namespace):
    kind = RESOURCES["elasticjob"]
    containers = [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]
    worker = {"replicas": 2, "template": {"spec": {"containers": containers}}}
    cluster.create(
        kind.path(namespace),
        {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": "a", "namespace": namespace},
            "spec": {"minReplicas": 1, "maxReplicas": 4, "replicaSpecs": {"Worker": worker}},
        },
    )
    cluster.patch(kind.path(namespace, "a", "status"), {"status": ENDED})


def test_what_a_cluster_did_is_replayed_on_its_nodes(cluster_files, capsys):
    said = ["--from_cluster", "-n", "team", *cluster_files, "--policy", "gang,fulfillment"]
    found = simulated([*said, "--rescale", "ElasticJob=0"], capsys)
    # With the two that it had it takes as long as it took, and with four on the idle node half.
    assert found["gang"]["metrics"]["completion"]["mean_s"] == 100
    assert found["fulfillment"]["jobs"][0]["sizes"][0] == [0.0, 3]
    assert found["fulfillment"]["metrics"]["completion"]["mean_s"] < 100


def test_a_cluster_where_nothing_has_succeeded_is_told_without_a_traceback(cluster_files, capsys):
    assert main(["simulate", "--from_cluster", "-n", "other", *cluster_files]) == 1
    assert "there is nothing to replay" in capsys.readouterr().err


def test_a_folder_without_profiles_is_named(files, tmp_path, capsys):
    assert main(["simulate", *files, "--profiles", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        f"error: --profiles {tmp_path} has no APPLICATION/FILE.csv\n"
    )
