"""Sizes that a controller decides on all jobs together, on a real cluster.

They are made of the room that there is, so nothing else may run meanwhile.
"""

import json

import pytest
from support.cluster import (
    IMAGE,
    KUBECONFIG,
    eventually,
    make_namespace,
    needs_custom_resources,
    open_cluster,
    remove_namespace,
)
from support.controlled import TOLERATIONS, Applied, Controller
from support.nodes import SimulatedNode
from support.whole_jobs import Workshop

from elastic.checkpoints.cuts import read_cut
from elastic.cli.main import main
from elastic.controller.resources import elastic_train_job, tf_job, training_job
from elastic.platforms.kubernetes.api.resources import PODS, Resource

pytestmark = [*needs_custom_resources, pytest.mark.alone]
on_simulated_nodes = pytest.mark.skipif(
    len(SimulatedNode.names()) < 2, reason="the cluster has no two simulated nodes"
)

SOON_S = 30.0
CORES = 16
"""Of a simulated node."""

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
NUM_RECORDS = 400
NUM_EPOCHS = 10


@pytest.fixture(scope="module")
def cluster():
    return open_cluster()


@pytest.fixture
def namespace(cluster):
    name = make_namespace(cluster, "autoscaled")
    yield name
    remove_namespace(cluster, name)


@pytest.fixture
def run(tmp_path):
    """Have a controller look after a namespace, with these flags."""
    running = []

    def run(namespace, *flags):
        running.append(Controller(namespace, tmp_path / "log", *flags))
        running[-1].start()
        eventually(lambda: running[-1].is_leading)

    yield run
    for each in running:
        each.end()
        assert "Traceback" not in each.log()


def container(name, cpu):
    resources = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}
    return {"name": name, "image": "none:1", "resources": resources}


class Room:
    """One simulated node, on which jobs share what there is."""

    def __init__(self, cluster, namespace):
        self.cluster, self.namespace = cluster, namespace
        self.node = SimulatedNode.unused(cluster).name
        self.only_here = {"kubernetes.io/hostname": self.node}

    def training_job(self, name, low=2, high=20, most_servers=3):
        cpu = {"limits": {"cpu": "1"}}
        spec = {
            "fault_tolerant": True,
            "nodeSelector": self.only_here,
            "tolerations": TOLERATIONS,
            "pserver": {
                "min-instance": 1,
                "max-instance": most_servers,
                "resources": {"limits": {"cpu": "100m"}},
            },
            "trainer": {"min-instance": low, "max-instance": high, "resources": cpu},
        }
        return self._apply(training_job.RESOURCE, name, spec)

    def others(self, size):
        """A Deployment of another owner; its size is changed where it is there."""
        labels = {"app": "web"}
        if self.cluster.get(DEPLOYMENTS.path(self.namespace))["items"]:
            path = DEPLOYMENTS.path(self.namespace, "web")
            self.cluster.patch(path, {"spec": {"replicas": size}})
            return
        pod = {"containers": [container("main", "1")], "terminationGracePeriodSeconds": 1}
        pod |= {"nodeSelector": self.only_here, "tolerations": TOLERATIONS}
        spec = {"replicas": size, "selector": {"matchLabels": labels}}
        spec["template"] = {"metadata": {"labels": labels}, "spec": pod}
        manifest = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec}
        manifest["metadata"] = {"name": "web"}
        self.cluster.create(DEPLOYMENTS.path(self.namespace), manifest)

    def _apply(self, resource, name, spec):
        manifest = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        return Applied(self.cluster, self.namespace, manifest | {"metadata": {"name": name}})

    def running(self, label, value):
        query = {"labelSelector": f"{label}={value}"}
        found = self.cluster.get(PODS.path(self.namespace), query)["items"]
        return sum(
            each["status"]["phase"] == "Running" and "deletionTimestamp" not in each["metadata"]
            for each in found
        )

    def trainers(self, *jobs):
        return [self.running("paddle-job", job.name) for job in jobs]

    def servers(self, *jobs):
        return [self.running("paddle-job-pserver", job.name) for job in jobs]


@on_simulated_nodes
def test_two_jobs_share_equally_and_a_third_gets_its_minimum(cluster, namespace, run):
    run(namespace, "--kinds", "trainingjob", "--autoscale", "fulfillment")
    room = Room(cluster, namespace)
    a, b = room.training_job("a"), room.training_job("b")
    a.until(lambda: a.phase == b.phase == "running")
    # 97% of 16 cores are 15.5, less a tenth of one for each server. A third of their range, or
    # nearly, is one server more.
    a.until(lambda: sorted(room.trainers(a, b)) == [7, 8], SOON_S)
    a.until(lambda: room.servers(a, b) == [2, 2], SOON_S)
    c = room.training_job("c")
    c.until(lambda: room.trainers(c)[0] >= 2, SOON_S)
    c.until(lambda: room.trainers(a, b, c) == [5, 5, 5], SOON_S)
    c.until(lambda: room.servers(a, b, c) == [1, 1, 1], SOON_S)
    # Who grows before its trainers are made is never scaled up; all have to give to the third.
    a.until(lambda: any(why == "Scaled" and "since -" in text for _, why, text, _ in a.told()))


