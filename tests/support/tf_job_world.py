"""A cluster of dictionaries around one TFJob: nodes that run its pods as a test says."""

import copy
import json
from pathlib import Path

import yaml

from elastic.controller.kinds.tf_job import TFJobs
from elastic.controller.reconciling import ClusterView, Create, Delete, Observed
from elastic.controller.resources.common import time_text
from elastic.controller.resources.tf_job import RESOURCE, SHARE_PODS
from elastic.platforms.kubernetes.api.resources import PODS, SERVICES

EXAMPLES = Path(__file__).parents[2] / "manifests" / "examples"
START_S = 1_700_000_000.0


def replicas(count=1, policy="OnFailure", cpu="1", memory="1Gi", **template):
    """One role, whose container limits what it needs."""
    container = {
        "name": "tensorflow",
        "image": "train:1",
        "ports": [{"containerPort": 2222, "name": "tfjob-port"}],
        "resources": {"limits": {"cpu": cpu, "memory": memory}},
    }
    template = {"spec": {"containers": [container]}} | template
    return {"replicas": count, "restartPolicy": policy, "template": template}


def tf_job(name="job1", ps=1, workers=2, policy="OnFailure", roles=(), **spec):
    """A job as a user writes it; keywords in snake case with two words joined by - in YAML."""
    specs = {"PS": replicas(ps, policy)} if ps else {}
    if workers:
        specs["Worker"] = replicas(workers, policy)
    specs |= dict(roles)
    return as_stored(
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "TFJob",
            "metadata": {"name": name},
            "spec": {"tfReplicaSpecs": specs}
            | {key.replace("_", "-"): value for key, value in spec.items()},
        }
    )


def as_stored(job):
    """As an API server keeps what was applied."""
    job = copy.deepcopy(job)
    job["metadata"] |= {"namespace": "default", "uid": "job-uid", "generation": 1}
    return job


def example(name):
    return as_stored(yaml.safe_load((EXAMPLES / name).read_text()))


def node(name, cpu="8", memory="32Gi", pods="110", gpus=0, **metadata):
    allocatable = {"cpu": cpu, "memory": memory, "pods": pods, "nvidia.com/gpu": str(gpus)}
    return {
        "metadata": {"name": name} | metadata,
        "spec": {},
        "status": {
            "allocatable": allocatable,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


class World:
    """What there is, and what has happened to it."""

    def __init__(self, job, *nodes, others=(), has_kubeshare=False):
        self.job = job
        self.nodes = list(nodes) or [node("node-a", cpu="64", memory="256Gi")]
        self.others = list(others)
        self.objects = {}
        self.now_s = START_S
        self.notes = []
        self.writes = 0
        self.is_gone = False
        self.cluster_lags = False
        self.again_in_s = None
        self._kind = TFJobs(has_kubeshare)
        self._made = 0

    # What the machinery does.

    def observed(self):
        children = {
            resource: [
                o for (r, _), o in sorted(self.objects.items(), key=_by_name) if r == resource
            ]
            for resource in self._kind.children
        }
        own = [] if self.cluster_lags else children[PODS]
        cluster = ClusterView(self.nodes, self.others + own)
        return Observed(self.job, children, self.now_s, cluster)

    def step(self):
        """One pass; whether it wrote anything."""
        before = json.dumps([self.job, _listed(self.objects)])
        outcome = self._kind.reconcile(self.observed())
        assert json.dumps([self.job, _listed(self.objects)]) == before, "a pass changed its input"
        for action in outcome.actions:
            self._apply(action)
        has_status = self.job.get("status", {}) != outcome.status
        self.job = self.job | {"status": json.loads(json.dumps(outcome.status))}
        self.notes += outcome.notes
        self.again_in_s = outcome.again_in_s
        self.writes += has_status + len(outcome.actions)
        return bool(has_status or outcome.actions)

    def settle(self):
        """Pass after pass, until one writes nothing."""
        for _ in range(12):
            if self.is_gone or not self.step():
                return self
        raise AssertionError(f"no end of writes: {self.notes[-5:]}")

    def _apply(self, action):
        if isinstance(action, Create):
            name = action.manifest["metadata"]["name"]
            assert (action.resource, name) not in self.objects, f"{name} is there already"
            self._made += 1
            made = copy.deepcopy(action.manifest)
            made["metadata"] |= {
                "namespace": "default",
                "uid": f"uid-{self._made}",
                "creationTimestamp": time_text(self.now_s),
            }
            self.objects[action.resource, name] = made
        else:
            assert isinstance(action, Delete)
            if action.resource == RESOURCE:
                self.is_gone = True
                return
            found = self.objects[action.resource, action.name]
            assert found["metadata"]["uid"] == action.uid
            assert "deletionTimestamp" not in found["metadata"], f"{action.name} is deleted twice"
            if action.resource == SERVICES:
                del self.objects[action.resource, action.name]
            else:
                found["metadata"]["deletionTimestamp"] = time_text(self.now_s)
        if action.note:
            self.notes.append(action.note)

    # What nodes and users do.

    def pods(self, resource=PODS):
        return {name: o for (r, name), o in self.objects.items() if r == resource}

    def live(self):
        return sorted(n for n, o in self.pods().items() if "deletionTimestamp" not in o["metadata"])

    def set(self, name, phase, state=None, restarts=0, resource=PODS, last=None, **status):
        entry = {"name": "tensorflow", "restartCount": restarts, "state": state or {}}
        entry["lastState"] = last or {}
        told = {"phase": phase, "containerStatuses": [entry] if state is not None else []} | status
        pod = self.objects[resource, name]
        pod["status"] = {"PodStatus": told} if resource == SHARE_PODS else told

    def run(self, *names):
        for name in names or self.live():
            self.set(name, "Running", {"running": {"startedAt": time_text(self.now_s)}})
        return self

    def exit(self, name, code, took_s=1.0, **more):
        end = {
            "exitCode": code,
            "startedAt": time_text(self.now_s - took_s),
            "finishedAt": time_text(self.now_s),
        }
        self.set(name, "Failed" if code else "Succeeded", {"terminated": end}, **more)
        return self

    def vanish(self, name):
        del self.objects[PODS, name]
        return self

    def reap(self):
        """Let go what was asked to."""
        for key in [k for k, o in self.objects.items() if "deletionTimestamp" in o["metadata"]]:
            del self.objects[key]
        return self

    def wait(self, seconds):
        self.now_s += seconds
        return self

    def edit(self, **changes):
        """Change the spec: `Worker=3` its replicas, others with - for _."""
        self.job = copy.deepcopy(self.job)
        spec = self.job["spec"]
        for key, value in changes.items():
            if key in spec["tfReplicaSpecs"]:
                spec["tfReplicaSpecs"][key]["replicas"] = value
            else:
                spec[key.replace("_", "-")] = value
        self.job["metadata"]["generation"] += 1
        return self

    # What is to be seen.

    @property
    def status(self):
        return self.job["status"]

    def condition(self, type_):
        found = [c for c in self.status["conditions"] if c["type"] == type_]
        return found[0]["status"] if found else None

    def message(self, type_):
        return next(c["message"] for c in self.status["conditions"] if c["type"] == type_)

    def reasons(self):
        return [note.reason for note in self.notes]

    def env(self, name, resource=PODS):
        [container] = self.objects[resource, name]["spec"]["containers"]
        return {each["name"]: each["value"] for each in container["env"]}


def _by_name(item):
    return item[0][1]


def _listed(objects):
    return [[r.plural, name, o] for (r, name), o in objects.items()]
