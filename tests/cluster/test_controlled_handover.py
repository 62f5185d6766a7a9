"""Controllers that are killed while jobs of all kinds run, and an API server that goes away.

Simulated nodes hold the pods: nothing in them ends by itself, so whatever is touched was touched by
a controller.
"""

import random
import time

import pytest
from support import seeds
from support.cluster import (
    eventually,
    make_namespace,
    needs_whole_cluster,
    open_cluster,
    remove_namespace,
)
from support.controlled import ON_SIMULATED, TOLERATIONS, Applied, Controller, example, lasts
from support.faults import end_api_server
from support.nodes import SimulatedNode

from elastic.platforms.kubernetes.api.resources import PODS
from elastic.platforms.kubernetes.job import installing

pytestmark = [
    *needs_whole_cluster,
    pytest.mark.soak,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not SimulatedNode.names(), reason="the cluster has no simulated node"),
]

MASTERS = "elastic-master"
NUM_OF_EACH = 7
NUM_KILLS = 50
TAKES_OVER_S = 15.0
AWAY_S = 60.0
SETTLED_S = 5.0
TINY = {"requests": {"cpu": "10m", "memory": "16Mi"}}
PLACE = {"tolerations": TOLERATIONS, "nodeSelector": ON_SIMULATED}


def training_job(number):
    [manifest] = example("trainingjob-v1.yaml")
    manifest["metadata"]["name"] = f"paddle-{number}"
    manifest["spec"] |= PLACE
    for role in ("master", "pserver", "trainer"):
        manifest["spec"][role]["resources"] = TINY
    return manifest


def elastic_job(number):
    [manifest] = example("elasticjob-classy-vision.yaml")
    manifest["metadata"]["name"] = f"classy-{number}"
    pod = manifest["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]
    pod |= PLACE
    pod["containers"][0]["resources"] = TINY
    return manifest


def tf_job(number):
    [manifest] = example("tfjob-cpu.yaml")
    manifest["metadata"]["name"] = f"mnist-{number}"
    for replicas in manifest["spec"]["tfReplicaSpecs"].values():
        pod = replicas["template"]["spec"]
        pod |= PLACE
        pod["containers"][0]["resources"] = TINY
    return manifest


def train_job(number):
    """Its master does nothing there, and is waited for."""
    [manifest] = example("elastictrainjob.yaml")
    manifest["metadata"]["name"] = f"digits-{number}"
    del manifest["spec"]["state"]
    [(label, value)] = ON_SIMULATED.items()
    manifest["spec"]["job"] |= {
        "start_timeout": 36_000,
        "node_selector": f"{label}={value}",
        "tolerations": f"{TOLERATIONS[0]['key']}:NoSchedule",
        "master_resource_request": "cpu=0.01,memory=16Mi",
    }
    return manifest


NUM_PODS = {training_job: 5, elastic_job: 3, tf_job: 5, train_job: 1}


class Scene:
    """Two controllers of one namespace, and a job of each kind a few times."""

    def __init__(self, folder):
        self.cluster = open_cluster()
        self.namespace = make_namespace(self.cluster, "handover")
        list(installing.apply(self.cluster, installing.master_access(self.namespace, MASTERS)))
        self.controllers = [Controller(self.namespace, folder / f"log-{i}") for i in range(2)]
        for each in self.controllers:
            each.start()
        eventually(self.leader)
        self.jobs = [
            Applied(self.cluster, self.namespace, make(number))
            for number in range(NUM_OF_EACH)
            for make in NUM_PODS
        ]
        num_pods = NUM_OF_EACH * sum(NUM_PODS.values())
        eventually(lambda: self.num_running() == num_pods, 240.0)

    def close(self):
        for each in self.controllers:
            each.kill()
        remove_namespace(self.cluster, self.namespace)

    def pods(self):
        return self.cluster.get(PODS.path(self.namespace))["items"]

    def uids(self):
        """Of all pods; one that was asked to go counts as gone."""
        return {
            pod["metadata"]["uid"]
            for pod in self.pods()
            if "deletionTimestamp" not in pod["metadata"]
        }

    def num_running(self):
        return sum(pod["status"].get("phase") == "Running" for pod in self.pods())

    def leader(self):
        """Which of the two acts."""
        return next((each for each in self.controllers if each.is_leading), None)


@pytest.fixture
def scene(tmp_path):
    scene = Scene(tmp_path)
    yield scene
    scene.close()


def test_killed_again_and_again_they_touch_nothing_that_is_well(scene):
    rng = random.Random(seeds.drawn_by())
    uids = scene.uids()
    slowest_s = 0.0
    for _ in range(NUM_KILLS):
        time.sleep(rng.uniform(0.0, 3.0))
        former = eventually(scene.leader)
        former.kill()
        killed_s = time.monotonic()
        eventually(lambda former=former: scene.leader() not in (None, former))
        slowest_s = max(slowest_s, time.monotonic() - killed_s)
        former.start()
        # Who has just begun has to see the whole of a lease pass: it is no standby before.
        eventually(lambda former=former: former.is_standing_by)
        assert scene.uids() == uids
    assert slowest_s <= TAKES_OVER_S
    print(f"{NUM_KILLS} kills; the slowest took over after {slowest_s:.1f} s")
    # And it acts: what is lost is made again, once.
    lost = scene.jobs[1].name + "-worker-1"
    scene.cluster.delete(PODS.path(scene.namespace, lost), grace_s=0)
    eventually(lambda: len(scene.uids()) == len(uids) and scene.num_running() == len(uids))
    assert len(scene.uids() - uids) == 1


def test_an_api_server_that_is_away_for_a_minute_changes_nothing(scene):
    uids = scene.uids()
    end_api_server(AWAY_S)
    # Neither could hold its lease, so that they have ended. A Deployment starts them again.
    for each in scene.controllers:
        each.kill()
        each.start()
    eventually(scene.leader)
    assert lasts(lambda: scene.uids() == uids, SETTLED_S)
    lost = scene.jobs[1].name + "-worker-1"
    scene.cluster.delete(PODS.path(scene.namespace, lost), grace_s=0)
    eventually(lambda: len(scene.uids()) == len(uids) and scene.num_running() == len(uids))
    assert len(scene.uids() - uids) == 1
