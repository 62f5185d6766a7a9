"""What the engine relies on in an API server; the one in memory and the real one do the same."""

import json
import secrets
import threading
import time
from contextlib import suppress

import pytest
from support.api_server_in_memory import NAMESPACE, InMemoryApi, NoPace
from support.cluster import (
    KUBECONFIG,
    eventually,
    exists,
    make_namespace,
    needs_custom_resources,
    remove_namespace,
)
from support.kubelet_in_memory import Kubelet

from elastic.platforms.kubernetes.api.cluster import AwayError, Cluster, RefusedError
from elastic.platforms.kubernetes.api.informer import Cache, Watch
from elastic.platforms.kubernetes.api.resources import (
    CONFIGMAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    EVENTS,
    PODS,
    Resource,
)
from elastic.platforms.kubernetes.api.transport import find_access

WIDGETS = Resource("tests.elastic.dev", "v1", "widgets", "Widget")
UNKNOWN = Resource("nowhere.elastic.dev", "v1", "nowheres", "Nowhere")
_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.tests.elastic.dev"},
    "spec": {
        "group": WIDGETS.group,
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
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
POD = {
    "containers": [
        {
            "name": "main",
            "image": "python:3.11-slim",
            "imagePullPolicy": "IfNotPresent",
            "command": ["sleep", "100000"],
        }
    ],
    "terminationGracePeriodSeconds": 1,
}


class Server:
    """An API server and a namespace in it."""

    def __init__(self, cluster, namespace, forget_history=lambda: None):
        self.cluster = cluster
        self.namespace = namespace
        self.forget_history = forget_history

    def create(self, resource=WIDGETS, name=None, **fields):
        metadata = {"name": name or f"a{secrets.token_hex(4)}", **fields.pop("metadata", {})}
        manifest = {"apiVersion": resource.api_version, "kind": resource.kind}
        manifest |= {"metadata": metadata, **fields}
        return self.cluster.create(resource.path(self.namespace), manifest)

    def path(self, item, part=None, resource=WIDGETS):
        return resource.path(self.namespace, item["metadata"]["name"], part)

    def read(self, item, resource=WIDGETS):
        return self.cluster.get(self.path(item, resource=resource))

    def is_there(self, item, resource=WIDGETS):
        return exists(self.cluster, self.path(item, resource=resource)) is not None

    def patch(self, item, change, part=None, resource=WIDGETS):
        return self.cluster.patch(self.path(item, part, resource), change)

    def list(self, resource=WIDGETS, **query):
        return self.cluster.get(resource.path(self.namespace), query)

    def watch(self, resource=WIDGETS, version="", **query):
        """What a watch of a second tells."""
        query |= {"watch": "true", "resourceVersion": version, "timeoutSeconds": "1"}
        lines = self.cluster.lines(resource.path(self.namespace), query, 10.0)
        return [json.loads(line) for line in lines if line.strip()]


@pytest.fixture(
    scope="module", params=["memory", pytest.param("real", marks=needs_custom_resources)]
)
def server(request):
    if request.param == "memory":
        with InMemoryApi() as api:
            kubelet = Kubelet(api).start()
            api.uninstall(UNKNOWN.plural)
            yield Server(api.cluster(), NAMESPACE, api.objects.forget_history)
            kubelet.close()
        return
    cluster = Cluster(find_access(KUBECONFIG), NoPace())
    with suppress(RefusedError):
        cluster.create(CUSTOM_RESOURCE_DEFINITIONS.path(), DEFINITION)
    eventually(lambda: exists(cluster, WIDGETS.path()))
    namespace = make_namespace(cluster, "contract")
    yield Server(cluster, namespace)
    # The definition stays: other processes of this run may be using it.
    remove_namespace(cluster, namespace)


def refused(call, *args, **kwargs):
    with pytest.raises(RefusedError) as caught:
        call(*args, **kwargs)
    return caught.value.code, caught.value.reason


def owner_of(item):
    metadata = item["metadata"]
    owner = {"apiVersion": WIDGETS.api_version, "kind": "Widget", "controller": True}
    return [owner | {"name": metadata["name"], "uid": metadata["uid"]}]


def version_of(item):
    return int(item["metadata"]["resourceVersion"])


def test_a_new_object_has_what_tells_it_from_others(server):
    item = server.create(spec={"size": 1}, status={"phase": "mine"})
    metadata = item["metadata"]
    assert metadata["namespace"] == server.namespace
    assert metadata["uid"]
    assert metadata["resourceVersion"].isdecimal()
    assert metadata["creationTimestamp"].endswith("Z")
    assert metadata["generation"] == 1
    # Whoever creates has no say in the status.
    assert "status" not in item
    assert server.read(item) == item


def test_a_name_is_given_once_and_is_needed(server):
    item = server.create()
    name = item["metadata"]["name"]
    assert refused(server.create, name=name) == (409, "AlreadyExists")
    made_up = server.create(metadata={"name": None, "generateName": "made-"})
    assert made_up["metadata"]["name"].startswith("made-")
    server.cluster.delete(server.path(item))
    assert server.create(name=name)["metadata"]["uid"] != item["metadata"]["uid"]


def test_a_dry_run_leaves_nothing(server):
    path = CONFIGMAPS.path(server.namespace)
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tried"}}
    tried = server.cluster.create(path, manifest, dry_run=True)
    assert tried["metadata"]["name"] == "tried"
    assert refused(server.cluster.get, f"{path}/tried") == (404, "NotFound")
    server.cluster.create(path, manifest)
    assert refused(server.cluster.create, path, manifest, dry_run=True) == (409, "AlreadyExists")


def test_what_is_not_there_is_not_found(server):
    missing = WIDGETS.path(server.namespace, "missing")
    assert refused(server.cluster.get, missing) == (404, "NotFound")
    assert refused(server.cluster.patch, missing, {"spec": {}}) == (404, "NotFound")
    server.cluster.delete(missing)


def test_a_type_that_is_not_installed_is_a_page_that_is_not_there(server):
    server.create()
    with pytest.raises(AwayError, match="does not look like a Kubernetes API server"):
        server.list(UNKNOWN)
    groups = {group["name"]: group for group in server.cluster.get("/apis")["groups"]}
    assert UNKNOWN.group not in groups
    versions = [each["groupVersion"] for each in groups[WIDGETS.group]["versions"]]
    assert versions == [WIDGETS.api_version]
    for root, plural in [("/apis/tests.elastic.dev/v1", "widgets"), ("/api/v1", "pods")]:
        server.list(PODS)
        names = [each["name"] for each in server.cluster.get(root)["resources"]]
        assert plural in names


def test_a_merge_patch_changes_removes_and_replaces(server):
    item = server.create(spec={"kept": 1, "gone": 2, "list": [1, 2], "deep": {"a": 1, "b": 2}})
    change = {"gone": None, "list": [3], "deep": {"b": None, "c": 3}}
    assert server.patch(item, {"spec": change})["spec"] == {
        "kept": 1,
        "list": [3],
        "deep": {"a": 1, "c": 3},
    }


def test_generation_follows_the_spec_alone(server):
    item = server.create(spec={"size": 1})
    for change, part, generation in [
        ({"metadata": {"labels": {"a": "b"}}}, None, 1),
        ({"status": {"phase": "running"}}, "status", 1),
        ({"spec": {"size": 2}}, None, 2),
        ({"spec": {"size": 2}}, None, 2),
    ]:
        assert server.patch(item, change, part)["metadata"]["generation"] == generation


def test_status_and_spec_are_written_apart(server):
    item = server.create(spec={"size": 1})
    changed = server.patch(item, {"spec": {"size": 9}, "status": {"phase": "up"}}, "status")
    assert (changed["spec"], changed["status"]) == ({"size": 1}, {"phase": "up"})
    changed = server.patch(item, {"spec": {"size": 2}, "status": {"phase": "down"}})
    assert (changed["spec"], changed["status"]) == ({"size": 2}, {"phase": "up"})


def test_a_change_of_nothing_is_no_new_version(server):
    item = server.create(spec={"size": 1})
    item = server.patch(item, {"status": {"phase": "up"}}, "status")
    assert server.patch(item, {"status": {"phase": "up"}}, "status") == item
    assert server.patch(item, {"spec": {"size": 1}}) == item


@pytest.mark.parametrize("part", [None, "status"])
def test_an_outdated_version_is_a_conflict(server, part):
    item = server.create(spec={"size": 1})
    newer = server.patch(item, {"spec": {"size": 2}})
    metadata = {"resourceVersion": item["metadata"]["resourceVersion"]}
    change = {"metadata": metadata, "status": {"a": 1}, "spec": {"size": 3}}
    assert refused(server.patch, item, change, part) == (409, "Conflict")
    change["metadata"] = {"resourceVersion": newer["metadata"]["resourceVersion"]}
    assert version_of(server.patch(item, change, part)) > version_of(newer)


def test_another_uid_is_refused_and_is_no_matter_to_a_status(server):
    item = server.create(spec={"size": 1})
    change = {"metadata": {"uid": "another"}, "status": {"a": 1}, "spec": {"size": 3}}
    assert refused(server.patch, item, change) == (422, "Invalid")
    changed = server.patch(item, change, "status")
    assert changed["metadata"]["uid"] == item["metadata"]["uid"]


def test_deleting_asks_for_the_same_object(server):
    item = server.create()
    server.cluster.delete(server.path(item), uid="another")
    assert server.is_there(item)
    version = item["metadata"]["resourceVersion"]
    server.patch(item, {"spec": {"size": 2}})
    assert refused(server.cluster.delete, server.path(item), version=version) == (409, "Conflict")
    server.cluster.delete(server.path(item), uid=item["metadata"]["uid"])
    assert not server.is_there(item)


def test_a_finalizer_holds_an_object_until_it_is_taken_away(server):
    item = server.create(metadata={"finalizers": ["tests.elastic.dev/hold"]})
    server.cluster.delete(server.path(item))
    assert "deletionTimestamp" in server.read(item)["metadata"]
    server.patch(item, {"metadata": {"finalizers": None}})
    assert not server.is_there(item)


def test_what_is_owned_goes_with_its_owner(server):
    owner = server.create()
    child = server.create(CONFIGMAPS, metadata={"ownerReferences": owner_of(owner)})
    grandchild = server.create(metadata={"ownerReferences": owner_of(owner)})
    kept = server.create(CONFIGMAPS)
    server.cluster.delete(server.path(owner))
    eventually(lambda: not server.is_there(child, CONFIGMAPS))
    eventually(lambda: not server.is_there(grandchild))
    assert server.is_there(kept, CONFIGMAPS)


def test_what_is_given_an_owner_that_is_no_more_goes(server):
    owner = server.create()
    server.cluster.delete(server.path(owner))
    child = server.create(CONFIGMAPS, metadata={"ownerReferences": owner_of(owner)})
    eventually(lambda: not server.is_there(child, CONFIGMAPS))


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("group={g},role=ps", "b"),
        ("group={g},role!=ps", "ac"),
        ("group={g},role in (ps, worker)", "ab"),
        ("group={g},role notin (ps,worker)", "c"),
        ("group={g},role", "ab"),
        ("group={g},!role", "c"),
        ("group=={g}", "abc"),
    ],
)
def test_lists_are_narrowed_by_labels(server, selector, names):
    group = f"g{secrets.token_hex(4)}"
    for name, labels in [("c", {}), ("b", {"role": "ps"}), ("a", {"role": "worker"})]:
        server.create(name=f"{name}-{group}", metadata={"labels": {"group": group, **labels}})
    listed = server.list(labelSelector=selector.format(g=group))["items"]
    assert "".join(item["metadata"]["name"][0] for item in listed) == names