@pytest.mark.soak
@on_simulated_nodes
def test_jobs_give_way_to_a_deployment_and_come_back(cluster, namespace, run):
    """Two minutes: it grows and shrinks twice, and each time the jobs have to settle."""
    run(namespace, "--kinds", "trainingjob", "--autoscale", "fulfillment")
    room = Room(cluster, namespace)
    a, b = room.training_job("a"), room.training_job("b")
    a.until(lambda: sorted(room.trainers(a, b)) == [7, 8])
    for size, left in ((6, [4, 5]), (9, [3, 3]), (3, [6, 6]), (0, [7, 8])):
        room.others(size)
        a.until(lambda size=size: room.running("app", "web") == size, SOON_S)
        a.until(lambda left=left: sorted(room.trainers(a, b)) == left, SOON_S)


def tf_roles(workers, node, cpu):
    def role(count):
        main = container("tensorflow", cpu)
        spec = {"containers": [main], "tolerations": TOLERATIONS, "nodeSelector": node}
        return {"replicas": count, "template": {"spec": spec}}

    return {"tfReplicaSpecs": {"PS": role(1), "Worker": role(workers)}}


@pytest.mark.soak
@on_simulated_nodes
def test_a_tf_job_that_starves_gets_lonely_workers_room_and_jobs_grow_when_idle(
    cluster, namespace, run
):
    """Three minutes: DRAGON's own 30 s until a job starves, and 60 s until others grow."""
    run(namespace, "--kinds", "tfjob", "--tf_scheduler", "dragon")
    SimulatedNode.until_all_unused(cluster)
    room = Room(cluster, namespace)
    hollow = {"elastic.test/hollow": "true"}

    def apply(name, workers, node, **limits):
        spec = tf_roles(workers, node, "2") | {k.replace("_", "-"): v for k, v in limits.items()}
        return room._apply(tf_job.RESOURCE, name, spec)

    # Two nodes of eight: one server and 13 workers, some of them away from their server.
    a = apply("a", 13, hollow, min_instances=2, max_instances=13)
    a.until(lambda: len(a.running()) == 14)
    at = {name: pod["spec"]["nodeName"] for name, pod in a.pods().items()}
    lonely = {name for name, node in at.items() if node != at["a-ps-0"]}
    b = apply("b", 4, hollow)
    b.until(lambda: len(b.running()) == 5, SOON_S + 60)
    gone = at.keys() - a.pods().keys()
    assert gone
    assert gone <= lonely
    assert any("has waited for 3" in text for _, _, text, _ in a.told())
    b.delete()
    # Nothing has changed for a minute.
    a.until(lambda: len(a.running()) == 14, 60 + 2 * SOON_S)
    assert any("+" in text and reason == "Autoscaled" for _, reason, text, _ in a.told())


@pytest.fixture
def workshop():
    workshop = Workshop(NUM_RECORDS, "autoscaled")
    yield workshop
    workshop.close()


@pytest.mark.soak
def test_a_job_of_ours_grows_and_gives_way_and_counts_exactly(workshop, run):
    """A minute and a half: it starts, grows, gives way to a pod, and trains to its end."""
    job = workshop.submit(
        "counted",
        num_workers="1:2",
        autoscale=True,
        num_epochs=NUM_EPOCHS,
        model_params={"num_records": NUM_RECORDS, "delay_ms": 200},
        master_resource_limit="cpu=0.4,memory=1Gi",
        worker_resource_request="cpu=0.3,memory=256Mi",
        worker_resource_limit="cpu=0.7,memory=512Mi",
    )
    status = job.until(lambda s: any(w.records_done for w in s.workers))
    assert (status.desired_workers, len(status.workers)) == (1, 1)
    run(
        workshop.namespace, "--kinds", elastic_train_job.RESOURCE.kind.lower(),
        "--autoscale", "fulfillment",
    )  # fmt: skip
    job.until(lambda s: len([w for w in s.workers if w.records_done]) == 2)
    pod = {
        "containers": [container("main", "1500m") | {"image": IMAGE, "command": ["sleep", "1h"]}]
    }
    path = PODS.path(workshop.namespace)
    workshop.cluster.create(
        path,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "guest"},
            "spec": pod | {"terminationGracePeriodSeconds": 1},
        },
    )
    job.until(lambda s: s.desired_workers == 1)
    guest = PODS.path(workshop.namespace, "guest")
    eventually(lambda: workshop.cluster.get(guest)["spec"].get("nodeName"))
    workshop.cluster.delete(guest, grace_s=0)
    job.until(lambda s: s.desired_workers == 2)
    job.hurry()
    status = job.succeed()
    assert job.counts() == [float(NUM_EPOCHS)] * NUM_RECORDS
    told = [event.message for event in status.events if event.kind == "Autoscaled"]
    assert [text.split(" ")[0] for text in told] == ["2", "1", "2"]


