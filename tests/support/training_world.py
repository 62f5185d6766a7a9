"""A cluster in miniature for one TrainingJob: what Kubernetes does with its children, step by step.

Nothing happens by itself: a test says whose turn it is. `look` is one pass of the controller; each
is checked for what must hold always.
"""

import copy
import itertools

from elastic.controller.kinds.training_job import TRANSITIONS, TrainingJobs
from elastic.controller.kinds.training_look import wanted_sizes
from elastic.controller.reconciling import Create, Delete, Observed, Patch
from elastic.controller.resources.training_job import Phase
from elastic.platforms.kubernetes.api.resources import BATCH_JOBS, PODS, REPLICA_SETS

ENDED = {"Succeeded", "Failed"}


def merged(old, change):
    """RFC 7386."""
    if not isinstance(change, dict) or not isinstance(old, dict):
        return change
    new = {key: value for key, value in old.items() if change.get(key, 0) is not None}
    for key, value in change.items():
        if value is not None:
            new[key] = merged(new.get(key, {}), value)
    return new


class World:
    """One job, what was made for it, and the controllers of Kubernetes that see to that."""

    def __init__(self, spec, name="j", sizes=wanted_sizes):
        self.kind = TrainingJobs(sizes)
        metadata = {"name": name, "namespace": "n", "uid": "job", "generation": 1}
        self.job = {"metadata": metadata, "spec": spec}
        self.owners = {REPLICA_SETS: {}, BATCH_JOBS: {}}
        self.pods = {}
        self.now_s = 1_000_000.0
        self.phases = [""]
        self.notes = []
        self.actions = []
        self.num_status_writes = 0
        self.succeeded = set()
        """Uids of Jobs of which a pod succeeded, for tests to note."""
        self._numbers = itertools.count(1)

    # The controller.

    @property
    def status(self):
        return self.job.get("status") or {}

    @property
    def phase(self):
        return self.status.get("phase", "")

    def edit(self, **fields):
        """Merge fields into the spec, as `kubectl patch` does."""
        self.job["spec"] = merged(self.job["spec"], fields)
        self.job["metadata"]["generation"] += 1

    def observed(self):
        uids = {o["metadata"]["uid"] for owners in self.owners.values() for o in owners.values()}
        pods = [
            pod
            for pod in self.pods.values()
            if pod["metadata"]["ownerReferences"][0]["uid"] in uids
        ]
        children = {
            resource: sorted(owners.values(), key=_name) for resource, owners in self.owners.items()
        }
        children[PODS] = sorted(pods, key=_name)
        return Observed(self.job, children, self.now_s)

    def look(self, dies_before_status=False):
        """One pass; returns whether it changed anything."""
        observed = self.observed()
        outcome = self.kind.reconcile(observed)
        assert self.kind.reconcile(observed) == outcome, "same in, same out"
        for action in outcome.actions:
            self._act(action)
        if dies_before_status:
            return True
        changes = bool(outcome.actions)
        if outcome.status != self.status:
            changes = True
            self.num_status_writes += 1
            before, after = Phase(self.phase), Phase(outcome.status["phase"])
            assert after is before or after in TRANSITIONS[before], (before, after)
            self.job["status"] = copy.deepcopy(outcome.status)
            if after is not before:
                self.phases.append(after.value)
        else:
            assert not outcome.notes, "told again with every look"
        self.notes += outcome.notes
        return changes

    def looks(self):
        """Passes until nothing is left to do; the next writes nothing."""
        for _ in range(6):
            if not self.look():
                return
        raise AssertionError(f"no end of actions: {self.actions[-6:]}")

    def _act(self, action):
        self.actions.append(action)
        match action:
            case Create(resource, manifest, note):
                assert note is not None
                self._create(resource, manifest)
            case Patch(resource, name, change, note):
                assert note is not None
                self._check_patch(change)
                owners = self.owners[resource]
                assert merged(owners[name], change) != owners[name], "a patch of nothing"
                owners[name] = merged(owners[name], change)
            case Delete(resource, name, uid, note=note):
                assert note is not None
                assert resource == REPLICA_SETS, "trainers stay for their logs"
                assert self.owners[resource][name]["metadata"]["uid"] == uid
                self.remove(resource, name)

    def _check_patch(self, change):
        [(field, value)] = change["spec"].items()
        assert field in {"replicas", "parallelism", "activeDeadlineSeconds"}
        if field == "activeDeadlineSeconds":
            # The phase is written after it, or already there.
            assert value == 0
            assert self.kind.reconcile(self.observed()).status["phase"] in {"succeeded", "failed"}

    def _create(self, resource, manifest):
        manifest = copy.deepcopy(manifest)
        name = manifest["metadata"]["name"]
        assert name not in self.owners[resource], "it is there already"
        role = name.rsplit("-", 1)[1]
        roles = ["master", "pserver", "trainer"]
        for earlier in roles[: roles.index(role)]:
            if earlier == "master" and not self.job["spec"].get("master"):
                continue
            wanted = 1 if earlier == "master" else self.job["spec"][earlier]["min-instance"]
            assert len(self.ready(earlier)) >= wanted, f"{role} before {earlier} is ready"
        manifest["metadata"]["uid"] = f"{name}-{next(self._numbers)}"
        if resource == BATCH_JOBS:
            manifest["status"] = {"startTime": self.now_s}
        self.owners[resource][name] = manifest

    # Kubernetes.

    def owner(self, role):
        resource = BATCH_JOBS if role == "trainer" else REPLICA_SETS
        return self.owners[resource].get(f"{self.job['metadata']['name']}-{role}")

    def of(self, role):
        """The pods of a role, terminating ones too, the oldest first."""
        owner = self.owner(role)
        return [
            pod
            for pod in self.pods.values()
            if owner is not None
            and pod["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]
        ]

    def alive(self, role):
        return [p for p in self.of(role) if _phase(p) not in ENDED and not _is_leaving(p)]

    def ready(self, role):
        return [
            pod
            for pod in self.alive(role)
            if any(c["type"] == "Ready" for c in pod["status"].get("conditions", ()))
        ]

    def remove(self, resource, name):
        """Delete an owner; the garbage collector then asks its pods to go."""
        owner = self.owners[resource].pop(name)
        for pod in self.pods.values():
            if pod["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]:
                self.delete(pod)

    def delete(self, pod):
        pod["metadata"].setdefault("deletionTimestamp", "2026-01-01T00:00:30Z")

    def replica_sets(self):
        for owner in self.owners[REPLICA_SETS].values():
            role = _name(owner).rsplit("-", 1)[1]
            self._fill(owner, role, owner["spec"]["replicas"])

    def job_controller(self):
        for owner in self.owners[BATCH_JOBS].values():
            self._job(owner)

    def _job(self, owner):
        status, pods = owner["status"], self.of("trainer")
        if status.get("conditions"):
            return
        counted = status.setdefault("seen", [])
        for pod in pods:
            if _phase(pod) in ENDED and _name(pod) not in counted:
                counted.append(_name(pod))
                what = "succeeded" if _phase(pod) == "Succeeded" else "failed"
                status[what] = status.get(what, 0) + 1
        alive = self.alive("trainer")
        deadline_s = owner["spec"].get("activeDeadlineSeconds")
        if deadline_s is not None and self.now_s - status["startTime"] >= deadline_s:
            for pod in alive:
                self.delete(pod)
            status["conditions"] = [_true("Failed", reason="DeadlineExceeded")]
        elif status.get("succeeded") and not alive:
            status["conditions"] = [_true("Complete")]
        elif not status.get("succeeded"):
            self._fill(owner, "trainer", owner["spec"]["parallelism"])

    def _fill(self, owner, role, size):
        """Bring an owner's living pods to a number; the youngest go first."""
        alive = self.alive(role)
        for pod in alive[size:]:
            self.delete(pod)
        for _ in range(size - len(alive)):
            self._start(owner)

    def _start(self, owner):
        number = next(self._numbers)
        name = f"{_name(owner)}-{number:05}"
        metadata = {
            "name": name,
            "labels": owner["spec"]["template"]["metadata"]["labels"],
            # Some share the second in which they were made.
            "creationTimestamp": f"2026-01-01T00:{number // 120:02}:{number // 2 % 60:02}Z",
            "ownerReferences": [{"uid": owner["metadata"]["uid"], "controller": True}],
        }
        self.pods[name] = {"metadata": metadata, "spec": {}, "status": {"phase": "Pending"}}

    def kubernetes(self):
        """A turn of all of its controllers."""
        self.replica_sets()
        self.job_controller()

    def run(self, pod):
        if _phase(pod) == "Pending":
            pod["spec"]["nodeName"] = "node-1"
            pod["status"] = {"phase": "Running", "conditions": [_true("Ready")]}

    def end(self, pod, code=0, reason="Error"):
        """The container of a trainer ends; any other is started again by its node."""
        if _phase(pod) in ENDED:
            return
        phase = "Failed" if code else "Succeeded"
        ended = {"exitCode": code, "reason": reason if code else "Completed"}
        statuses = [{"name": "trainer", "state": {"terminated": ended}}]
        pod["status"] = {"phase": phase, "containerStatuses": statuses}

    def bury(self):
        """Nodes end what is to go."""
        self.pods = {name: pod for name, pod in self.pods.items() if not _is_leaving(pod)}

    def settle(self):
        """Turns of everybody, until nothing changes: all pods run that can."""
        for _ in range(40):
            before = repr((self.job, self.owners, self.pods))
            self.looks()
            self.kubernetes()
            self.bury()
            for pod in self.pods.values():
                self.run(pod)
            self.looks()
            if before == repr((self.job, self.owners, self.pods)):
                return
        raise AssertionError("it never settles")


def _name(item):
    return item["metadata"]["name"]


def _phase(pod):
    return pod["status"]["phase"]


def _is_leaving(pod):
    return "deletionTimestamp" in pod["metadata"]


def _true(type_, **more):
    return {"type": type_, "status": "True", **more}
