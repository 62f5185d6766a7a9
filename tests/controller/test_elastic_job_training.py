"""The example of an ElasticJob really trains: torchrun, the store, and what pods are told."""

import os
import re
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import yaml

from elastic.controller.kinds.elastic_job import ElasticJobs
from elastic.controller.kinds.elastic_job.objects import (
    Owner,
    environment,
    store_pod,
)
from elastic.controller.reconciling import Observed
from elastic.controller.resources.common import read_spec
from elastic.controller.resources.elastic_job import ElasticJobSpec

EXAMPLES = Path(__file__).parents[2] / "manifests" / "examples"
PATIENCE_S = 240


def documents(name):
    return list(yaml.safe_load_all((EXAMPLES / name).read_text()))


@pytest.mark.parametrize("name", ["elasticjob-classy-vision.yaml", "elasticjob-ddp.yaml"])
def test_examples_begin(name):
    job = documents(name)[-1]
    assert job["apiVersion"] == ElasticJobs.resource.api_version
    assert job["kind"] == ElasticJobs.resource.kind
    reading = read_spec(ElasticJobSpec, job)
    assert reading.unknown == ()
    job["metadata"] |= {"uid": "u", "namespace": "default", "generation": 1}
    first = ElasticJobs().reconcile(Observed(job, {}, now_s=0.0))
    assert first.status["phase"] == "Created"
    assert ElasticJobs().reconcile(Observed(job | {"status": first.status}, {}, 0.0)).actions


class Workers:
    """torchrun processes that are told what pods are told."""

    def __init__(self, folder):
        [code, _, self._job] = documents("elasticjob-ddp.yaml")
        self._script = folder / "train.py"
        self._script.write_text(code["data"]["train.py"])
        self._folder = folder
        self._port = _free_port()
        self._processes = {}

    @contextmanager
    def store(self):
        """The program of the store's pod, at a port of its own."""
        [container] = store_pod(self._owner(1, 1))["spec"]["containers"]
        program = container["command"][2].replace("29400", str(self._port))
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
            assert b"answers" in process.stdout.readline()
            try:
                yield process
            finally:
                for index in list(self._processes):
                    self.kill(index)
                process.terminate()
                assert process.wait(PATIENCE_S) == 0, "it ends when it is asked to"

    def start(self, index, least, most, *arguments):
        """One worker, as its pod would be told about the job."""
        told = environment(self._owner(least, most), {})
        told |= {"PET_RDZV_ENDPOINT": f"localhost:{self._port}"}
        told["PET_RDZV_CONF"] += ",last_call_timeout=2,keep_alive_interval=1"
        here = {"PET_LOCAL_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        log = (self._folder / f"worker-{index}.log").open("ab")
        command = [sys.executable, "-m", "torch.distributed.run", str(self._script)]
        command += ["--checkpoint", str(self._folder / "newest.pt"), *arguments]
        self._processes[index] = subprocess.Popen(
            command, env=os.environ | told | here, stdout=log, stderr=log, start_new_session=True
        )
        log.close()

    def kill(self, index):
        """As the loss of a node does: at once, and all of it."""
        agent = self._processes.pop(index)
        # Training processes are in sessions of their own.
        if agent.poll() is None:
            for child in psutil.Process(agent.pid).children(recursive=True):
                child.kill()
        agent.kill()
        agent.wait()

    def logs(self):
        return "".join(path.read_text() for path in self._folder.glob("worker-*.log"))

    def until(self, pattern, times=1):
        """Wait until any of them have said something so often."""
        end_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < end_s:
            if len(re.findall(pattern, self.logs())) >= times:
                return
            time.sleep(0.2)
        raise AssertionError(f"nobody says {pattern}:\n{self.logs()[-3000:]}")

    def codes(self):
        return [process.wait(PATIENCE_S) for process in self._processes.values()]

    def _owner(self, least, most):
        spec = self._job["spec"] | {"minReplicas": least, "maxReplicas": most}
        spec["replicaSpecs"]["Worker"]["replicas"] = least
        return Owner("spirals", "uid", read_spec(ElasticJobSpec, {"spec": spec}).spec, "store")


def _free_port():
    with socket.socket() as there:
        there.bind(("localhost", 0))
        return there.getsockname()[1]


def accuracies(workers, steps):
    return [float(each) for each in re.findall(rf"accuracy (\S+) after {steps}", workers.logs())]


@pytest.mark.sampled(2)
def test_trains(tmp_path):
    workers = Workers(tmp_path)
    with workers.store():
        workers.start(0, 1, 1, "--steps", "400")
        assert workers.codes() == [0]
    [accuracy] = accuracies(workers, 400)
    assert accuracy > 0.9


@pytest.mark.soak
def test_grows_shrinks_and_survives_a_loss(tmp_path):
    workers = Workers(tmp_path)
    steps = ("--steps", "800", "--pause-s", "0.1")
    with workers.store():
        for index in range(2):
            workers.start(index, 2, 3, *steps)
        workers.until(r"begins at step 0 with 2 workers")
        workers.until(r"step 40 of")
        workers.start(2, 2, 3, *steps)
        workers.until(r"begins at step [1-9]\d* with 3 workers")
        workers.kill(1)
        workers.until(r"begins at step [1-9]\d* with 2 workers")
        workers.start(1, 2, 3, *steps)
        workers.until(r"begins at step [1-9]\d* with 3 workers", times=2)
        assert workers.codes() == [0, 0, 0]
    [accuracy] = accuracies(workers, 800)
    assert accuracy > 0.9
