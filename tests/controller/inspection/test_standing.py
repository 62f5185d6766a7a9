"""How objects stand, by their specs and statuses alone, whoever has written these."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.team import ELASTIC_JOB, TF_JOB, TF_TEMPLATE, TRAIN_JOB, TRAINING_JOB

from elastic.controller.inspection.kinds import KINDS, Reference, parse_reference
from elastic.controller.inspection.objects import object_status, pod_statuses, replica_of
from elastic.controller.resources.definitions import DEFINITIONS
from elastic.errors import JobSpecError

BY_KIND = {kind.resource.kind: kind for kind in KINDS}
SPECS = {
    "TrainingJob": TRAINING_JOB,
    "ElasticJob": ELASTIC_JOB,
    "TFJob": TF_JOB,
    "ElasticTrainJob": TRAIN_JOB,
}


def job(spec=None, status=None):
    metadata = {"name": "j", "namespace": "team", "resourceVersion": "1"}
    return {"metadata": metadata, "spec": spec, "status": status}


def stand(kind, status=None, **change):
    return object_status(BY_KIND[kind], job(SPECS[kind] | change, status))


def count(status):
    return (
        status.replicas_ready,
        status.replicas_wanted,
        status.replicas_min,
        status.replicas_max,
    )


def worker(index, phase):
    return {"index": index, "launch": 1, "phase": phase}


def conditions(*holding, **others):
    listed = [{"type": each, "status": "True", "message": f"is {each}"} for each in holding]
    listed += [{"type": key, "status": "False", "message": text} for key, text in others.items()]
    return {"conditions": listed}


def test_every_kind_that_is_defined_is_seen():
    assert set(BY_KIND) == set(DEFINITIONS)


@pytest.mark.parametrize(
    ("told", "phase", "message"),
    [
        (conditions(), "", ""),
        (conditions("Created"), "Created", "is Created"),
        (conditions("Created", Scheduled="no room"), "Created", "no room"),
        (conditions("Created", "Running", "Scheduled"), "Running", "is Running"),
        (conditions("Created", "Running", "Restarting"), "Restarting", "is Restarting"),
        (conditions("Created", "Running", Scheduled="no room"), "Running", "is Running"),
        (conditions("Created", "Succeeded", Running="was"), "Succeeded", "is Succeeded"),
        (conditions("Created", "Failed"), "Failed", "is Failed"),
    ],
)
def test_the_phase_of_a_tf_job_is_the_strongest_that_holds(told, phase, message):
    status = stand("TFJob", told)
    assert (status.phase, status.message) == (phase, message)


@pytest.mark.parametrize(
    ("kind", "status", "change", "expected"),
    [
        ("TFJob", None, {}, (0, 2, 1, 4)),
        ("TFJob", {"size": 3, "sizeAsked": 2}, {}, (0, 3, 1, 4)),
        ("TFJob", {"replicaStatuses": {"Worker": {"active": 2}}}, {}, (2, 2, 1, 4)),
        ("TFJob", None, {"tfReplicaSpecs": {}}, (0, None, None, None)),
        ("ElasticJob", None, {}, (0, 3, 2, 5)),
        ("ElasticJob", None, {"minReplicas": None, "maxReplicas": None}, (0, 3, 3, 3)),
        ("ElasticJob", None, {"minReplicas": 9}, (0, None, None, None)),
        ("TrainingJob", None, {}, (0, 2, 2, 6)),
        ("TrainingJob", {"scale_status": {"trainer": {"wanted": 4}}}, {}, (0, 4, 2, 6)),
        ("ElasticTrainJob", None, {}, (0, 8, 2, 8)),
        (
            "ElasticTrainJob",
            {
                "desired_workers": 4,
                "phase": "Running",
                "workers": [worker(0, "Running"), worker(1, "Pending")],
            },
            {},
            (1, 4, 2, 8),
        ),
    ],
)
def test_the_replicas_that_a_job_is_sized_by_are_counted(kind, status, change, expected):
    assert count(stand(kind, status, **change)) == expected


def test_a_job_without_workers_is_sized_by_its_chief():
    chief = {"tfReplicaSpecs": {"Chief": {"template": TF_TEMPLATE}}}
    told = {"replicaStatuses": {"Chief": {"active": 1}}}
    status = object_status(BY_KIND["TFJob"], job(chief, told))
    assert (status.scaled_role, *count(status)) == ("chief", 1, 1, 1, 1)


NUMBERS = st.none() | st.booleans() | st.integers(-3, 9) | st.floats(allow_nan=False)
JSON = st.recursive(
    NUMBERS | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
FIELDS = st.sampled_from(
    ["phase", "reason", "message", "conditions", "replicaStatuses", "replica_statuses", "workers",
     "scale_status", "desired_workers", "size", "trainer", "job", "replicaSpecs", "tfReplicaSpecs",
     "minReplicas", "min-instances", "startTime"]
)  # fmt: skip


@pytest.mark.parametrize("kind", BY_KIND)
@settings(max_examples=100)
@given(data=st.data())
def test_whatever_somebody_has_written_is_shown(kind, data):
    fields = st.dictionaries(FIELDS, JSON, max_size=4)
    spec, status = data.draw(st.just({}) | st.just(SPECS[kind])), data.draw(fields)
    written = job(spec | data.draw(fields), status)
    assert object_status(BY_KIND[kind], written).job_name == "j"
    try:
        change = BY_KIND[kind].resized(written, 3)
    except JobSpecError:
        # A spec that is wrong, or one that has no room for so many.
        return
    assert set(change) == {"spec"}


def pod(name, labels, **status):
    metadata = {"name": name, "labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": metadata, "spec": {"containers": [{"name": "main"}]}, "status": status}


@pytest.mark.parametrize(
    ("kind", "labels", "name", "replica"),
    [
        ("ElasticJob", {"replica-type": "worker", "replica-index": "2"}, "j-worker-2", "worker-2"),
        ("ElasticJob", {"replica-type": "rdzv"}, "j-rdzv", "rdzv"),
        ("TFJob", {"replica-type": "ps", "replica-index": "0"}, "j-ps-0", "ps-0"),
        ("TrainingJob", {"paddle-job-pserver": "j"}, "j-pserver-x2", "pserver-x2"),
    ],
)
def test_a_pod_has_the_name_that_people_know_it_by(kind, labels, name, replica):
    assert replica_of(BY_KIND[kind], pod(name, labels)) == replica


def test_a_pod_that_failed_says_why():
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    labels = {"replica-type": "worker", "replica-index": "0"}
    containers = [{"name": "main", "state": ended, "restartCount": 2}]
    failed = pod("j-worker-0", labels, phase="Failed", containerStatuses=containers)
    [told] = pod_statuses(BY_KIND["ElasticJob"], [failed])
    assert (told.phase, told.restarts, told.is_ready) == ("Failed", 2, False)
    assert told.message == "exited with code 137: OOMKilled"


@pytest.mark.parametrize(
    ("pod_part", "container"),
    [
        ({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}, "a"),
        (
            {
                "metadata": {"annotations": {"kubectl.kubernetes.io/default-container": "b"}},
                "spec": {"containers": [{"name": "a"}, {"name": "b"}]},
            },
            "b",
        ),
        (
            {
                "metadata": {"annotations": {"kubectl.kubernetes.io/default-container": "gone"}},
                "spec": {"containers": [{"name": "a"}]},
            },
            "a",
        ),
    ],
)
def test_the_container_that_kubectl_would_read_is_read(pod_part, container):
    assert BY_KIND["ElasticJob"].container({"metadata": {}} | pod_part) == container


def test_a_reference_is_told_as_commands_take_it():
    told = str(Reference(BY_KIND["TFJob"], "mnist"))
    assert told == "tfjob/mnist"
    assert str(parse_reference(told.upper().replace("MNIST", "mnist"))) == told