def test_lists_are_narrowed_by_name_and_by_namespace(server):
    item = server.create()
    query = {"fieldSelector": f"metadata.name={item['metadata']['name']}"}
    assert server.list(**query)["items"] == [item]
    assert server.cluster.get(WIDGETS.path(), query)["items"] == [item]
    assert server.cluster.get(WIDGETS.path("default"), query)["items"] == []


def test_a_watch_tells_what_has_happened_since_a_version(server):
    version = server.list()["metadata"]["resourceVersion"]
    item = server.create(spec={"size": 1})
    server.patch(item, {"spec": {"size": 2}})
    server.cluster.delete(server.path(item))
    told = server.watch(version=version)
    assert [each["type"] for each in told] == ["ADDED", "MODIFIED", "DELETED"]
    versions = [version_of(each["object"]) for each in told]
    assert versions == sorted(set(versions))
    assert versions[0] > int(version)
    assert told[-1]["object"]["spec"] == {"size": 2}
    again = server.watch(version=str(versions[0]))
    assert [each["type"] for each in again] == ["MODIFIED", "DELETED"]


def test_to_a_selector_objects_come_and_go_with_their_labels(server):
    group = f"g{secrets.token_hex(4)}"
    version = server.list()["metadata"]["resourceVersion"]
    item = server.create()
    for labels in ({"group": group}, {"group": group, "x": "y"}, {"group": None}):
        server.patch(item, {"metadata": {"labels": labels}})
    told = server.watch(version=version, labelSelector=f"group={group}")
    assert [each["type"] for each in told] == ["ADDED", "MODIFIED", "DELETED"]