@pytest.mark.soak
def test_a_job_is_planned_by_the_speeds_that_one_of_its_program_has_shown(workshop, tmp_path):
    """Half a minute: one job has ended before the other begins."""
    settings = {
        "num_workers": "1:2",
        "autoscale": True,
        "model_params": {"num_records": NUM_RECORDS, "delay_ms": 50},
        "master_resource_limit": "cpu=0.4,memory=1Gi",
        "worker_resource_request": "cpu=0.3,memory=256Mi",
    }
    first = workshop.submit("first", num_epochs=100, **settings)
    speeds = first.until(lambda s: s.scaling.speeds).scaling.speeds
    first.hurry()
    first.succeed()
    second = workshop.submit("second", num_epochs=10_000, **settings)
    second.until(lambda s: any(w.records_done for w in s.workers))
    where = [f"--kubeconfig={KUBECONFIG}", f"--namespace={workshop.namespace}"]
    snapshot = tmp_path / "snapshot.json"
    assert main(["plan", "--policy=goodput", f"--save={snapshot}", *where]) == 0
    saved = json.loads(snapshot.read_text())
    [planned] = [job for job in saved["jobs"] if job["name"] == "second"]
    shown = saved["shown"][planned["program"]]["speeds"]
    assert {each["replicas"] for each in shown} == {each.workers for each in speeds} == {1}


@pytest.mark.soak
def test_a_job_that_chooses_its_batch_is_planned_by_the_gradients_of_its_program(
    workshop, tmp_path, capsys
):
    """A minute: the one that has ended has measured them, the other one has not begun."""
    settings = {
        "num_workers": "1:2",
        "autoscale": True,
        "elastic_batch": "16:48",
        "model_params": {"num_records": NUM_RECORDS, "delay_ms": 50},
        "master_resource_limit": "cpu=0.4,memory=1Gi",
        "worker_resource_request": "cpu=0.3,memory=256Mi",
    }
    where = [f"--kubeconfig={KUBECONFIG}", f"--namespace={workshop.namespace}"]
    snapshot = tmp_path / "snapshot.json"

    def planned():
        capsys.readouterr()
        assert main(["plan", "--policy=goodput", f"--save={snapshot}", *where]) == 0
        return capsys.readouterr().out, json.loads(snapshot.read_text())

    first = workshop.submit("first", num_epochs=100, **settings)
    assert "to be seen at work" in planned()[0]
    first.until(lambda s: s.scaling.speeds and s.scaling.batch.updates_measured >= 10)
    first.hurry()
    first.succeed()
    assert first.counts() == [100.0] * NUM_RECORDS
    batch = first.status().scaling.batch
    workshop.submit("second", num_epochs=10_000, **settings)
    text, saved = planned()
    [second] = [job for job in saved["jobs"] if job["name"] == "second"]
    assert second["telling"]["elastic_batch"]["grad_var"] == 0.0
    gradients = saved["shown"][second["program"]]["gradients"]
    assert gradients == pytest.approx({"sqr": batch.first_grad_sqr, "var": batch.first_grad_var})
    assert "ends in about" in text


@pytest.mark.soak
def test_a_job_that_may_have_none_stands_still_for_a_short_one_and_counts_exactly(workshop, run):
    """Two minutes: there is room for one worker, and the long job has had it."""
    settings = {
        "num_workers": "0:1",
        "autoscale": True,
        "master_resource_limit": "cpu=0.4,memory=1Gi",
        "worker_resource_request": "cpu=1,memory=256Mi",
    }
    slow = {"num_records": NUM_RECORDS, "delay_ms": 200}
    # Days of work, which nobody waits for.
    long = workshop.submit(
        "long", num_epochs=10_000, model_params=slow, checkpoint_steps=5, **settings
    )
    long.until(lambda s: any(w.records_done for w in s.workers))
    run(
        workshop.namespace, "--kinds", elastic_train_job.RESOURCE.kind.lower(),
        "--autoscale", "goodput",
    )  # fmt: skip
    # Who tells no speed is not stopped.
    long.until(lambda s: s.scaling.speeds)
    short = workshop.submit("short", num_epochs=2, **settings)
    stopped = long.until(lambda s: s.reason == "Paused")
    assert (stopped.desired_workers, stopped.phase) == (0, "Recovering")
    short.succeed()
    assert short.counts() == [2.0] * NUM_RECORDS
    done = stopped.progress.records_done
    status = long.until(lambda s: s.progress.records_done > done + NUM_RECORDS)
    told = [event.message for event in status.events if event.kind == "Autoscaled"]
    assert [text.split(" ")[0] for text in told] == ["0", "1"]
    assert status.workers_lost == 0
    newest = max((workshop.shared / "checkpoints-long").rglob("version-*"))
    counts = read_cut(newest).parameters["counts"]
    assert max(counts) - min(counts) <= 1 < max(counts)
