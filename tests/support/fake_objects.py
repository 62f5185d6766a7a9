"""Objects as an API server keeps them, for tests of who reads, changes and deletes them."""

import json
import threading
from urllib.parse import parse_qs, urlsplit

from support.fake_api import Answer, FakeApi, refusal


class FakeObjects(FakeApi):
    """Creates, gets, lists, patches and deletes objects of one namespace, all of it at once."""

    def __init__(self, namespace):
        self._root = f"/api/v1/namespaces/{namespace}/"
        self._objects = {}
        self._changing = threading.Lock()
        super().__init__(answer=self._answer_one)

    def add(self, kind, manifest, **status):
        """Put an object there as it is."""
        name = manifest["metadata"]["name"]
        manifest["metadata"]["resourceVersion"] = "1"
        manifest["metadata"].setdefault("uid", f"{kind}/{name}")
        self._objects[kind, name] = manifest | ({"status": status} if status else {})

    def find(self, kind, name):
        return self._objects.get((kind, name))

    def names(self):
        return sorted(f"{kind}/{name}" for kind, name in self._objects)

    def _answer_one(self, seen):
        url = urlsplit(seen.path)
        kind, _, name = url.path.removeprefix(self._root).partition("/")
        with self._changing:
            if seen.method == "POST":
                return self._create(kind, seen.body)
            if not name:
                return Answer(body={"items": self._list(kind, parse_qs(url.query))})
            if (kind, name) not in self._objects:
                return refusal(404, "not found", "NotFound")
            if seen.method == "DELETE":
                metadata = self._objects[kind, name]["metadata"]
                wanted = seen.body.get("preconditions", {})
                if not wanted.items() <= metadata.items():
                    return refusal(409, "the object has been modified", "Conflict")
                del self._objects[kind, name]
            elif seen.method == "PATCH":
                found = json.loads(json.dumps(self._objects[kind, name]))
                found["data"] = found.get("data", {}) | seen.body.get("data", {})
                self._objects[kind, name] = found
            return Answer(body=self._objects.get((kind, name), {}))

    def _create(self, kind, manifest):
        if (kind, manifest["metadata"]["name"]) in self._objects:
            return refusal(409, "already exists", "AlreadyExists")
        self.add(kind, manifest, phase="Pending")
        return Answer(body=manifest | {"status": {"phase": "Pending"}})

    def _list(self, kind, query):
        [selector] = query.get("labelSelector", [""])
        wanted = dict(part.split("=") for part in selector.split(",") if part)
        return [
            found
            for (kind_of, _), found in self._objects.items()
            if kind_of == kind and wanted.items() <= found["metadata"]["labels"].items()
        ]
