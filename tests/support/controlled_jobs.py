"""Jobs of the controller's kinds that really train, on the real node of the cluster for tests."""

import re

from elastic.controller.resources.elastic_train_job import resource_of
from support.cluster import eventually
from support.controlled import Applied, example
from support.statuses import each_epoch
from support.whole_jobs import CONTROL, WholeJob

FRAMEWORKS = {"image": "elastic-base:ci", "imagePullPolicy": "IfNotPresent"}
PATIENCE_S = 240.0
STATE = "/elastic/state"
NUM_EPOCHS = 12


def line(**more):
    [manifest] = example("trainingjob-line.yaml")
    manifest["spec"] |= more
    return manifest


def endless(**more):
    """Trainers that run until they are removed, two parameter servers and a master."""
    manifest = line(fault_tolerant=True, **more)
    spec = manifest["spec"]
    sleeping = ["python", "-c", "import signal, sys; signal.signal(15, sys.exit); signal.pause()"]
    spec["trainer"] |= {"command": sleeping, "min-instance": 2, "max-instance": 4}
    spec["pserver"] |= {"command": sleeping, "min-instance": 2, "max-instance": 2}
    spec["master"] = {"command": sleeping, "resources": spec["pserver"]["resources"]}
    manifest["metadata"]["name"] = "endless"
    return manifest


def spirals(folder, **arguments):
    """The example with torchrun, its state in a folder of the node instead of a claim."""
    [code, _, job] = example("elasticjob-ddp.yaml")
    pod = job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]
    pod["containers"][0] |= FRAMEWORKS
    pod["containers"][0]["resources"] = {"requests": {"cpu": "50m", "memory": "100Mi"}}
    for name, value in arguments.items():
        pod["containers"][0]["args"] += [f"--{name}", str(value)]
    pod["volumes"][1] = {"name": "state", "hostPath": {"path": str(folder)}}
    job["spec"].pop("ttlSecondsAfterFinished")
    return code, job


class Trained:
    """What the workers of the example say, kept beyond their pods."""

    def __init__(self, job):
        self._job = job
        self._said = {}

    def said(self):
        for name, pod in self._job.pods().items():
            log = self._job.log(name)
            if log:
                self._said[pod["metadata"]["uid"]] = log
        return "\n".join(self._said.values())

    def until(self, pattern, times=1):
        self._job.until(lambda: len(re.findall(pattern, self.said())) >= times, PATIENCE_S)

    def begins(self, num_workers):
        """Steps at which so many of them have begun together."""
        found = re.findall(rf"begins at step (\d+) with {num_workers} workers", self.said())
        return [int(step) for step in found]

    def until_begun(self, num_workers, times=1):
        self._job.until(lambda: len(self.begins(num_workers)) >= times, PATIENCE_S)


class TrainJob(WholeJob):
    """One that was applied as a resource, with its state in a folder of the node."""

    def __init__(self, workshop, name, **changes):
        state = workshop.shared / f"state-{name}"
        state.mkdir()
        state.chmod(0o777)
        values = {
            "num_workers": "2",
            "num_epochs": NUM_EPOCHS,
            "model_params": {"num_records": workshop.num_records, "delay_ms": 100},
            "checkpoint_steps": 20,
            "volume": f"host_path={workshop.shared},mount_path={CONTROL};"
            f"host_path={state},mount_path={STATE}",
        }
        spec = workshop.spec(name, **values | changes)
        super().__init__(workshop, spec)
        manifest = resource_of(spec)
        manifest["metadata"].pop("namespace", None)
        self.resource = Applied(workshop.cluster, workshop.namespace, manifest)

    def worker_uids(self):
        return {pod["metadata"]["uid"] for pod in self.worker_pods()}

    def until_at_work(self, master_uid=None):
        """Until a master, another one than that, has workers that count."""

        def is_at_work():
            pod = self.pod("master")
            return (
                pod is not None
                and pod["metadata"]["uid"] != master_uid
                and self.status().phase == "Running"
            )

        eventually(is_at_work, 120.0)
        before = self.status().progress.records_done
        self.until(lambda status: status.progress.records_done > before)

    def succeed_exactly(self):
        self.hurry()
        status, num = self.succeed(), self.workshop.num_records
        assert each_epoch(status) == [(num, num, 0)] * NUM_EPOCHS
        assert self.counts() == [float(NUM_EPOCHS)] * num
        return status
