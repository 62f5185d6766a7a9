"""What each queue of a cluster wants, checked against what its documentation allows."""

import re

import pytest

from elastic.controller.kinds.queues import (
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
    refusal,
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
        "metadata": {"name": NAME},
        "spec": {"schedulingPolicy": {"gang": {"minCount": count}}},
    },
    QueueSystem.VOLCANO: {
        "apiVersion": text(r"scheduling\.volcano\.sh/v1beta1"),
        "kind": text("PodGroup"),
        "metadata": {"name": NAME},
        "spec": {"minMember": count, "queue?": NAME},
    },
}
POD_SCHEMA = {
    "metadata": {
        "labels?": {
            "kueue.x-k8s.io/queue-name?": LABEL,
            "kueue.x-k8s.io/pod-group-name?": LABEL,
        },
        "annotations?": {
            "kueue.x-k8s.io/pod-group-total-count?": text(r"[1-9][0-9]*"),
            "scheduling.k8s.io/group-name?": NAME,
            "scheduling.volcano.sh/queue-name?": NAME,
        },
    },
    "spec": {
        "schedulerName?": text("volcano"),
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


def gang_for(system):
    return Gang("digits", 3) if system is QueueSystem.NATIVE else GANG


@pytest.mark.parametrize("system", [QueueSystem.NATIVE, QueueSystem.VOLCANO])
def test_groups_are_as_documented(system):
    _, manifest = group_of(system, gang_for(system))
    assert faults(SCHEMAS[system], manifest) == []


@pytest.mark.parametrize("system", list(QueueSystem))
@pytest.mark.parametrize("part", list(Part))
def test_pods_are_as_documented(system, part):
    pod = pod_additions(system, gang_for(system), part).to({"metadata": {}, "spec": {}})
    assert faults(POD_SCHEMA, pod) == []


def test_the_schemas_refuse():
    assert faults(POD_SCHEMA, {"metadata": {"labels": {"x": "y"}}, "spec": {}})
    assert faults(SCHEMAS[QueueSystem.NATIVE], {"spec": {"minMember": 0}})


class TestNative:
    def test_group_and_pods(self):
        resource, manifest = group_of(QueueSystem.NATIVE, Gang("digits", 3))
        assert resource == NATIVE_GROUPS
        assert manifest["spec"] == {"schedulingPolicy": {"gang": {"minCount": 3}}}
        for part in (Part.MINIMUM, Part.BEYOND):
            assert pod_additions(QueueSystem.NATIVE, Gang("digits", 3), part) == Additions(
                spec={"schedulingGroup": {"podGroupName": "digits"}}
            )

    def test_the_master_does_not_wait_for_those_that_it_makes(self):
        gang = Gang("digits", 3)
        assert pod_additions(QueueSystem.NATIVE, gang, Part.MASTER) == Additions()

    def test_the_minimum_follows_the_job(self):
        _, manifest = group_of(QueueSystem.NATIVE, Gang("digits", 3))
        assert group_change(QueueSystem.NATIVE, Gang("digits", 3), manifest) is None
        assert group_change(QueueSystem.NATIVE, Gang("digits", 5), manifest) == {
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
        assert pod_additions(QueueSystem.VOLCANO, GANG, Part.MINIMUM) == Additions(
            annotations={"scheduling.k8s.io/group-name": "digits"},
            spec={"schedulerName": "volcano"},
        )

    def test_without_a_queue_it_is_volcanos_own(self):
        gang = Gang("digits", 3)
        assert group_of(QueueSystem.VOLCANO, gang)[1]["spec"] == {"minMember": 3}
        assert pod_additions(QueueSystem.VOLCANO, gang, Part.MASTER) == Additions(
            spec={"schedulerName": "volcano"}
        )

    def test_the_minimum_follows_the_job(self):
        _, manifest = group_of(QueueSystem.VOLCANO, GANG)
        assert group_change(QueueSystem.VOLCANO, GANG, manifest) is None
        assert group_change(QueueSystem.VOLCANO, Gang("digits", 1, "team-a"), manifest) == {
            "spec": {"minMember": 1}
        }


@pytest.mark.parametrize("system", [QueueSystem.NATIVE, QueueSystem.VOLCANO])
def test_the_pods_of_a_batch_job_are_of_its_group(system):
    gang = gang_for(system)
    assert job_additions(system, gang) == Additions()
    assert template_additions(system, gang) == pod_additions(system, gang, Part.MINIMUM)


@pytest.mark.parametrize(
    ("system", "gang", "words"),
    [
        (QueueSystem.KUEUE, Gang("j", 1), ["j", "LocalQueue"]),
        (QueueSystem.NATIVE, Gang("j", 1, "q"), ["queue=q", "Kueue or Volcano"]),
        (QueueSystem.KUEUE, Gang("j", 1, "a b"), ["queue=a b"]),
        (QueueSystem.KUEUE, Gang("x" * 64, 1, "q"), ["name=xxx", "63"]),
        *((each, Gang("j", 1, places_itself=True), ["chooses the nodes"]) for each in QueueSystem),
    ],
)
def test_refusals_say_why(system, gang, words):
    assert [word for word in words if word not in refusal(system, gang)] == []


@pytest.mark.parametrize("system", list(QueueSystem))
def test_what_is_not_refused(system):
    assert refusal(system, gang_for(system)) == ""


@pytest.mark.parametrize(
    ("served", "expected"),
    [
        ([], set()),
        ([("scheduling.k8s.io", "v1beta1", "podgroups")], {QueueSystem.NATIVE}),
        ([("scheduling.k8s.io", "v1alpha2", "podgroups")], set()),
        ([("scheduling.k8s.io", "v1", "priorityclasses")], set()),
        ([("kueue.x-k8s.io", "v1beta2", "localqueues")], {QueueSystem.KUEUE}),
        ([("scheduling.volcano.sh", "v1beta1", "podgroups")], {QueueSystem.VOLCANO}),
    ],
)
def test_systems_are_discovered(served, expected):
    assert systems_served(served) == expected


def test_additions_keep_what_is_there():
    pod = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}
    before = repr(pod)
    new = pod_additions(QueueSystem.VOLCANO, GANG, Part.MINIMUM).to(pod)
    assert new["metadata"]["labels"] == {"a": "b"}
    assert new["spec"] == {"containers": [], "schedulerName": "volcano"}
    assert repr(pod) == before
