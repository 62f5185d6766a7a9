"""A cluster in miniature with the types of all kinds, and the commands of somebody who uses it.

The API server is in memory; its client, the platform and the commands are those of users.
"""

from contextlib import contextmanager

import yaml

from elastic.controller.resources import elastic_job, elastic_train_job, tf_job, training_job
from elastic.platforms.kubernetes.api.resources import CONFIGMAPS, PODS
from elastic.platforms.kubernetes.objects import manifests
from elastic.platforms.kubernetes.objects.manifests import Submission
from elastic.platforms.kubernetes.objects.podspec import Job
from elastic.spec.job import JobSpec
from support.api_objects import Place
from support.api_server_in_memory import InMemoryApi
from support.kubelet_in_memory import Kubelet
from support.toy_kind import World

TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "torch"}]}}
ELASTIC_JOB = {
    "rdzvEndpoint": "etcd:2379",
    "minReplicas": 2,
    "maxReplicas": 5,
    "replicaSpecs": {"Worker": {"replicas": 3, "template": TEMPLATE}},
}
TF_TEMPLATE = {"spec": {"containers": [{"name": "log-shipper"}, {"name": "tensorflow"}]}}
TF_JOB = {
    "min-instances": 1,
    "max-instances": 4,
    "tfReplicaSpecs": {
        "PS": {"template": TF_TEMPLATE},
        "Worker": {"replicas": 2, "template": TF_TEMPLATE},
    },
}
TRAINING_JOB = {
    "fault_tolerant": True,
    "pserver": {"min-instance": 1},
    "trainer": {"min-instance": 2, "max-instance": 6},
}
TRAIN_JOB = {
    "image": "registry/elastic:1",
    "job": {
        "model_def": "m.C",
        "training_data_dir": "d",
        "minibatch_size": 1,
        "num_workers": "2:8",
    },
}
RUNNING = {
    "phase": "running",
    "scale_status": {"trainer": {"current": 2, "wanted": 2}},
    "replica_statuses": [{"training_resource_type": "trainer", "active": 1}],
}
SPEC = {"model_zoo": "z", "model_def": "m.C", "training_data_dir": "d", "minibatch_size": 1}


class Team:
    """A cluster with the types of all kinds, and the commands of somebody who uses it."""

    def __init__(self, api, run, kubeconfig):
        self.api = api
        self.kubelet = Kubelet(api)
        self.world = World(api, self.kubelet)
        self._run = run
        self._kubeconfig = kubeconfig
        for module in (training_job, elastic_job, tf_job, elastic_train_job):
            api.serve(module.RESOURCE)

    def run(self, *argv):
        return self._run(*argv, "--platform=kubernetes", f"--kubeconfig={self._kubeconfig}")

    def out(self, *argv):
        code, out, err = self.run(*argv)
        assert (code, err) == (0, "")
        return out

    def add(self, resource, name, spec, namespace="team", status=None, **metadata):
        place = self.world.place(name, namespace, resource)
        manifest = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, "namespace": namespace, **metadata},
            "spec": spec,
        }
        made = self.api.objects.create(place, manifest)
        if status is not None:
            there = self.world.place(name, namespace, resource, "status")
            self.api.objects.merge(there, {"status": status})
        return made

    def add_own(self, name, namespace="team", workers="1:4"):
        """A job of ours that was submitted, and of which nothing runs yet."""
        spec = JobSpec(**SPEC, job_name=name, num_workers=workers)
        job = Job(spec, namespace, "uid-1", "registry/elastic:1")
        record = manifests.record(job, Submission("uid-1", self.now_s(), "registry/elastic:1"))
        self.api.objects.create(self.world.place(name, namespace, CONFIGMAPS), record)

    def now_s(self):
        return self.api.objects.now_s()

    def add_pod(self, name, labels, containers=("main",), namespace="team", **status):
        manifest = {
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": {"containers": [{"name": each} for each in containers]},
        }
        self.api.objects.create(self.world.place(name, namespace, PODS), manifest)
        if status:
            self.api.objects.merge(
                self.world.place(name, namespace, PODS, "status"), {"status": status}
            )
            # The log of a pod without a node is not asked for.
            self.api.objects.merge(
                self.world.place(name, namespace, PODS), {"spec": {"nodeName": "node-0"}}
            )

    def get(self, resource, name):
        return self.api.objects.get(self.world.place(name, "team", resource))

    def names(self, resource):
        items, _ = self.api.objects.list(Place(resource.group, resource.version, resource.plural))
        return [item["metadata"]["name"] for item in items]


@contextmanager
def team_of(run, path):
    """A team whose kubeconfig is written to a path."""
    with InMemoryApi() as api:
        context = {"cluster": "c", "user": "u", "namespace": "team"}
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "x",
                    "contexts": [{"name": "x", "context": context}],
                    "clusters": [{"name": "c", "cluster": {"server": api.url}}],
                    "users": [{"name": "u", "user": {"token": "t"}}],
                }
            )
        )
        yield Team(api, run, path)


def training_job_runs(team, name="paddlejob", namespace="team"):
    team.add(training_job.RESOURCE, name, TRAINING_JOB, namespace, RUNNING)


def pod_labels(name, role, index, group="elastic.pytorch.org"):
    return {
        "job-name": name,
        "group-name": group,
        "replica-type": role,
        "replica-index": str(index),
    }
