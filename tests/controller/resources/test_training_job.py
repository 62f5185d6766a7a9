"""TrainingJobs as users write them: what is read, what is refused, and in which words."""

import copy
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from elastic.controller.resources.training_job import (
    Phase,
    RoleStatus,
    TrainingJobStatus,
    read_job,
)

EXAMPLES = Path(__file__).parents[3] / "manifests/examples"
LEAST = {"pserver": {"min-instance": 1}, "trainer": {"min-instance": 1}}


def job(spec, name="paddlejob"):
    return {"metadata": {"name": name}, "spec": spec}


def read(spec):
    reading = read_job(job(spec))
    assert reading.spec is not None, reading.problem
    return reading.spec


def changed(path, value):
    """The least spec with one field of another value."""
    spec = copy.deepcopy(LEAST)
    *way, last = path.split("/")
    at = spec
    for part in way:
        at = at.setdefault(part, {})
    at[last] = value
    return spec


@pytest.mark.parametrize("version", ["v1", "v1alpha1"])
def test_the_published_examples(version):
    written = yaml.safe_load((EXAMPLES / f"trainingjob-{version}.yaml").read_text())
    assert written["apiVersion"] == f"paddlepaddle.org/{version}"
    reading = read_job(written)
    spec = reading.spec
    assert (reading.problem, reading.unknown) == ("", ())
    assert spec.image == "paddlepaddle/paddlecloud-job"
    assert (spec.port, spec.ports_num, spec.ports_num_for_sparse) == (7164, 1, 1)
    assert (spec.fault_tolerant, spec.mount_path) == (False, "/home/work/namespace/")
    assert spec.master.resources.limits == {"cpu": "800m", "memory": "1Gi"}
    assert spec.pserver.resources.requests == {"cpu": "500m", "memory": "600Mi"}
    assert (spec.pserver.min_instance, spec.pserver.most) == (2, 2)
    assert (spec.trainer.min_instance, spec.trainer.most) == (2, 6)
    assert spec.trainer.resources.limits == {"cpu": "200m", "memory": "200Mi"}
    assert (spec.trainer.entrypoint, spec.trainer.workspace) == ("python train.py", "/home/job-1/")
    assert spec.num_passes == 10


def test_the_least_that_can_be_written():
    spec = read(LEAST)
    assert spec.image == "paddlepaddle/paddlecloud-job"
    assert (spec.port, spec.ports_num, spec.ports_num_for_sparse) == (7164, 1, 1)
    assert (spec.num_passes, spec.fault_tolerant, spec.host_network) == (1, False, False)
    assert (spec.master, spec.mount_path, spec.trainer.command) == (None, None, None)
    assert (spec.trainer.entrypoint, spec.trainer.workspace) == ("", "")
    assert (spec.volumes, spec.volume_mounts, spec.node_selector) == ([], [], {})
    assert spec.trainer.most == 1


@pytest.mark.parametrize(
    ("of_job", "of_trainer", "expected"),
    [(None, None, 1), (None, 3, 3), (5, None, 5), (5, 3, 5)],
)
def test_passes_are_the_jobs_or_else_the_trainers(of_job, of_trainer, expected):
    spec = changed("trainer/passes", of_trainer) | {"passes": of_job}
    assert read(spec).num_passes == expected


def test_amounts_may_be_numbers():
    amounts = {"cpu": 1, "memory": "1Gi", "nvidia.com/gpu": 2}
    assert read(changed("trainer/resources", {"limits": amounts})).trainer.resources.limits == (
        amounts
    )


def test_unknown_fields_are_kept_and_named():
    spec = changed("trainer/min_instance", 3) | {"faultTolerant": True}
    spec["pserver"]["resources"] = {"claims": []}
    reading = read_job(job(spec))
    assert sorted(reading.unknown) == [
        "spec.faultTolerant",
        "spec.pserver.resources.claims",
        "spec.trainer.min_instance",
    ]
    assert reading.spec.model_extra == {"faultTolerant": True}
    assert reading.spec.trainer.min_instance == 1