def test_a_watch_without_a_version_begins_with_what_is_there(server):
    item = server.create(metadata={"labels": {"lonely": "yes"}})
    told = server.watch(labelSelector="lonely=yes")
    assert [(each["type"], each["object"]) for each in told] == [("ADDED", item)]
    server.cluster.delete(server.path(item))


def test_a_watch_of_a_past_long_gone_is_refused(server):
    # A real one does so by itself, a few minutes after its start.
    server.create()
    server.forget_history()
    (told,) = server.watch(version="1")
    assert (told["type"], told["object"]["code"]) == ("ERROR", 410)


def test_a_cache_follows_a_storm(server):
    cache = Cache(lambda *_: None, threading.RLock())
    selectors = {"labelSelector": "storm=yes"}
    watch = Watch(server.cluster, WIDGETS.path(server.namespace), selectors, cache, lambda: None, 2)
    server.create(metadata={"labels": {"storm": "yes"}})
    watch.start()
    for number in range(30):
        item = server.create(metadata={"labels": {"storm": "yes"}})
        server.patch(item, {"spec": {"size": number}})
        if number % 2:
            server.cluster.delete(server.path(item))

    def state(items):
        return sorted((item["metadata"]["name"], version_of(item)) for item in items)

    eventually(lambda: state(cache.all()) == state(server.list(**selectors)["items"]))
    assert len(cache.all()) == 16
    watch.close()


