"""The cache is right whatever order lists, events and our own creations come in."""

import threading

import pytest

from elastic.platforms.kubernetes.api.informer import Cache


def item(name, uid=None, version=1):
    return {"metadata": {"name": name, "uid": uid or f"{name}-1", "resourceVersion": str(version)}}


@pytest.fixture
def told():
    return []


@pytest.fixture
def cache(told):
    def on_change(old, new):
        kind = "added" if old is None else "removed" if new is None else "changed"
        told.append((kind, (new or old)["metadata"]["uid"]))

    return Cache(on_change, threading.RLock())


def listing(cache, *items):
    cache.begin_list()
    cache.finish_list(items)


def test_a_list_tells_what_is_new_and_what_is_gone(cache, told):
    listing(cache, item("a"), item("b"))
    listing(cache, item("b", version=2), item("c"))
    assert told[:2] == [("added", "a-1"), ("added", "b-1")]
    assert sorted(told[2:]) == [("added", "c-1"), ("changed", "b-1"), ("removed", "a-1")]
    assert {i["metadata"]["name"] for i in cache.all()} == {"b", "c"}


def test_what_has_not_changed_is_not_told_again(cache, told):
    listing(cache, item("a"))
    listing(cache, item("a"))
    cache.apply("ADDED", item("a"))
    assert told == [("added", "a-1")]


def test_a_successor_of_the_same_name_means_that_the_first_was_removed(cache, told):
    listing(cache, item("a", "first"))
    listing(cache, item("a", "second"))
    assert told == [("added", "first"), ("removed", "first"), ("added", "second")]


def test_a_late_removal_of_the_first_leaves_the_second_alone(cache, told):
    listing(cache, item("a", "first"))
    cache.apply("ADDED", item("a", "second"))
    cache.apply("DELETED", item("a", "first"))
    assert cache.get("", "a")["metadata"]["uid"] == "second"
    assert told[-1] == ("added", "second")


def test_a_list_that_was_under_way_does_not_remove_what_we_created(cache, told):
    cache.begin_list()
    cache.put(item("a"))
    cache.finish_list([])
    assert cache.get("", "a") is not None
    # The next list is newer than the creation.
    listing(cache)
    assert told == [("added", "a-1"), ("removed", "a-1")]


def test_a_list_that_was_under_way_does_not_bring_back_what_we_saw_removed(cache):
    listing(cache, item("a", "first"))
    cache.begin_list()
    cache.apply("DELETED", item("a", "first"))
    cache.put(item("a", "second"))
    cache.finish_list([item("a", "first")])
    assert cache.get("", "a")["metadata"]["uid"] == "second"


def test_an_answer_that_comes_after_its_objects_end_revives_nothing(cache, told):
    listing(cache)
    cache.apply("ADDED", item("a"))
    cache.apply("DELETED", item("a"))
    cache.put(item("a"))
    assert cache.get("", "a") is None
    assert told == [("added", "a-1"), ("removed", "a-1")]


def test_an_answer_that_comes_after_its_event_changes_nothing(cache):
    listing(cache)
    cache.apply("ADDED", item("a"))
    cache.apply("MODIFIED", item("a", version=2))
    cache.put(item("a"))
    assert cache.get("", "a")["metadata"]["resourceVersion"] == "2"


def test_a_removal_tells_the_last_state(told):
    seen = []
    cache = Cache(lambda old, new: seen.append((old, new)), threading.RLock())
    listing(cache, item("a"))
    cache.apply("DELETED", item("a", version=7))
    assert seen[-1] == (item("a", version=7), None)


def test_a_list_is_newer_than_the_answer_to_a_creation(cache):
    cache.begin_list()
    cache.put(item("a", version=1))
    cache.finish_list([item("a", version=2)])
    assert cache.get("", "a") == item("a", version=2)


def test_of_one_name_there_is_one_object_in_each_namespace(cache, told):
    def within(namespace, uid):
        found = item("a", uid)
        found["metadata"]["namespace"] = namespace
        return found

    listing(cache, within("red", "1"), within("blue", "2"))
    cache.apply("DELETED", within("red", "1"))
    assert cache.get("red", "a") is None
    assert cache.get("blue", "a")["metadata"]["uid"] == "2"
    assert told == [("added", "1"), ("added", "2"), ("removed", "1")]
