"""Whose an object is: found by uids, in whatever order things are heard of, without a search."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.toy_kind import TOYS, ToyKind

from elastic.controller.machinery.informers import Index, JobKey
from elastic.platforms.kubernetes.api.resources import PODS, Resource

SETS = Resource("apps", "v1", "replicasets", "ReplicaSet")
KEY = JobKey(TOYS, "team", "job")


def item(name, owner=None, label=None, uid=None, namespace="team", is_controller=True):
    metadata = {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}"}
    if label:
        metadata["labels"] = {"toy": label}
    if owner:
        metadata["ownerReferences"] = [{"uid": f"uid-{owner}", "controller": is_controller}]
    return {"metadata": metadata}


@pytest.fixture
def index():
    return Index([ToyKind(children=(SETS, PODS))])


def names(found):
    return sorted(each["metadata"]["name"] for _, each in found)


def test_a_change_concerns_the_job_that_controls_directly_or_not(index):
    index.change(TOYS, None, item("job"))
    assert index.change(SETS, None, item("set", "job")) == {KEY}
    assert index.change(PODS, None, item("pod", "set")) == {KEY}
    assert index.change(PODS, item("pod", "set"), item("pod", "set", label="x")) == {KEY}
    assert index.change(PODS, item("pod", "set"), None) == {KEY}
    assert index.change(PODS, None, item("other", "unknown")) == set()
    # One of those that own it without controlling it.
    assert index.change(PODS, None, item("part", "job", is_controller=False)) == set()


def test_a_change_of_hands_concerns_both(index):
    index.change(TOYS, None, item("job"))
    index.change(TOYS, None, item("next"))
    index.change(PODS, None, item("pod", "job"))
    concerned = index.change(PODS, item("pod", "job"), item("pod", "next"))
    assert {key.name for key in concerned} == {"job", "next"}
    assert index.controlled(item("job")) == []
    assert names(index.controlled(item("next"))) == ["pod"]


def test_what_a_job_that_is_no_more_has_left_concerns_it_still(index):
    index.change(TOYS, None, item("job"))
    pod = item("pod", "job", label="job")
    index.change(PODS, None, pod)
    index.change(TOYS, item("job"), None)
    assert index.change(PODS, pod, pod) == {KEY}
    assert names(index.labelled(KEY)) == ["pod"]
    assert index.orphans(KEY) == []
    index.change(PODS, pod, None)
    assert index.labelled(KEY) == []


def test_labels_give_to_a_job_what_nobody_controls(index):
    assert index.change(PODS, None, item("pod", label="job")) == {KEY}
    assert names(index.orphans(KEY)) == ["pod"]
    index.change(PODS, item("pod", label="job"), item("pod", "job", label="job"))
    assert index.orphans(KEY) == []
    index.change(PODS, item("pod", "job", label="job"), item("pod", label="job"))
    index.change(PODS, item("pod", label="job"), item("pod"))
    assert index.orphans(KEY) == []
    index.change(PODS, None, item("far", label="job", namespace="elsewhere"))
    assert index.orphans(KEY) == []


def test_an_owner_elsewhere_is_none(index):
    index.change(TOYS, None, item("job"))
    index.change(PODS, None, item("pod", "job", namespace="elsewhere"))
    assert names(index.belongings(item("job"))) == []


def test_what_is_told_of_an_end_may_differ_from_what_was_known(index):
    index.change(TOYS, None, item("job"))
    index.change(PODS, None, item("pod", "job"))
    assert index.change(PODS, item("pod"), None) == {KEY}
    assert names(index.belongings(item("job"))) == []


@given(st.integers(0, 10_000))
def test_the_order_in_which_things_are_heard_of_does_not_matter(seed):
    rng = random.Random(seed)
    index = Index([ToyKind(children=(SETS, PODS))])
    things = [
        (TOYS, item("job")),
        (SETS, item("set", "job")),
        (PODS, item("a", "set")),
        (PODS, item("b", "job")),
        (PODS, item("c", label="job")),
        (PODS, item("d", "gone", label="job")),
    ]
    told = set()
    rng.shuffle(things)
    for resource, each in things:
        told |= index.change(resource, None, each)
        if rng.random() < 0.3:
            index.change(resource, each, None)
            told |= index.change(resource, None, each)
    assert names(index.belongings(item("job"))) == ["a", "b", "set"]
    assert names(index.orphans(KEY)) == ["c"]
    assert told == {KEY}
    for resource, each in things:
        index.change(resource, each, None)
    assert not index._objects
    assert not index._controlled
    assert not index._by_labels


def test_the_cost_of_a_look_does_not_grow_with_the_number_of_other_jobs():
    """Counted in objects that are touched, not in time."""

    class Counted(dict):
        reads = 0

        def __getitem__(self, key):
            Counted.reads += 1
            return super().__getitem__(key)

        def __iter__(self):
            raise AssertionError("all objects were searched through")

    index = Index([ToyKind(children=(PODS,))])
    for number in range(200):
        index.change(TOYS, None, item(f"job{number}"))
        for pod in range(10):
            index.change(PODS, None, item(f"pod{number}-{pod}", f"job{number}"))
    index._objects = Counted(index._objects)
    assert len(list(index.belongings(item("job7")))) == 10
    assert Counted.reads == 10
