"""Controllers that decide sizes and die: who takes over decides the same, and nobody is touched."""

from collections import Counter

import pytest
from support.api_objects import Place
from support.controllers import wait_for
from support.handover import PATIENCE_S, TAKEOVER_S, cluster
from support.plays import NAMESPACE

from elastic.controller.autoscaling import PERIOD_S
from elastic.controller.resources import elastic_job, training_job

CORES = {"n0": 10, "n1": 10}
CPU = {"limits": {"cpu": "1"}}
CONTAINER = {"name": "main", "image": "i", "resources": CPU}
JOBS = (elastic_job.RESOURCE, training_job.RESOURCE)
PODS = Place("", "v1", "pods", NAMESPACE)
DECIDED_S = PERIOD_S + 1.0
"""Within this time whoever leads has looked at all jobs together."""


def elastic(name):
    worker = {"replicas": 1, "template": {"spec": {"containers": [CONTAINER]}}}
    limits = {"minReplicas": 1, "maxReplicas": 10}
    spec = {"rdzvEndpoint": "etcd:2379", "replicaSpecs": {"Worker": worker}, **limits}
    return elastic_job.RESOURCE, name, spec


def training(name):
    trainers = {"min-instance": 1, "max-instance": 10, "resources": CPU}
    spec = {"fault_tolerant": True, "pserver": {"min-instance": 1, "resources": CPU}}
    return training_job.RESOURCE, name, {**spec, "trainer": trainers}


class Scene:
    """Three jobs, which share what there is equally."""

    def __init__(self, cluster):
        self.cluster = cluster
        for resource, name, spec in (elastic("a"), elastic("b"), training("c")):
            manifest = {"apiVersion": resource.api_version, "kind": resource.kind}
            manifest |= {"metadata": {"name": name}, "spec": spec}
            cluster.objects.create(place(resource), manifest)

    def running(self):
        """How many workers of each job run."""
        found = Counter()
        for pod in self.cluster.objects.list(PODS)[0]:
            labels = pod["metadata"].get("labels", {})
            name = labels.get("job-name") or labels.get("paddle-job")
            if name and pod["status"]["phase"] == "Running":
                found[name] += 1
        return dict(found)

    def wanted(self):
        """How many each is to have, as its object says."""
        workers = {
            name: self._job(elastic_job.RESOURCE, name)["spec"]["replicaSpecs"]["Worker"][
                "replicas"
            ]
            for name in "ab"
        }
        status = self._job(training_job.RESOURCE, "c").get("status", {})
        return {**workers, "c": status.get("scale_status", {}).get("trainer", {}).get("wanted")}

    def until(self, size):
        """Wait until each job has this size."""
        sizes = dict.fromkeys("abc", size)
        wait_for(lambda: self.running() == self.wanted() == sizes, PATIENCE_S,
                 lambda: f"{self.running()} {self.wanted()}\n{self.cluster.deployment.logs()}",
                 )  # fmt: skip

    def versions(self):
        """Of all jobs and of all pods."""
        items = [
            each for of in (*map(place, JOBS), PODS) for each in self.cluster.objects.list(of)[0]
        ]
        return {each["metadata"]["uid"]: each["metadata"]["resourceVersion"] for each in items}

    def take_over(self):
        """Kill the leader, and wait until another one has decided on all jobs."""
        account, deployment = self.cluster.account, self.cluster.deployment
        former = account.leader
        former.kill()
        wait_for(lambda: account.leader is not former, 4 * TAKEOVER_S, deployment.logs)
        self.cluster.is_quiet(DECIDED_S)
        wait_for(deployment.stands_by, 4 * TAKEOVER_S, deployment.logs)

    def others(self, count):
        """Pods that belong to no job."""
        for number in range(count):
            manifest = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [CONTAINER]}}
            manifest["metadata"] = {"name": f"other-{number}", "namespace": NAMESPACE}
            self.cluster.objects.create(PODS, manifest)

    def _job(self, resource, name):
        return self.cluster.objects.get(place(resource, name))


def place(resource, name=""):
    return Place(resource.group, resource.version, resource.plural, NAMESPACE, name)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "num_kills",
    [
        pytest.param(1, id="1-kill"),
        pytest.param(10, id="10-kills", marks=[pytest.mark.soak, pytest.mark.timeout(600)]),
    ],
)
def test_whoever_takes_over_decides_the_same_sizes_and_touches_no_pod(num_kills, tmp_path):
    """Half a minute: a kill costs the time of a lease, and then that between two decisions."""
    with cluster(tmp_path, 1, "--autoscale", "fulfillment", cores=CORES) as found:
        scene = Scene(found)
        # 97% of twenty cores are nineteen, and one of them is the server's.
        scene.until(6)
        found.is_quiet()
        before = scene.versions()
        for _ in range(num_kills):
            scene.take_over()
            assert scene.versions() == before
        # And it decides: there is room for four of each beside these.
        scene.others(6)
        scene.until(4)
