"""What each queue of a cluster wants, checked against what its documentation allows."""

import re

import pytest

from elastic.platforms.kubernetes.objects.names import (
    GROUPS,
    KAI_QUEUES,
    KUEUE_QUEUES,
    NATIVE_GROUPS,
    VOLCANO_GROUPS,
    Additions,
    Gang,
    Part,
    QueueSystem,
    group_change,
    group_of,
    job_additions,
    pod_additions,
    queue_refusal,
    system_for,
    systems_served,
    template_additions,
)

GANG = Gang("digits", 3, "team-a")


def text(pattern=r".+"):
    return lambda value: isinstance(value, str) and bool(re.fullmatch(pattern, value))


def count(value):
    return type(value) is int and value >= 1


LABEL = text(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
NAME = text(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
SCHEMAS = {
    QueueSystem.NATIVE: {
        "apiVersion": text(r"scheduling\.k8s\.io/v1beta1"),
        "kind": text("PodGroup"),
        "metadata": {"name": NAME, "labels": {"kueue.x-k8s.io/queue-name": LABEL}},
        "spec": {"schedulingPolicy": {"gang": {"minCount": count}}},
    },
    QueueSystem.VOLCANO: {
        "apiVersion": text(r"scheduling\.volcano\.sh/v1beta1"),
        "kind": text("PodGroup"),
        "metadata": {"name": NAME, "labels": {"kueue.x-k8s.io/queue-name": LABEL}},
        "spec": {"minMember": count, "queue?": NAME},
    },
}
POD_SCHEMA = {
    "metadata": {
        "labels?": {
            "kueue.x-k8s.io/queue-name?": LABEL,
            # The name of a Workload.
            "kueue.x-k8s.io/pod-group-name?": text(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"),
            "kai.scheduler/queue?": LABEL,
        },
        "annotations?": {
            "kueue.x-k8s.io/pod-group-total-count?": text(r"[1-9][0-9]*"),
            "scheduling.k8s.io/group-name?": NAME,
            "scheduling.volcano.sh/queue-name?": NAME,
        },
    },
    "spec": {
        "schedulerName?": text("volcano|kai-scheduler"),
        "schedulingGroup?": {"podGroupName": NAME},
    },
}


def faults(schema, value, path=""):
    """Where a value is not as its schema has it; a name with `?` may be left out."""
    if not isinstance(schema, dict):
        return [] if schema(value) else [f"{path}={value!r}"]
    if not isinstance(value, dict):
        return [f"{path}={value!r}"]
    known = {key.removesuffix("?"): part for key, part in schema.items()}
    found = [f"{path}.{key} is unknown" for key in value if key not in known]
    found += [f"{path}.{key} is missing" for key in schema if key[-1] != "?" and key not in value]
    for key in known.keys() & value.keys():
        found += faults(known[key], value[key], f"{path}.{key}")
    return found


def pod_of(system, part):
    return pod_additions(system, GANG, part).to({"metadata": {}, "spec": {}})


@pytest.mark.parametrize("system", GROUPS)
def test_groups_are_as_documented(system):
    _, manifest = group_of(system, GANG)
    assert faults(SCHEMAS[system], manifest) == []


@pytest.mark.parametrize("system", list(QueueSystem))
@pytest.mark.parametrize("part", list(Part))
def test_pods_are_as_documented_and_tell_their_queue(system, part):
    pod = pod_of(system, part)
    assert faults(POD_SCHEMA, pod) == []
    assert pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"


def test_the_schemas_refuse():
    assert faults(POD_SCHEMA, {"metadata": {"labels": {"x": "y"}}, "spec": {}})
    assert faults(SCHEMAS[QueueSystem.NATIVE], {"spec": {"minMember": 0}})


class TestNative:
    def test_group_and_pods(self):
        resource, manifest = group_of(QueueSystem.NATIVE, GANG)
        assert resource == NATIVE_GROUPS
        assert manifest["spec"] == {"schedulingPolicy": {"gang": {"minCount": 3}}}
        for part in (Part.MINIMUM, Part.BEYOND):
            spec = pod_additions(QueueSystem.NATIVE, GANG, part).spec
            assert spec == {"schedulingGroup": {"podGroupName": "digits"}}

    def test_the_master_does_not_wait_for_those_that_it_makes(self):
        assert pod_additions(QueueSystem.NATIVE, GANG, Part.MASTER).spec == {}

    def test_the_minimum_follows_the_job(self):
        _, manifest = group_of(QueueSystem.NATIVE, GANG)
        assert group_change(QueueSystem.NATIVE, GANG, manifest) is None
        assert group_change(QueueSystem.NATIVE, Gang("digits", 5, "team-a"), manifest) == {
            "spec": {"schedulingPolicy": {"gang": {"minCount": 5}}}
        }


class TestKueue:
    def test_the_minimum_is_one_group_and_the_others_come_one_by_one(self):
        queue = {"kueue.x-k8s.io/queue-name": "team-a"}
        parts = {part: pod_additions(QueueSystem.KUEUE, GANG, part) for part in Part}
        assert parts[Part.MASTER] == parts[Part.BEYOND] == Additions(queue)
        assert parts[Part.MINIMUM] == Additions(
            queue | {"kueue.x-k8s.io/pod-group-name": "digits"},
            {"kueue.x-k8s.io/pod-group-total-count": "3"},
        )

    def test_no_object_is_needed(self):
        assert group_of(QueueSystem.KUEUE, GANG) is None
        assert group_change(QueueSystem.KUEUE, GANG, {}) is None

    def test_a_batch_job_is_suspended_and_its_pods_are_left_alone(self):
        assert job_additions(QueueSystem.KUEUE, GANG) == Additions(
            {"kueue.x-k8s.io/queue-name": "team-a"}, spec={"suspend": True}
        )
        assert template_additions(QueueSystem.KUEUE, GANG) == Additions()


class TestVolcano:
    def test_group_and_pods(self):
        resource, manifest = group_of(QueueSystem.VOLCANO, GANG)
        assert resource == VOLCANO_GROUPS
        assert manifest["spec"] == {"minMember": 3, "queue": "team-a"}
        made = pod_additions(QueueSystem.VOLCANO, GANG, Part.MINIMUM)
        assert made.annotations == {"scheduling.k8s.io/group-name": "digits"}
        assert made.spec == {"schedulerName": "volcano"}

    def test_the_master_is_of_no_group_and_in_the_same_queue(self):
        made = pod_additions(QueueSystem.VOLCANO, GANG, Part.MASTER)
        assert made.annotations == {"scheduling.volcano.sh/queue-name": "team-a"}
        assert made.spec == {"schedulerName": "volcano"}

    def test_the_minimum_follows_the_job(self):
        _, manifest = group_of(QueueSystem.VOLCANO, GANG)
        assert group_change(QueueSystem.VOLCANO, GANG, manifest) is None
        assert group_change(QueueSystem.VOLCANO, Gang("digits", 1, "team-a"), manifest) == {
            "spec": {"minMember": 1}
        }


@pytest.mark.parametrize("part", list(Part))
def test_kai_knows_pods_by_a_label_and_makes_groups_itself(part):
    made = pod_additions(QueueSystem.KAI, GANG, part)
    assert made.labels["kai.scheduler/queue"] == "team-a"
    assert made.spec == {"schedulerName": "kai-scheduler"}
    assert group_of(QueueSystem.KAI, GANG) is None


@pytest.mark.parametrize("system", [each for each in QueueSystem if each is not QueueSystem.KUEUE])
def test_the_pods_of_a_batch_job_are_of_its_group(system):
    assert job_additions(system, GANG).spec == {}
    assert template_additions(system, GANG) == pod_additions(system, GANG, Part.MINIMUM)


@pytest.mark.parametrize(
    ("systems", "queue", "expected"),
    [
        (list(QueueSystem), "team-a", QueueSystem.KUEUE),
        ([QueueSystem.NATIVE, QueueSystem.VOLCANO], "default", QueueSystem.VOLCANO),
        ([QueueSystem.NATIVE, QueueSystem.KAI], "team-a", QueueSystem.KAI),
        ([QueueSystem.NATIVE], "default", QueueSystem.NATIVE),
        ([QueueSystem.NATIVE], "team-a", None),
        ([], "default", None),
    ],
)
def test_which_system_a_queue_is_of(systems, queue, expected):
    assert system_for(systems, queue) is expected
    assert (queue_refusal(systems, queue) == "") is (expected is not None)


@pytest.mark.parametrize(
    ("systems", "queue", "words"),
    [
        ([], "q", ["no queues", "Kueue, Volcano nor KAI", "leave it out"]),
        ([QueueSystem.NATIVE], "q", ["'default'", "have no queues", "install Kueue"]),
        (list(QueueSystem), "a b", ["no name of a queue"]),
        (list(QueueSystem), "x" * 64, ["63"]),
    ],
)
def test_refusals_say_why(systems, queue, words):
    told = queue_refusal(systems, queue)
    assert [word for word in words if word not in told] == []


@pytest.mark.parametrize(
    ("served", "expected"),
    [
        ([], set()),
        ([NATIVE_GROUPS], {QueueSystem.NATIVE}),
        *(([each], {QueueSystem.KUEUE}) for each in KUEUE_QUEUES),
        ([VOLCANO_GROUPS, KAI_QUEUES], {QueueSystem.VOLCANO, QueueSystem.KAI}),
    ],
)
def test_systems_are_discovered(served, expected):
    assert systems_served(lambda resource: resource in served) == expected


def test_the_groups_of_1_36_are_of_another_form_and_not_used():
    assert NATIVE_GROUPS.api_version == "scheduling.k8s.io/v1beta1"


def test_additions_keep_what_is_there():
    pod = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}
    before = repr(pod)
    new = pod_additions(QueueSystem.VOLCANO, GANG, Part.MINIMUM).to(pod)
    assert new["metadata"]["labels"] == {"a": "b", "kueue.x-k8s.io/queue-name": "team-a"}
    assert new["spec"] == {"containers": [], "schedulerName": "volcano"}
    assert repr(pod) == before
