"""A little cluster for one ElasticTrainJob: an API server's objects, and a master as a test says.

It plays what the kind decides until nothing is left to be done, and watches what must never happen.
"""

import json
from copy import deepcopy

from elastic.controller.kinds.elastic_train_job import ElasticTrainJobs
from elastic.controller.machinery.writing import without_none
from elastic.controller.reconciling import Create, Delete, Patch
from elastic.controller.resources.elastic_train_job import RESOURCE, ElasticTrainJobStatus
from elastic.platforms.base import JobControl
from elastic.platforms.kubernetes.api.resources import (
    CONFIGMAPS,
    PODS,
    SECRETS,
)
from elastic.platforms.kubernetes.objects import names
from elastic.platforms.kubernetes.objects.manifests import dump_control, status_of
from elastic.platforms.kubernetes.objects.names import CONTROL_KEY, STATUS_KEY
from elastic.spec.status import FINAL_PHASES, JobPhase, JobStatus, Progress, WorkerStatus
from support.played_kind import START_S, PlayedKind, text_of
from support.training_world import merged

UID = "11111111-2222-3333-4444-555555555555"
JOB = {
    "model_def": "digits.digits_torch.CustomModel",
    "training_data_dir": "/data/digits",
    "minibatch_size": 32,
    "num_workers": "1:4",
}
TEMPLATE = {
    "metadata": {"labels": {"team": "night"}},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


def resource(name="night", job=JOB, state=None, **spec):
    """An object as its user has applied it; its state is a claim of its own where none is named."""
    whole = {"image": "digits:1", "job": job, **spec}
    if state is not False:
        whole["state"] = state or {"volumeClaimTemplate": TEMPLATE}
    head = {"apiVersion": RESOURCE.api_version, "kind": RESOURCE.kind}
    return {**head, "metadata": {"name": name}, "spec": whole}


class World(PlayedKind):
    """One job and what is made of it; its master, and the nodes, are the test's to play."""

    def __init__(self, manifest=None, queues=None, **fields):
        kind = ElasticTrainJobs(queues)
        job = deepcopy(manifest or resource(**fields))
        job["metadata"] |= {
            "namespace": "team",
            "uid": UID,
            "generation": 1,
            "creationTimestamp": text_of(START_S),
        }
        super().__init__(kind, job, {each: {} for each in (*kind.children, SECRETS)})

    # What is there.

    @property
    def phase(self):
        return self.status.get("phase")

    @property
    def pods(self):
        return self.objects[PODS]

    @property
    def master(self):
        return self.pods.get(names.master_name(self.name))

    @property
    def record(self):
        return self.objects[CONFIGMAPS][names.record_name(self.name)]

    @property
    def control(self):
        return json.loads(self.record["data"][CONTROL_KEY])

    @property
    def published(self):
        """What `elastic status` reads."""
        return status_of(self.objects[CONFIGMAPS][names.status_name(self.name)])

    def names_of(self, of):
        return sorted(self.objects[of])

    def condition(self, type_):
        found = [each for each in self.status.get("conditions", ()) if each["type"] == type_]
        return found[0]["status"] if found else None

    def told(self, reason):
        """The messages of events with this reason."""
        return [note.message for note in self.notes if note.reason == reason]

    # The controller.

    def advance(self, seconds):
        """Let time pass, looking again whenever the kind asked for it, and at no other moment."""
        end_s = self.now_s + seconds
        while not self.is_job_gone and self._due_s is not None and self._due_s <= end_s:
            self.now_s = max(self._due_s, self.now_s + 0.1)
            self.settle()
        self.now_s = max(self.now_s, end_s)
        return self

    def _act(self, action):
        self.actions.append(action)
        if action.note is not None and not self._is_there(action):
            self.notes.append(action.note)
        match action:
            case Create():
                self._create(action)
            case Delete() if action.resource == RESOURCE:
                assert action.uid == UID
                self.is_job_gone = True
            case Delete():
                item = self.objects[action.resource][action.name]
                assert item["metadata"]["uid"] == action.uid
                self.delete(action.name, action.resource, action.grace_s)
            case Patch():
                self._patch(action)

    def _is_there(self, action):
        if not isinstance(action, Create):
            return False
        return action.manifest["metadata"]["name"] in self.objects[action.resource]

    def _create(self, action):
        of, manifest = action.resource, deepcopy(action.manifest)
        name = manifest["metadata"]["name"]
        if of == SECRETS and name in self.objects[of]:
            return
        assert name not in self.objects[of], f"{name} is there already"
        assert "ownerReferences" not in manifest["metadata"]
        assert of not in self.kind.children or self.kind.job_of(of, manifest) == self.name
        if of == PODS:
            assert names.record_name(self.name) in self.objects[CONFIGMAPS], (
                "a pod that mounts none"
            )
            manifest["status"] = {"phase": "Pending"}
        self._num_made += 1
        manifest["metadata"] |= {
            "uid": f"uid-{self._num_made}",
            "creationTimestamp": text_of(self.now_s),
            "resourceVersion": str(self._num_made),
        }
        self.objects[of][name] = manifest

    def _patch(self, action):
        item = self.objects[action.resource][action.name]
        version = action.change.get("metadata", {}).get("resourceVersion")
        assert version in (None, item["metadata"]["resourceVersion"])
        self.change(action.resource, action.name, action.change)

    def _write(self, status):
        self.num_status_writes += 1
        json.dumps(status, allow_nan=False)
        assert without_none(status) == status, "an API server keeps no null"
        was_final = self.phase in FINAL_PHASES
        assert not was_final or status["phase"] == self.phase, "an end is the end"
        ElasticTrainJobStatus.model_validate(status)
        self.job["status"] = deepcopy(status)

    # The cluster.

    def change(self, of, name, change):
        """Somebody merges a change into an object."""
        item = merged(self.objects[of][name], deepcopy(change))
        self._num_made += 1
        item["metadata"]["resourceVersion"] = str(self._num_made)
        self.objects[of][name] = item

    def delete(self, name, of=PODS, grace_s=None):
        """As anybody may: what runs is given its time, all else is gone at once."""
        item = self.objects[of][name]
        if of != PODS or grace_s == 0 or item["status"]["phase"] != "Running":
            del self.objects[of][name]
        elif "deletionTimestamp" not in item["metadata"]:
            grace_s = item["spec"]["terminationGracePeriodSeconds"]
            item["metadata"]["deletionTimestamp"] = text_of(self.now_s + grace_s)

    def lose_master(self, grace_s=0):
        """Somebody deletes its pod."""
        self.delete(names.master_name(self.name), PODS, grace_s)
        return self.settle()

    def finish_deletions(self):
        """Pods that were asked to end do."""
        for name, pod in list(self.pods.items()):
            if "deletionTimestamp" in pod["metadata"]:
                del self.pods[name]
        return self.settle()

    def cut_off(self, name):
        """The node of a pod does not answer, and so the pod is to go."""
        pod = self.pods[name]
        pod["status"]["conditions"] = [
            {"type": "Ready", "status": "False"},
            {"type": "ContainersReady", "status": "True"},
        ]
        self.delete(name)
        return self.settle()

    def run(self, name=None):
        """A pod starts; the master's where none is named."""
        pod = self.pods[name or names.master_name(self.name)]
        now = text_of(self.now_s)
        pod["spec"]["nodeName"] = "node-0"
        pod["status"] = {
            "phase": "Running",
            "startTime": now,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": now}],
            "containerStatuses": [
                {"name": "elastic", "ready": True, "state": {"running": {"startedAt": now}}}
            ],
        }
        return self.settle()

    def fail(self, reason="Evicted", message="The node was low on memory."):
        """The cluster ends the master's pod, and leaves it there."""
        self.end_master(137, "Failed")
        self.master["status"] |= {"reason": reason, "message": message}
        return self.settle()

    def end_master(self, code, phase):
        """Its container ends."""
        ended = {"exitCode": code, "finishedAt": text_of(self.now_s)}
        self.master["status"] |= {
            "phase": phase,
            "conditions": [],
            "containerStatuses": [{"name": "elastic", "state": {"terminated": ended}}],
        }

    # The master.

    def publish(self, phase=JobPhase.RUNNING, **fields):
        """It tells how far it is."""
        base = {
            "job_name": self.name,
            "phase": phase,
            "submitted_s": START_S,
            "started_s": START_S + 1,
            "updated_s": self.now_s,
            "desired_workers": 4,
        }
        data = {STATUS_KEY: JobStatus(**base | fields).model_dump_json()}
        self.change(CONFIGMAPS, names.status_name(self.name), {"data": data})
        return self.settle()

    def train(self, records=100, **fields):
        """It runs, has a worker, and has come so far."""
        workers = (WorkerStatus(index=0, launch=1, phase="Running", records_done=records),)
        progress = Progress(records_done=records, loss=1.0 / records, model_version=records)
        return self.publish(workers=workers, progress=progress, **fields)

    def add_worker(self, index=0, launch=1):
        """A pod that it has launched."""
        name = names.replica_pod_name(self.name, "worker", index)
        self._num_made += 1
        labels = {
            names.TRAIN_JOB_LABEL: self.name,
            names.TYPE_LABEL: "worker",
            names.INDEX_LABEL: str(index),
            names.LAUNCH_LABEL: str(launch),
        }
        self.pods[name] = {
            "metadata": {"name": name, "uid": f"uid-{self._num_made}", "labels": labels},
            "spec": {"terminationGracePeriodSeconds": 30},
            "status": {"phase": "Pending"},
        }
        self.run(name)
        return name

    # Users.

    def ask(self, **changes):
        """As `elastic kill` and `elastic scale` do."""
        control = JobControl(**self.control | changes)
        name = names.record_name(self.name)
        self.change(CONFIGMAPS, name, {"data": {CONTROL_KEY: dump_control(control)}})
        return self.settle()

    def edit(self, **fields):
        """Merge fields into the spec, as `kubectl edit` does."""
        self.job["spec"] = merged(self.job["spec"], fields)
        self.job["metadata"]["generation"] += 1
        return self.settle()


def begun(**fields):
    """A job whose master trains with one worker."""
    world = World(**fields).settle()
    world.run()
    world.train()
    world.add_worker()
    return world