BAD = [
    ("image", "", ["spec.image=''"]),
    ("image", "two words", ["spec.image='two words'"]),
    ("image", 3, ["spec.image=3", "string"]),
    ("port", 0, ["spec.port=0", "1"]),
    ("port", 70000, ["spec.port=70000", "65535"]),
    ("port", "7164", ["spec.port='7164'", "integer"]),
    ("port", 65535, ["spec.port=65535", "ports_num=1", "65536"]),
    ("ports_num", 0, ["spec.ports_num=0", "1"]),
    ("ports_num", True, ["spec.ports_num=True", "integer"]),
    ("ports_num_for_sparse", -1, ["spec.ports_num_for_sparse=-1"]),
    ("passes", 0, ["spec.passes=0"]),
    ("trainer/passes", -2, ["spec.trainer.passes=-2"]),
    ("fault_tolerant", "yes", ["spec.fault_tolerant='yes'", "boolean"]),
    ("host_network", 1, ["spec.host_network=1", "boolean"]),
    ("mountPath", "work", ["spec.mountPath='work'"]),
    ("mountPath", "/a:b", ["spec.mountPath='/a:b'"]),
    ("volumes", {"name": "data"}, ["spec.volumes={'name': 'data'}", "list"]),
    ("volumes", [{"emptyDir": {}}], ["spec.volumes=[{'emptyDir': {}}]", "index 0", "name"]),
    ("volumes", [{"name": "a"}, {"name": "a"}], ["spec.volumes=", "two volumes", "a"]),
    ("volumeMounts", [{"name": "b", "mountPath": "/b"}], ["spec.volumeMounts=", "/b", "'b'"]),
    ("volumeMounts", [{"name": "b"}], ["spec.volumeMounts=[{'name': 'b'}]", "mountPath"]),
    ("nodeSelector", {"disk": 1}, ["spec.nodeSelector.disk=1", "string"]),
    ("tolerations", {"key": "spot"}, ["spec.tolerations=", "list"]),
    ("tolerations", ["spot"], ["spec.tolerations.0='spot'"]),
    ("imagePullSecrets", ["login"], ["spec.imagePullSecrets.0='login'"]),
    ("imagePullSecrets", [{}], ["spec.imagePullSecrets.0.name is missing"]),
    ("master", [], ["spec.master=[]"]),
    ("master/command", [], ["spec.master.command=[]"]),
    ("master/resources", "1", ["spec.master.resources='1'"]),
    ("pserver", None, ["spec.pserver=None"]),
    ("pserver/min-instance", 0, ["spec.pserver.min-instance=0", "1"]),
    ("pserver/min-instance", 2.5, ["spec.pserver.min-instance=2.5", "integer"]),
    ("pserver/min-instance", 2**31, ["spec.pserver.min-instance=2147483648"]),
    ("trainer/min-instance", None, ["spec.trainer.min-instance=None"]),
    ("trainer/max-instance", 0, ["spec.trainer.max-instance=0"]),
    ("trainer/command", "python train.py", ["spec.trainer.command='python train.py'", "list"]),
    ("trainer/command", [1], ["spec.trainer.command.0=1", "string"]),
    ("trainer/entrypoint", ["python"], ["spec.trainer.entrypoint=['python']", "string"]),
    ("trainer/workspace", 1, ["spec.trainer.workspace=1"]),
    (
        "trainer/resources",
        {"limits": {"cpu": "lots"}},
        ["spec.trainer.resources.limits.cpu='lots'", "quantity"],
    ),
    (
        "trainer/resources",
        {"limits": {"cpu": [1]}},
        ["spec.trainer.resources.limits.cpu=[1]", "quantity"],
    ),
    (
        "trainer/resources",
        {"requests": {"memory": "-1Gi"}},
        ["spec.trainer.resources.requests.memory='-1Gi'", "negative"],
    ),
    (
        "trainer/resources",
        {"limits": {"cpu": "500m"}, "requests": {"cpu": 1}},
        ["spec.trainer.resources.requests", "cpu=1", "500m"],
    ),
    (
        "trainer/resources",
        {"limits": {"nvidia.com/gpu": 2}, "requests": {"nvidia.com/gpu": 1}},
        ["spec.trainer.resources.requests", "nvidia.com/gpu=1", "equal"],
    ),
    (
        "trainer/resources",
        {"requests": {"nvidia.com/gpu": 1}},
        ["spec.trainer.resources.requests", "nvidia.com/gpu=1", "limits"],
    ),
]


