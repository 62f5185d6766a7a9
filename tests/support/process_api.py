"""An API server in memory, as far as the process around a controller asks one: see `ProcessApi`."""

import threading
from urllib.parse import urlsplit

import yaml

from elastic.platforms.kubernetes.api.resources import Resource
from support.fake_api import Answer, FakeApi, refusal

JOBS = Resource("test.elastic.dev", "v1", "testjobs", "TestJob")
OTHERS = Resource("test.elastic.dev", "v1", "otherjobs", "OtherJob")
WIDGETS = Resource("parts.elastic.dev", "v1", "widgets", "Widget")


def definition(resource, **labels):
    """A CustomResourceDefinition, as far as it matters here."""
    names = {"plural": resource.plural, "kind": resource.kind}
    metadata = {"name": f"{resource.plural}.{resource.group}"}
    if labels:
        metadata["labels"] = labels
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": resource.group,
            "names": names,
            "versions": [{"name": resource.version, "served": True}],
        },
    }


class ProcessApi(FakeApi):
    """Keeps objects by their paths: created, merged, applied and read, with versions and conflicts.

    A type is served from the moment on that its definition is there.
    """

    def __init__(self, namespaces=("team",)):
        self.objects = {}
        self.forbidden = None
        """Says of what was seen whether this user lacks the right."""
        self.is_silent = False
        self._namespaces = {*namespaces}
        self._version = 0
        self._changing = threading.Lock()
        super().__init__(answer=self._answer_one)

    def kubeconfig(self, path, namespace="team"):
        """Write a kubeconfig that names this server."""
        context = {"cluster": "c", "user": "u", "namespace": namespace}
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "x",
                    "contexts": [{"name": "x", "context": context}],
                    "clusters": [{"name": "c", "cluster": {"server": self.url}}],
                    "users": [{"name": "u", "user": {"token": "t"}}],
                }
            )
        )
        return path

    def put(self, path, manifest):
        """Put an object there as it is."""
        with self._changing:
            return self._store(path, manifest)

    def of_kind(self, kind):
        return [each for each in self.objects.values() if each.get("kind") == kind]

    def _answer_one(self, seen):
        if self.is_silent:
            return Answer(silent=True)
        if self.forbidden is not None and self.forbidden(seen):
            return refusal(403, 'leases is forbidden: User "u" cannot do that', "Forbidden")
        path = urlsplit(seen.path).path
        with self._changing:
            if path == "/apis":
                return Answer(body={"groups": self._groups()})
            if path.startswith("/apis/") and path.count("/") == 3:
                return self._discover(path)
            if missing := self._missing_namespace(path, seen.method):
                return refusal(404, f'namespaces "{missing}" not found', "NotFound", "namespaces")
            return getattr(self, f"_{seen.method.lower()}")(path, seen)

    def _groups(self):
        return [
            {"versions": [{"groupVersion": f"{group}/{version['name']}"} for version in versions]}
            for each in self.of_kind("CustomResourceDefinition")
            for group, versions in [(each["spec"]["group"], each["spec"]["versions"])]
        ]

    def _discover(self, path):
        found = [
            {"name": each["spec"]["names"]["plural"]}
            for each in self.of_kind("CustomResourceDefinition")
            for version in each["spec"]["versions"]
            if path == f"/apis/{each['spec']['group']}/{version['name']}"
        ]
        # What is no part of any API is no matter of one, and has no Status.
        return Answer(body={"resources": found}) if found else Answer(404, b"404 page not found")

    def _missing_namespace(self, path, method):
        parts = path.split("/")
        if method == "GET" or "namespaces" not in parts[:-2]:
            return None
        namespace = parts[parts.index("namespaces") + 1]
        is_there = namespace in self._namespaces or f"/api/v1/namespaces/{namespace}" in (
            self.objects
        )
        return None if is_there else namespace

    def _get(self, path, seen):
        found = self.objects.get(path)
        return Answer(body=found) if found else refusal(404, f"{path} not found", "NotFound")

    def _post(self, path, seen):
        path = f"{path}/{seen.body['metadata']['name']}"
        if path in self.objects:
            return refusal(409, "already exists", "AlreadyExists")
        return Answer(body=self._store(path, seen.body))

    def _patch(self, path, seen):
        found = self.objects.get(path)
        if seen.headers["Content-Type"] == "application/apply-patch+yaml":
            if found and seen.body.items() <= _plain(found).items():
                return Answer(body=found)
            return Answer(body=self._store(path, seen.body))
        if found is None:
            return refusal(404, "not found", "NotFound")
        wanted = seen.body.get("metadata", {}).get("resourceVersion")
        if wanted not in (None, found["metadata"]["resourceVersion"]):
            return refusal(409, "the object has been modified", "Conflict")
        merged = _merged(found, seen.body)
        return Answer(body=found if merged == found else self._store(path, merged))

    def _delete(self, path, seen):
        return Answer(body=self.objects.pop(path, {}))

    def _store(self, path, manifest):
        self._version += 1
        version = {"resourceVersion": str(self._version)}
        metadata = {**manifest["metadata"], "uid": path, **version}
        self.objects[path] = {**manifest, "metadata": metadata}
        return self.objects[path]


def _plain(found):
    metadata = {
        key: value
        for key, value in found["metadata"].items()
        if key not in ("uid", "resourceVersion")
    }
    return {**found, "metadata": metadata}


def _merged(there, change):
    merged = dict(there)
    for key, value in change.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = _merged(there.get(key) or {}, value)
        else:
            merged[key] = value
    return merged
