"""What Kubernetes makes of ReplicaSets and Jobs, for `support.api_server_in_memory`.

As far as TrainingJobs need it: pods by `replicas` and by `parallelism`, a Job's end by its pods or
by its deadline. After a Job's first success it starts no pod, and lets the others come to their
end.
"""

import itertools
import threading

from support.api_objects import Place, RefusalError

PODS = Place("", "v1", "pods")
REPLICA_SETS = Place("apps", "v1", "replicasets")
BATCH_JOBS = Place("batch", "v1", "jobs")
OVER = ("Succeeded", "Failed")


class Workloads:
    """The controllers of both types. `start` has a thread do what `step` does."""

    def __init__(self, api):
        self._objects = api.objects
        self._versions = dict.fromkeys((PODS, REPLICA_SETS, BATCH_JOBS), 0)
        self._owners = {}
        self._pods = {}
        self._numbers = itertools.count(1)
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="workloads", daemon=True)

    def start(self):
        self._thread.start()
        return self

    def close(self):
        self._is_closed = True
        self._thread.join()

    def step(self):
        """Look at each ReplicaSet and Job about which anything has changed."""
        with self._objects.lock:
            uids = {uid for collection in self._versions for uid in self._news(collection)}
        for uid in uids:
            owner = self._owners.get(uid)
            if owner is not None:
                try:
                    self._look(*owner)
                except RefusalError:
                    # It, or a pod of it, was removed meanwhile: more news are to come.
                    continue

    def _news(self, collection):
        """The uids of the owners that the changes of one type concern."""
        for event in self._objects.events_after(collection, self._versions[collection]):
            self._versions[collection] = event.version
            metadata = event.new["metadata"]
            uid, is_gone = metadata["uid"], event.kind == "DELETED"
            if collection != PODS:
                self._owners.pop(uid, None) if is_gone else self._keep(collection, event.new)
                yield uid
                continue
            for reference in metadata.get("ownerReferences", ()):
                pods = self._pods.setdefault(reference["uid"], {})
                pods.pop(uid, None) if is_gone else pods.update({uid: event.new})
                yield reference["uid"]

    def _keep(self, collection, item):
        metadata = item["metadata"]
        key = (metadata["namespace"], metadata["name"])
        place = Place(collection.group, collection.api_version, collection.plural, *key)
        self._owners[metadata["uid"]] = (place, item)

    def _look(self, place, owner):
        pods = list(self._pods.get(owner["metadata"]["uid"], {}).values())
        pods.sort(key=lambda pod: int(pod["metadata"]["name"].rpartition("-")[2]))
        if place.plural == REPLICA_SETS.plural:
            self._fill(place, owner, pods, owner["spec"]["replicas"])
        else:
            self._look_at_job(place, owner, pods)

    def _look_at_job(self, place, job, pods):
        if job.get("status", {}).get("conditions"):
            return
        counts = {phase: sum(_phase(pod) == phase for pod in pods) for phase in OVER}
        alive = [pod for pod in pods if _is_alive(pod)]
        conditions = []
        if job["spec"].get("activeDeadlineSeconds") == 0:
            for pod in alive:
                self._objects.delete(_place(pod), {})
            conditions = [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]
        elif not counts["Succeeded"]:
            self._fill(place, job, pods, job["spec"]["parallelism"])
        elif not alive:
            conditions = [{"type": "Complete", "status": "True"}]
        status = {"succeeded": counts["Succeeded"], "failed": counts["Failed"]}
        status |= {"conditions": conditions} if conditions else {}
        where = Place(
            place.group, place.api_version, place.plural, place.namespace, place.name, "status"
        )
        self._objects.merge(where, {"status": status})

    def _fill(self, place, owner, pods, size):
        """Bring the pods that live to a number; the youngest go first."""
        alive = [pod for pod in pods if _is_alive(pod)]
        for pod in alive[size:]:
            self._objects.delete(_place(pod), {})
        for _ in range(size - len(alive)):
            self._start(place, owner)

    def _start(self, place, owner):
        template, metadata = owner["spec"]["template"], owner["metadata"]
        reference = {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
        }
        name = f"{metadata['name']}-{next(self._numbers):05}"
        of_pod = {"name": name, "labels": template["metadata"]["labels"]}
        of_pod |= {"ownerReferences": [reference]}
        manifest = {"apiVersion": "v1", "kind": "Pod"}
        manifest |= {"metadata": of_pod, "spec": template["spec"]}
        pod = self._objects.create(Place("", "v1", "pods", place.namespace), manifest)
        self._pods.setdefault(metadata["uid"], {})[pod["metadata"]["uid"]] = pod

    def _run(self):
        while not self._is_closed:
            self.step()
            with self._objects.lock:
                self._objects.wait(PODS, 0.02)


def _phase(pod):
    return pod["status"].get("phase")


def _is_alive(pod):
    return _phase(pod) not in OVER and "deletionTimestamp" not in pod["metadata"]


def _place(pod):
    metadata = pod["metadata"]
    return Place("", "v1", "pods", metadata["namespace"], metadata["name"])