@pytest.mark.parametrize(
    ("path", "value", "words"), BAD, ids=[f"{path}-{value!r}"[:60] for path, value, _ in BAD]
)
def test_a_wrong_value_is_refused_by_field_and_value(path, value, words):
    reading = read_job(job(changed(path, value)))
    assert reading.spec is None
    assert [word for word in words if word not in reading.problem] == [], reading.problem


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (None, "spec.pserver is missing"),
        ({"pserver": {"min-instance": 1}}, "spec.trainer is missing"),
        ({"pserver": {}, "trainer": {"min-instance": 1}}, "spec.pserver.min-instance is missing"),
        ([], "spec=[]"),
        (
            changed("trainer/min-instance", 3) | {"pserver": {"min-instance": 1}},
            None,
        ),
    ],
)
def test_what_is_missing_is_named(spec, problem):
    reading = read_job(job(spec))
    assert reading.problem.startswith(problem) if problem else reading.spec is not None


def test_a_maximum_below_the_minimum_names_both():
    spec = changed("trainer/max-instance", 2)
    spec["trainer"]["min-instance"] = 3
    problem = read_job(job(spec)).problem
    assert problem.startswith("spec.trainer.max-instance=2: ")
    assert "min-instance, which is 3" in problem


def test_a_name_that_leaves_no_room_for_those_made_from_it():
    assert read_job(job(LEAST, "x" * 55)).problem == ""
    problem = read_job(job(LEAST, "x" * 56)).problem
    assert f"metadata.name={'x' * 56}" in problem
    assert "55" in problem


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
PATHS = sorted({path for path, _, _ in BAD})


@given(st.dictionaries(st.sampled_from(PATHS), VALUES, max_size=4))
def test_whatever_is_written_is_read_or_refused(fields):
    """No value of a field is more than a problem that can be told."""
    spec = copy.deepcopy(LEAST)
    for path, value in fields.items():
        *way, last = path.split("/")
        at = spec
        for part in way:
            at = at.setdefault(part, {})
            if not isinstance(at, dict):
                return
        at[last] = value
    reading = read_job(job(spec))
    assert (reading.spec is None) == bool(reading.problem)


def test_the_status_has_the_names_of_the_published_one():
    status = TrainingJobStatus(
        phase=Phase.RUNNING,
        replica_statuses=[
            RoleStatus(training_resource_type="trainer", resource_states={"a": "Running"})
        ],
        observedGeneration=1,
    )
    written = status.model_dump(mode="json", by_alias=True)
    assert sorted(written) == [
        "observedGeneration",
        "phase",
        "reason",
        "replica_statuses",
        "scale_status",
    ]
    assert sorted(written["scale_status"]) == ["pserver", "trainer"]
    assert sorted(written["scale_status"]["trainer"]) == ["current", "reason", "time", "wanted"]
    assert written["replica_statuses"] == [
        {
            "active": 0,
            "succeeded": 0,
            "failed": 0,
            "training_resource_type": "trainer",
            "resource_states": {"a": "Running"},
        }
    ]
    assert TrainingJobStatus.model_validate(written) == status