def test_a_pod_that_runs_ends_with_grace_and_one_that_waits_at_once(server):
    pod = server.create(PODS, spec=POD)
    assert pod["status"]["phase"] == "Pending"
    eventually(lambda: server.read(pod, PODS)["status"]["phase"] == "Running")
    version = server.list(PODS)["metadata"]["resourceVersion"]
    server.cluster.delete(server.path(pod, resource=PODS), uid=pod["metadata"]["uid"])
    eventually(lambda: not server.is_there(pod, PODS))
    own = [
        each
        for each in server.watch(PODS, version=version)
        if each["object"]["metadata"]["uid"] == pod["metadata"]["uid"]
    ]
    assert "deletionTimestamp" in own[0]["object"]["metadata"]
    assert (own[0]["type"], own[-1]["type"]) == ("MODIFIED", "DELETED")
    waiting = server.create(
        PODS, spec=POD | {"nodeSelector": {"no": "such-node"}, "nodeName": None}
    )
    server.cluster.delete(server.path(waiting, resource=PODS), grace_s=0)
    assert not server.is_there(waiting, PODS)


def test_events_are_counted_up_by_patches(server):
    item = server.create()
    metadata = item["metadata"]
    involved = {"apiVersion": "tests.elastic.dev/v1", "kind": "Widget", "name": metadata["name"]}
    involved |= {"uid": metadata["uid"], "namespace": server.namespace}
    event = server.create(EVENTS, involvedObject=involved, reason="Told", message="x", count=1)
    changed = server.patch(event, {"count": 2, "message": "y"}, resource=EVENTS)
    assert (changed["count"], changed["message"], changed["reason"]) == (2, "y", "Told")


def test_the_clock_is_the_servers(server):
    server.list()
    assert abs(server.cluster.now_s() - time.time()) < 5.0
