"""The API server is away for a minute while a job of `elastic train` and one of each kind run."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from support.cluster import eventually, needs_custom_resources, needs_whole_cluster
from support.controlled import Applied, Controller, example, lasts
from support.controlled_jobs import (
    FRAMEWORKS,
    NUM_EPOCHS,
    Trained,
    TrainJob,
    endless,
    spirals,
)
from support.faults import end_api_server, is_api_server_away
from support.statuses import each_epoch
from support.whole_jobs import CONTROL, Workshop

from elastic.platforms.kubernetes.api.resources import PODS

pytestmark = [*needs_custom_resources, *needs_whole_cluster, pytest.mark.soak]

NUM_RECORDS = 800
# Slow enough that no job ends before the API server is back.
SLOW = {"model_params": {"num_records": NUM_RECORDS, "delay_ms": 600}}
NUM_STEPS = 20_000
AWAY_S = 60.0
NUM_UPDATES = 5
"""Of each job while the API server is away, however busy the machine is."""
SETTLED_S = 20.0
"""Longer than it takes this cluster to have a node for lost."""
SLEEPING = "import signal, sys; signal.signal(15, sys.exit); signal.pause()"


@pytest.fixture
def workshop():
    workshop = Workshop(NUM_RECORDS, "outage")
    yield workshop
    workshop.close()


@pytest.fixture
def controller(workshop, tmp_path):
    controller = Controller(workshop.namespace, tmp_path / "log")
    controller.start()
    yield controller
    controller.end()
    assert "Traceback" not in controller.log()


def tf_job():
    [manifest] = example("tfjob-between-graphs.yaml")
    for replicas in manifest["spec"]["tfReplicaSpecs"].values():
        [container] = replicas["template"]["spec"]["containers"]
        container |= FRAMEWORKS | {"command": ["python3", "-c", SLEEPING]}
        container["resources"] = {"requests": {"cpu": "10m", "memory": "16Mi"}}
    return manifest


class Scene:
    """Three jobs that train, and of the other two kinds one that would run for ever."""

    def __init__(self, workshop, state):
        self._workshop = workshop
        self._state = state
        log = f"{CONTROL}/commits"
        self.plain = workshop.submit(
            "plain", num_workers="2", num_epochs=NUM_EPOCHS, commit_log=f"{log}-plain", **SLOW
        )
        self.owned = TrainJob(workshop, "owned", commit_log=f"{log}-owned", **SLOW)
        code, torchrun = spirals(state, steps=NUM_STEPS)
        torchrun["spec"]["replicaSpecs"]["Worker"]["replicas"] = 2
        self._apply(code)
        self.torchrun, self.training, self.tf = map(self._apply, (torchrun, endless(), tf_job()))
        self._trained = Trained(self.torchrun)

    def _apply(self, manifest):
        return Applied(self._workshop.cluster, self._workshop.namespace, manifest)

    def until_all_run(self):
        self.plain.until(lambda s: [w.records_done > 0 for w in s.workers] == [True, True])
        self.owned.until_at_work()
        self._trained.until(r"step 20 of")
        self.training.until(lambda: self.training.phase == "running")
        self.tf.until(lambda: self.tf.holds("Running") and not self.waiting())

    def waiting(self):
        """Pods that do not run yet."""
        return [pod for pod in self._pods() if pod["status"]["phase"] != "Running"]

    def lives(self):
        """Which containers there are, in which pods, and whether any was asked to go."""
        return {
            pod["metadata"]["name"]: (
                pod["metadata"]["uid"],
                pod["metadata"].get("deletionTimestamp"),
                [each["containerID"] for each in pod["status"]["containerStatuses"]],
            )
            for pod in self._pods()
        }

    def phases(self):
        """What the status of each job says; a TFJob has conditions alone."""
        jobs = (self.owned.resource, self.torchrun, self.training)
        phases = [self.plain.status().phase, *(job.phase for job in jobs)]
        return [*phases, self.tf.holds("Running")]

    def num_updates(self):
        """Of the jobs of ours, as their logs on this machine have them."""
        logs = [self._workshop.shared / f"commits-{name}" for name in ("plain", "owned")]
        return [log.read_text().count("\n") for log in logs]

    def saved_s(self):
        """When the torchrun job has written its newest checkpoint."""
        return (self._state / "newest.pt").stat().st_mtime

    def num_begun(self):
        """How often the workers of the torchrun job have begun together."""
        return len(self._trained.begins(2))

    def _pods(self):
        return self._workshop.cluster.get(PODS.path(self._workshop.namespace))["items"]


def test_an_api_server_that_is_away_for_a_minute_changes_nothing(workshop, controller, tmp_path):
    scene = Scene(workshop, tmp_path)
    scene.until_all_run()
    lives, phases = scene.lives(), scene.phases()
    with ThreadPoolExecutor(1) as thread:
        outage = thread.submit(end_api_server, AWAY_S)
        eventually(is_api_server_away)
        updates, saved_s = scene.num_updates(), scene.saved_s()

        def all_go_on():
            pairs = zip(scene.num_updates(), updates, strict=True)
            is_further = [now >= before + NUM_UPDATES for now, before in pairs]
            return all(is_further) and scene.saved_s() > saved_s

        eventually(all_go_on, AWAY_S)
        assert is_api_server_away(), "they have gone on without it"
        outage.result()
    # It could not hold its lease, and has ended or is about to. A Deployment starts it again.
    controller.kill()
    controller.start()
    eventually(lambda: controller.is_leading)
    assert lasts(lambda: scene.lives() == lives, SETTLED_S)
    eventually(lambda: scene.phases() == phases)
    assert scene.num_begun() == 1
    assert scene.torchrun.status.get("restartCount", 0) == 0
    scene.owned.succeed_exactly()
    scene.plain.hurry()
    status = scene.plain.succeed()
    assert each_epoch(status) == [(NUM_RECORDS, NUM_RECORDS, 0)] * NUM_EPOCHS
    assert scene.plain.counts() == [float(NUM_EPOCHS)] * NUM_RECORDS
    losses = (status.master_restarts, status.worker_failures, status.workers_lost)
    assert losses == (0, 0, 0)
