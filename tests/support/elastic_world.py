"""A little cluster for one job: an API server's objects, a kubelet that does as told, a clock.

It plays what a kind decides until nothing is left to be done, and watches what must never happen.
"""

from copy import deepcopy

from elastic.controller.reconciling import Create, Delete, Patch
from elastic.platforms.kubernetes.api.resources import PODS, SERVICES
from support.played_kind import PlayedKind, text_of

GRACE_S = 30.0


class World(PlayedKind):
    """One job of a kind, its pods and services; only the kubelet's part is the test's to play."""

    def __init__(self, kind, job, status_model):
        job = deepcopy(job)
        job["metadata"] |= {"namespace": "default", "uid": "job-uid", "generation": 1}
        super().__init__(kind, job, {PODS: {}, SERVICES: {}})
        self.charged = {}
        self._status_model = status_model

    # What is there.

    @property
    def pods(self):
        return self.objects[PODS]

    @property
    def services(self):
        return self.objects[SERVICES]

    def pod(self, index):
        return self.pods.get(f"{self.name}-worker-{index}")

    def phases(self):
        return {
            name.removeprefix(f"{self.name}-"): pod["status"]["phase"]
            for name, pod in sorted(self.pods.items())
        }

    def condition(self, type_):
        found = [c for c in self.status.get("conditions", ()) if c["type"] == type_]
        return found[0] if found else None

    # The controller.

    def advance(self, seconds):
        """Let time pass, looking again whenever the kind asked for it."""
        end_s = self.now_s + seconds
        while not self.is_job_gone:
            self.settle()
            if self.is_job_gone or self.again_in_s is None or self.now_s + self.again_in_s > end_s:
                break
            self.now_s += max(self.again_in_s, 0.001)
        self.now_s = max(self.now_s, end_s)
        if not self.is_job_gone:
            self.settle()

    def _act(self, action):
        self.actions.append(action)
        if action.note is not None:
            self.notes.append(action.note)
        match action:
            case Create():
                self._create(action.resource, deepcopy(action.manifest))
            case Delete() if action.resource == self.kind.resource:
                assert action.uid == self.job["metadata"]["uid"]
                self.is_job_gone = True
            case Delete():
                self._delete(action)
            case Patch():
                raise AssertionError("nothing is patched")

    def _create(self, resource, manifest):
        name = manifest["metadata"]["name"]
        found = self.objects[resource]
        assert name not in found, f"{name} is there already"
        assert "ownerReferences" not in manifest["metadata"]
        self._num_made += 1
        manifest["metadata"] |= {
            "namespace": "default",
            "uid": f"uid-{self._num_made}",
            "creationTimestamp": text_of(self.now_s),
        }
        if resource == PODS:
            manifest["status"] = {"phase": "Pending"}
        found[name] = manifest
        workers = [p for n, p in self.pods.items() if "-worker-" in n and not _is_over(p)]
        assert len(workers) <= self.job["spec"]["maxReplicas"], "more than maxReplicas"

    def _delete(self, action):
        item = self.objects[action.resource][action.name]
        assert item["metadata"]["uid"] == action.uid
        if action.resource == PODS:
            failed = item["status"]["phase"] == "Failed" and "-worker-" in action.name
            index = int(action.name.rpartition("-")[2]) if failed else None
            if failed and index < self.job["spec"]["replicaSpecs"]["Worker"]["replicas"]:
                is_over = bool(self.status.get("completionTime"))
                assert is_over or action.uid in self.charged, "removed before it was counted"
        self.delete(action.name, action.resource, action.grace_s)

    def _write(self, status):
        self.num_status_writes += 1
        model = self._status_model.model_validate(status)
        assert not list(model.unknown()), "the API server would drop fields it does not know"
        for uid, verdict in status.get("failedPods", {}).items():
            if verdict == "Kept":
                continue
            assert self.charged.get(uid, verdict) == verdict, "counted twice"
            self.charged[uid] = verdict
        self.job["status"] = deepcopy(status)

    # The cluster.

    def delete(self, name, resource=PODS, grace_s=None):
        """As anybody may: what runs is given its time, all else is gone at once."""
        item = self.objects[resource][name]
        if resource != PODS or grace_s == 0 or item["status"]["phase"] != "Running":
            del self.objects[resource][name]
        elif "deletionTimestamp" not in item["metadata"]:
            item["metadata"]["deletionTimestamp"] = text_of(self.now_s + GRACE_S)

    def finish_deletions(self):
        """Pods that were asked to end do, torchrun with code 1."""
        for name, pod in list(self.pods.items()):
            if "deletionTimestamp" in pod["metadata"]:
                del self.pods[name]

    def run(self, name):
        pod = self.pods[name]
        now = text_of(self.now_s)
        pod["status"] = {
            "phase": "Running",
            "startTime": now,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": now}],
            "containerStatuses": [
                {"name": each["name"], "state": {"running": {"startedAt": now}}}
                for each in pod["spec"]["containers"]
            ],
        }

    def run_all(self):
        """All pending pods, and those that are made once a store is ready."""
        for _ in range(4):
            for name, pod in list(self.pods.items()):
                if (
                    pod["status"]["phase"] == "Pending"
                    and "deletionTimestamp" not in pod["metadata"]
                ):
                    self.run(name)
            self.settle()

    def end(self, name, code, reason=None):
        """All containers end with a code."""
        pod = self.pods[name]
        terminated = {
            "exitCode": code,
            "reason": reason or ("Error" if code else "Completed"),
            "finishedAt": text_of(self.now_s),
        }
        pod["status"] |= {
            "phase": "Failed" if code else "Succeeded",
            "conditions": [],
            "containerStatuses": [
                {"name": each["name"], "state": {"terminated": dict(terminated)}}
                for each in pod["spec"]["containers"]
            ],
        }

    def evict(self, name):
        """The node ends it, and says so; torchrun makes code 1 of it."""
        self.end(name, 1)
        self.pods[name]["status"] |= {"reason": "Evicted", "message": "The node was low on memory."}

    def edit(self, **worker_or_spec):
        """Change fields of the spec; `replicas` is the workers'."""
        spec = self.job["spec"]
        for key, value in worker_or_spec.items():
            where = spec["replicaSpecs"]["Worker"] if key == "replicas" else spec
            where[key] = value
        self.job["metadata"]["generation"] += 1


def _is_over(pod):
    return pod["status"]["phase"] in {"Succeeded", "Failed"}
