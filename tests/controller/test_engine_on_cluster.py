"""The engine with a real API server, scheduler, kubelet and garbage collector."""

import secrets
from contextlib import contextmanager, suppress
from copy import deepcopy

import pytest
from support.api_server_in_memory import NoPace
from support.cluster import (
    KUBECONFIG,
    eventually,
    exists,
    make_namespace,
    needs_custom_resources,
    remove_namespace,
)
from support.toy_kind import PAUSES, TOYS, ToyKind

from elastic.controller.machinery.engine import Engine
from elastic.platforms.kubernetes.api.cluster import Cluster, RefusedError
from elastic.platforms.kubernetes.api.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    EVENTS,
    PODS,
    Resource,
)
from elastic.platforms.kubernetes.api.transport import find_access

pytestmark = needs_custom_resources

UNKNOWN = Resource("tests.elastic.dev", "v1", "nowheres", "Nowhere")
_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{TOYS.plural}.{TOYS.group}"},
    "spec": {
        "group": TOYS.group,
        "scope": "Namespaced",
        "names": {"plural": TOYS.plural, "singular": "toy", "kind": TOYS.kind},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": _OPEN, "status": _OPEN},
                    }
                },
            }
        ],
    },
}


class RealToy(ToyKind):
    """Its pods are real, and end as soon as they are asked to."""

    def _make(self, job, name):
        action = super()._make(job, name)
        manifest = deepcopy(action.manifest)
        manifest["spec"]["terminationGracePeriodSeconds"] = 1
        (container,) = manifest["spec"]["containers"]
        container |= {"image": "python:3.11-slim", "imagePullPolicy": "IfNotPresent"}
        container["command"] = ["sleep", "100000"]
        return type(action)(action.resource, manifest, action.note)


class Scene:
    def __init__(self, cluster, namespace):
        self.cluster = cluster
        self.namespace = namespace

    def make(self, size):
        name = f"job-{secrets.token_hex(3)}"
        manifest = {"apiVersion": TOYS.api_version, "kind": TOYS.kind}
        manifest |= {"metadata": {"name": name}, "spec": {"size": size}}
        self.cluster.create(TOYS.path(self.namespace), manifest)
        return name

    @contextmanager
    def engine(self, *kinds):
        cluster = Cluster(find_access(KUBECONFIG), NoPace(), patience_s=1.0)
        engine = Engine(cluster, kinds, self.namespace, 2, PAUSES)
        engine.start()
        try:
            yield engine
        finally:
            engine.stop()

    def status(self, name):
        return self.cluster.get(TOYS.path(self.namespace, name)).get("status") or {}

    def is_running(self, name, size):
        return self.status(name) == {"phase": "Running", "running": size}

    def pods(self):
        items = self.cluster.get(PODS.path(self.namespace))["items"]
        return {item["metadata"]["name"]: item["metadata"]["uid"] for item in items}

    def events(self, name):
        query = {"fieldSelector": f"involvedObject.name={name}"}
        items = self.cluster.get(EVENTS.path(self.namespace), query)["items"]
        return {item["reason"] for item in items}


@pytest.fixture
def scene():
    cluster = Cluster(find_access(KUBECONFIG), NoPace())
    with suppress(RefusedError):
        cluster.create(CUSTOM_RESOURCE_DEFINITIONS.path(), DEFINITION)
    eventually(lambda: exists(cluster, TOYS.path()))
    namespace = make_namespace(cluster, "engine")
    yield Scene(cluster, namespace)
    remove_namespace(cluster, namespace)


def test_a_job_is_kept_whole_handed_over_untouched_and_goes_with_all_it_owns(scene):
    kind = RealToy(children=(PODS, UNKNOWN))
    name = scene.make(2)
    with scene.engine(kind) as engine:
        eventually(lambda: scene.is_running(name, 2))
        assert engine.sample().missing == ("nowheres.tests.elastic.dev",)
        lost = scene.pods()[f"{name}-0"]
        scene.cluster.delete(PODS.path(scene.namespace, f"{name}-0"), grace_s=0)
        eventually(lambda: scene.pods().get(f"{name}-0", lost) != lost)
        eventually(lambda: scene.is_running(name, 2))
        eventually(lambda: {"SuccessfulCreatePod", "PhaseChanged"} <= scene.events(name))
    pods, version = scene.pods(), scene.cluster.get(TOYS.path(scene.namespace, name))
    successor = RealToy()
    with scene.engine(successor):
        eventually(lambda: successor.seen)
        change = {"metadata": {"labels": {"look": "again"}}}
        scene.cluster.patch(TOYS.path(scene.namespace, name), change)
        eventually(lambda: len(successor.seen) >= 2)
    assert scene.pods() == pods
    found = scene.cluster.get(TOYS.path(scene.namespace, name))
    assert found["status"] == version["status"]
    # Nobody is there but Kubernetes itself.
    scene.cluster.delete(TOYS.path(scene.namespace, name))
    eventually(lambda: not scene.pods())
