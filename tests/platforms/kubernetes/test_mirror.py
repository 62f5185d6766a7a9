"""The mirror is right whatever order lists, events and our own creations come in."""

import threading

import pytest

from elastic.platforms.kubernetes.mirror import Mirror


def item(name, uid=None, version=1):
    return {"metadata": {"name": name, "uid": uid or f"{name}-1", "resourceVersion": str(version)}}


@pytest.fixture
def told():
    return []


@pytest.fixture
def mirror(told):
    def on_change(old, new):
        kind = "added" if old is None else "removed" if new is None else "changed"
        told.append((kind, (new or old)["metadata"]["uid"]))

    return Mirror(on_change, threading.RLock())


def listing(mirror, *items):
    mirror.begin_list()
    mirror.finish_list(items)


def test_a_list_tells_what_is_new_and_what_is_gone(mirror, told):
    listing(mirror, item("a"), item("b"))
    listing(mirror, item("b", version=2), item("c"))
    assert told[:2] == [("added", "a-1"), ("added", "b-1")]
    assert sorted(told[2:]) == [("added", "c-1"), ("changed", "b-1"), ("removed", "a-1")]
    assert {i["metadata"]["name"] for i in mirror.all()} == {"b", "c"}


def test_what_has_not_changed_is_not_told_again(mirror, told):
    listing(mirror, item("a"))
    listing(mirror, item("a"))
    mirror.apply("ADDED", item("a"))
    assert told == [("added", "a-1")]


def test_a_successor_of_the_same_name_means_that_the_first_was_removed(mirror, told):
    listing(mirror, item("a", "first"))
    listing(mirror, item("a", "second"))
    assert told == [("added", "first"), ("removed", "first"), ("added", "second")]


def test_a_late_removal_of_the_first_leaves_the_second_alone(mirror, told):
    listing(mirror, item("a", "first"))
    mirror.apply("ADDED", item("a", "second"))
    mirror.apply("DELETED", item("a", "first"))
    assert mirror.get("a")["metadata"]["uid"] == "second"
    assert told[-1] == ("added", "second")


def test_a_list_that_was_under_way_does_not_remove_what_we_created(mirror, told):
    mirror.begin_list()
    mirror.put(item("a"))
    mirror.finish_list([])
    assert mirror.get("a") is not None
    # The next list is newer than the creation.
    listing(mirror)
    assert told == [("added", "a-1"), ("removed", "a-1")]


def test_a_list_that_was_under_way_does_not_bring_back_what_we_saw_removed(mirror):
    listing(mirror, item("a", "first"))
    mirror.begin_list()
    mirror.apply("DELETED", item("a", "first"))
    mirror.put(item("a", "second"))
    mirror.finish_list([item("a", "first")])
    assert mirror.get("a")["metadata"]["uid"] == "second"


def test_an_answer_that_comes_after_its_objects_end_revives_nothing(mirror, told):
    listing(mirror)
    mirror.apply("ADDED", item("a"))
    mirror.apply("DELETED", item("a"))
    mirror.put(item("a"))
    assert mirror.get("a") is None
    assert told == [("added", "a-1"), ("removed", "a-1")]


def test_an_answer_that_comes_after_its_event_changes_nothing(mirror):
    listing(mirror)
    mirror.apply("ADDED", item("a"))
    mirror.apply("MODIFIED", item("a", version=2))
    mirror.put(item("a"))
    assert mirror.get("a")["metadata"]["resourceVersion"] == "2"


def test_a_removal_tells_the_last_state(told):
    seen = []
    mirror = Mirror(lambda old, new: seen.append((old, new)), threading.RLock())
    listing(mirror, item("a"))
    mirror.apply("DELETED", item("a", version=7))
    assert seen[-1] == (item("a", version=7), None)


def test_a_list_is_newer_than_the_answer_to_a_creation(mirror):
    mirror.begin_list()
    mirror.put(item("a", version=1))
    mirror.finish_list([item("a", version=2)])
    assert mirror.get("a") == item("a", version=2)
