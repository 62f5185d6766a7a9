"""The watch against a real API server: cut, silent, shut, and asked for a past long gone."""

import threading
import time

import pytest
from support.api_proxy import ApiProxy, CountingPace, cluster_through
from support.cluster import KUBECONFIG, cluster, eventually, namespace, needs_cluster

from elastic.platforms.kubernetes.api.informer import Cache, Watch
from elastic.platforms.kubernetes.api.resources import CONFIGMAPS

__all__ = ["cluster", "namespace"]
pytestmark = needs_cluster

SELECTORS = {"labelSelector": "watched=yes"}


class Scene:
    """A watch of the namespace's ConfigMaps through a proxy, and what it told."""

    def __init__(self, cluster, namespace, silence_s=75.0, watch_s=60):
        self.cluster = cluster
        self.namespace = namespace
        self.path = CONFIGMAPS.path(namespace)
        self.proxy = ApiProxy(cluster.server)
        self.pace = CountingPace()
        self.told = []
        self.contacts = 0
        lock = threading.RLock()
        self.cache = Cache(self._on_change, lock)
        self.watch = Watch(
            cluster_through(self.proxy, KUBECONFIG, self.pace),
            self.path,
            SELECTORS,
            self.cache,
            self._on_contact,
            watch_s,
            silence_s,
        )

    def _on_change(self, old, new):
        kind = "added" if old is None else "removed" if new is None else "changed"
        self.told.append((kind, (new or old)["metadata"]["name"]))

    def _on_contact(self):
        self.contacts += 1

    def create(self, name):
        metadata = {"name": name, "labels": {"watched": "yes"}}
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        return self.cluster.create(self.path, manifest)

    def remove(self, name):
        self.cluster.delete(f"{self.path}/{name}")

    def is_known(self, name):
        return self.cache.get(self.namespace, name) is not None

    def close(self):
        self.watch.close()
        self.proxy.close()
        for item in self.cluster.get(self.path, SELECTORS)["items"]:
            self.remove(item["metadata"]["name"])


@pytest.fixture
def make_scene(cluster, namespace):
    scenes = []

    def make(**settings):
        scenes.append(Scene(cluster, namespace, **settings))
        return scenes[-1]

    yield make
    for scene in scenes:
        scene.close()


def test_what_is_there_is_known_at_once_and_changes_are_followed(make_scene):
    scene = make_scene()
    scene.create("early")
    scene.watch.start()
    assert scene.told == [("added", "early")]
    scene.create("late")
    eventually(lambda: scene.is_known("late"))
    scene.cluster.patch(f"{scene.path}/late", {"data": {"a": "b"}})
    eventually(lambda: ("changed", "late") in scene.told)
    scene.remove("early")
    eventually(lambda: scene.told[-1] == ("removed", "early"))


def test_a_cut_connection_is_resumed_without_another_list(make_scene):
    scene = make_scene()
    scene.watch.start()
    scene.create("before")
    eventually(lambda: scene.is_known("before"))
    requests = scene.pace.requests
    scene.proxy.cut()
    scene.create("after")
    eventually(lambda: scene.is_known("after"))
    # One watch from where the last one broke: a list would be a second request.
    assert scene.pace.requests == requests + 1
    assert scene.told == [("added", "before"), ("added", "after")]
    assert scene.watch.failure is None


def test_what_vanishes_while_the_api_server_is_away_is_noticed_when_it_is_back(make_scene):
    scene = make_scene()
    scene.create("doomed")
    scene.watch.start()
    scene.proxy.shut()
    eventually(lambda: scene.watch.failure is not None)
    scene.remove("doomed")
    assert scene.is_known("doomed")
    scene.proxy.reopen()
    eventually(lambda: not scene.is_known("doomed"))
    assert scene.watch.failure is None
    # Away and back: whoever waits was woken both times.
    assert scene.contacts >= 2


def test_a_past_that_is_gone_is_listed_anew(make_scene):
    scene = make_scene()
    scene.create("old")
    scene.watch.start()
    scene.proxy.shut()
    eventually(lambda: scene.watch.failure is not None)
    scene.remove("old")
    scene.create("new")
    # Older than anything the API server remembers, so it answers 410 Gone.
    scene.watch._version = "1"
    scene.proxy.reopen()
    eventually(lambda: scene.is_known("new"))
    assert not scene.is_known("old")
    assert scene.watch._version != "1"
    assert scene.watch.failure is None


def test_a_connection_that_died_in_silence_is_given_up(make_scene):
    scene = make_scene(silence_s=2.0)
    scene.watch.start()
    scene.create("before")
    eventually(lambda: scene.is_known("before"))
    scene.proxy.silence()
    started_s = time.monotonic()
    scene.create("after")
    eventually(lambda: scene.is_known("after"))
    assert time.monotonic() - started_s < 10.0


def test_an_idle_watch_costs_few_requests(make_scene):
    scene = make_scene(watch_s=1)
    scene.watch.start()
    requests = scene.pace.requests
    time.sleep(6.0)
    # Each lasts a second here, and a watch that ends in time owes a pause that grows.
    assert scene.pace.requests - requests <= 6
    assert scene.watch.failure is None
