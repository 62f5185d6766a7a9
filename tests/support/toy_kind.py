"""The simplest kind of job: one that wants a number of pods, and counts those that run."""

import time
from contextlib import contextmanager

from elastic.controller.machinery.engine import BackOff, Engine, Pauses
from elastic.controller.reconciling import Create, Delete, Note, Outcome
from elastic.platforms.kubernetes.api.resources import PODS, Resource
from support.api_objects import Place

TOYS = Resource("tests.elastic.dev", "v1", "toys", "Toy")
PAUSES = Pauses(BackOff(first_s=0.02, last_s=0.2), bug_s=0.2, missing_s=0.1)
TEAM = "team"


class ToyKind:
    """Pods `JOB-INDEX` of `spec.size`; those that ended are made anew, and counted.

    `seen` holds what each pass was given.
    """

    component = "toy-controller"
    unwatched = ()
    looks_at = ()

    def __init__(self, resource=TOYS, children=(PODS,), sees_cluster=False):
        self.resource = resource
        self.children = children
        self.sees_cluster = sees_cluster
        self.seen = []

    def job_of(self, resource, child):
        return child["metadata"].get("labels", {}).get("toy")

    def reconcile(self, observed):
        self.seen.append(observed)
        name, size = observed.job["metadata"]["name"], observed.job["spec"]["size"]
        if size == "bad":
            raise ValueError("size is 'bad'")
        pods = {pod["metadata"]["name"]: pod for pod in observed.children[PODS]}
        wanted = [f"{name}-{index}" for index in range(size)]
        staying = {
            key: pod for key, pod in pods.items() if "deletionTimestamp" not in pod["metadata"]
        }
        over = [
            pod
            for key, pod in staying.items()
            if key not in wanted or pod["status"]["phase"] in ("Failed", "Succeeded")
        ]
        actions = [self._remove(pod) for pod in over]
        actions += [self._make(name, key) for key in wanted if key not in pods]
        running = sum(pod["status"]["phase"] == "Running" for pod in staying.values())
        status = {"running": running, "phase": "Running" if running == size else "Pending"}
        old = observed.job.get("status", {})
        notes = [Note("PhaseChanged", f"is {status['phase']}")]
        return Outcome(actions, status, notes if status["phase"] != old.get("phase") else ())

    def rejected(self, observed, rejection):
        return None

    def _make(self, job, name):
        labels = {"toy": job}
        spec = {"containers": [{"name": "main", "image": "toy"}]}
        manifest = {"metadata": {"name": name, "labels": labels}, "spec": spec}
        return Create(PODS, manifest, Note("SuccessfulCreatePod", f"Created pod: {name}"))

    def _remove(self, pod):
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        return Delete(PODS, name, uid, note=Note("SuccessfulDeletePod", f"Deleted pod: {name}"))


class World:
    """An API server in memory, its kubelet, and engines that are run against it."""

    def __init__(self, api, kubelet):
        self.api = api
        self.kubelet = kubelet
        self.kind = ToyKind()

    @contextmanager
    def engine(self, *kinds, namespace=TEAM, num_workers=4, scaler=None):
        for kind in kinds or (self.kind,):
            self.api.serve(kind.resource, *kind.children)
        cluster = self.api.cluster(patience_s=0.2)
        engine = Engine(
            cluster, kinds or (self.kind,), namespace, num_workers, PAUSES, scaler=scaler
        )
        engine.start()
        try:
            yield engine
        finally:
            engine.stop()

    # -- objects, past the API

    def make(self, name, size=2, namespace=TEAM, resource=TOYS, **metadata):
        place = self.place(name, namespace, resource)
        metadata = {"name": name, "namespace": namespace, **metadata}
        manifest = {"apiVersion": resource.api_version, "kind": resource.kind}
        manifest |= {"metadata": metadata, "spec": {"size": size}}
        return self.api.objects.create(place, manifest)

    def make_pod(self, name, **metadata):
        manifest = {"apiVersion": "v1", "kind": "Pod"}
        manifest |= {"metadata": {"name": name, "namespace": TEAM, **metadata}, "spec": {}}
        return self.api.objects.create(self.place(name, TEAM, PODS), manifest)

    def place(self, name="", namespace=TEAM, resource=TOYS, part=""):
        return Place(resource.group, resource.version, resource.plural, namespace, name, part)

    def job(self, name):
        return self.api.objects.get(self.place(name))

    def change(self, name, change, resource=TOYS, part=""):
        return self.api.objects.merge(self.place(name, TEAM, resource, part), change)

    def remove(self, name, resource=TOYS, **options):
        self.api.objects.delete(self.place(name, TEAM, resource), options)

    def pods(self, job=None):
        items, _ = self.api.objects.list(self.place(namespace="", resource=PODS))
        return {
            item["metadata"]["name"]: item
            for item in items
            if job is None or item["metadata"]["name"].startswith(f"{job}-")
        }

    def uids(self, job=None):
        return {name: pod["metadata"]["uid"] for name, pod in self.pods(job).items()}

    def events(self, reason=None):
        items, _ = self.api.objects.list(Place("", "v1", "events"))
        return [item for item in items if reason in (None, item["reason"])]

    def is_running(self, name, size):
        status = self.job(name).get("status") or {}
        return status.get("phase") == "Running" and status["running"] == size


def soon(probe, timeout_s=20.0):
    """Wait until the probe gives something true, and return it."""
    deadline_s = time.monotonic() + timeout_s
    while not (found := probe()):
        assert time.monotonic() < deadline_s, "never came about"
        time.sleep(0.005)
    return found


def is_quiet(engine, api, still_s=0.3):
    """Wait until no request but of watches was sent for a while."""

    def state():
        return len(api.requests), engine.sample().queue_depth

    last, since_s = state(), time.monotonic()
    deadline_s = since_s + 20.0
    while time.monotonic() - since_s < still_s:
        assert time.monotonic() < deadline_s, "the engine finds no rest"
        time.sleep(0.01)
        if (now := state()) != last:
            last, since_s = now, time.monotonic()
    return True
