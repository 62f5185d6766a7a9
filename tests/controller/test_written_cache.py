"""Our own writes are in the copy at once, and nothing that is older takes them out again."""

import threading

import pytest

from elastic.controller.machinery.informers import WrittenCache


def item(version, uid="a", **status):
    metadata = {"name": "job", "namespace": "team", "uid": uid, "resourceVersion": str(version)}
    return {"metadata": metadata, "status": status}


class Scene:
    def __init__(self):
        self.told = []
        self.cache = WrittenCache(self._on_change, threading.RLock())
        self.list(item(5))

    def _on_change(self, old, new):
        self.told.append(new and new["metadata"]["resourceVersion"])

    def list(self, *items):
        self.cache.begin_list()
        self.cache.finish_list(items)

    @property
    def version(self):
        found = self.cache.get("team", "job")
        return found and int(found["metadata"]["resourceVersion"])


@pytest.fixture
def scene():
    return Scene()


def test_a_write_is_seen_at_once_and_told_once(scene):
    scene.cache.written(item(8, phase="up"))
    assert scene.version == 8
    scene.cache.apply("MODIFIED", item(8, phase="up"))
    assert scene.told == ["5", "8"]


def test_an_event_from_before_the_write_changes_nothing_and_one_from_after_does(scene):
    scene.cache.written(item(8))
    scene.cache.apply("MODIFIED", item(7))
    assert scene.version == 8
    scene.cache.apply("MODIFIED", item(9))
    scene.cache.apply("MODIFIED", item(10))
    assert scene.version == 10


def test_an_answer_that_comes_late_changes_nothing(scene):
    scene.cache.apply("MODIFIED", item(9))
    scene.cache.written(item(8))
    assert scene.version == 9


@pytest.mark.parametrize("uid", ["a", "b"])
def test_what_is_gone_does_not_come_back_by_a_late_answer(scene, uid):
    scene.cache.apply("DELETED", item(9))
    scene.cache.written(item(8, uid=uid))
    assert scene.version is None


def test_a_deletion_is_followed_whatever_was_written(scene):
    scene.cache.written(item(8))
    scene.cache.apply("DELETED", item(9))
    assert scene.version is None
    scene.cache.apply("ADDED", item(10, uid="b"))
    assert scene.version == 10


def test_a_list_under_way_does_not_take_a_write_back(scene):
    scene.cache.begin_list()
    scene.cache.written(item(8))
    scene.cache.finish_list([item(5)])
    assert scene.version == 8


def test_a_list_asked_for_after_a_write_is_believed_whatever_it_says(scene):
    """As after a cluster was put back to an earlier state."""
    scene.cache.written(item(8))
    scene.list(item(3))
    assert scene.version == 3
    scene.cache.apply("MODIFIED", item(4))
    assert scene.version == 4
