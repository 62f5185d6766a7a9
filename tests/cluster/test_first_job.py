"""From a folder to a trained model by one command, in a real cluster."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import docker
import pytest
from support.cluster import KUBECONFIG, eventually, make_namespace, needs_cluster, remove_namespace
from support.datasets import MODEL_ZOO
from support.whole_jobs import BASE_IMAGE

from elastic.platforms.kubernetes.api.cluster import connect
from elastic.platforms.kubernetes.api.resources import PODS
from elastic.platforms.kubernetes.job.platform import KubernetesPlatform

ROOT = Path(__file__).parents[2]
REGISTRY = os.environ.get("ELASTIC_TEST_REGISTRY", "")
pytestmark = needs_cluster

# As in the first description of the project, but for names of images and data, and for the cores:
# the node of this cluster has two.
COMMAND = """
train
    --model_zoo={model_zoo}
    --model_def=mnist_subclass.mnist_subclass.CustomModel
    --image_base=elastic:ci
    --docker_image_repository={repository}
    --training_data_dir=/data/mnist/train
    --evaluation_data_dir=/data/mnist/test
    --num_epochs={num_epochs}
    --master_resource_request=cpu=0.3,memory=512Mi
    --master_resource_limit=cpu=1,memory=512Mi
    --worker_resource_request=cpu=0.5,memory=1024Mi
    --worker_resource_limit=cpu=1,memory=1024Mi
    --minibatch_size=10
    --records_per_task=100
    --num_workers=2
    --checkpoint_steps=100
    --grads_to_wait=2
    --job_name={name}
    --image_pull_policy=IfNotPresent
    --log_level=INFO
    --envs=e1=v1,e2=v2
"""


class Laptop:
    """A user with a folder, a kubeconfig and the command line."""

    def __init__(self, folder):
        self.cluster = connect(KUBECONFIG)
        self.namespace = make_namespace(self.cluster, "first")
        self.platform = KubernetesPlatform(self.cluster, self.namespace)
        self.model_zoo = folder / "model_zoo"
        shutil.copytree(MODEL_ZOO, self.model_zoo)
        # One image of this test's own, whatever was built before.
        (self.model_zoo / "note.txt").write_text(self.namespace)

    def close(self):
        remove_namespace(self.cluster, self.namespace)

    def run(self, *arguments, check=True):
        process = subprocess.run(
            [sys.executable, "-m", "elastic.cli", *arguments, "-n", self.namespace],
            env={**os.environ, "KUBECONFIG": KUBECONFIG},
            cwd=self.model_zoo.parent,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert not check or process.returncode == 0, process.stdout + process.stderr
        return process

    def train(self, name, *more, num_epochs=1, **options):
        text = COMMAND.format(
            model_zoo=self.model_zoo,
            repository=f"{REGISTRY}/{self.namespace}",
            name=name,
            num_epochs=num_epochs,
        )
        return self.run(*text.split(), *more, **options)

    def pods(self, name):
        query = {"labelSelector": f"elastic-job-name={name}"}
        pods = self.cluster.get(PODS.path(self.namespace), query)["items"]
        return {pod["metadata"]["name"]: pod for pod in pods}

    def until_first_step(self, name):
        return eventually(
            lambda: (s := self.platform.status(name)).progress.records_done > 0 and s, 240.0
        )


@pytest.fixture(scope="module")
def laptop(tmp_path_factory):
    command = [ROOT / "images" / "build_all.sh", "--only", "ci", "--base", BASE_IMAGE]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    laptop = Laptop(tmp_path_factory.mktemp("laptop"))
    laptop.run("install", "--apply")
    # A registry that has the base already, as after anybody's first job.
    laptop.train("warm", "--detach")
    laptop.run("kill", "warm", "--forget")
    yield laptop
    laptop.close()


def _edit(laptop):
    path = laptop.model_zoo / "mnist_subclass" / "mnist_subclass.py"
    path.write_text(path.read_text() + f"\n# edited at {time.time()}\n")


@pytest.fixture(scope="module")
def trained(laptop):
    """What the command said of the first job."""
    _edit(laptop)
    return laptop.train("test").stdout


@pytest.fixture(scope="module")
def master_of_edited(laptop, trained):
    """The master's pod of a second job, of the edited folder, which has begun to train."""
    _edit(laptop)
    began_s = time.monotonic()
    laptop.train("owned", "--detach", num_epochs=50)
    laptop.until_first_step("owned")
    print(f"first step after the command: {time.monotonic() - began_s:.1f} s")
    return laptop.pods("owned")["elastic-owned-master"]


def test_the_command_trains_a_folder_to_an_accuracy(laptop, trained):
    assert "job test has been started" in trained
    # Told twice: when it was measured, and at the end.
    accuracies = re.findall(r"accuracy\D+(0\.\d+)", trained)
    assert float(accuracies[-1]) > 0.8, trained
    status = laptop.platform.status("test")
    assert status.phase == "Succeeded"
    [audit] = status.audits
    assert (audit.committed, audit.skipped) == (audit.records, 0)
    assert "Succeeded" in laptop.run("status", "test").stdout


def test_an_edit_costs_the_layer_that_holds_it(laptop, master_of_edited):
    first, second = map(_layers_of, (laptop.pods("test")["elastic-test-master"], master_of_edited))
    assert first != second
    assert first[:-1] == second[:-1], "more than the edited files was pushed and pulled again"


def _layers_of(pod):
    engine = docker.from_env()
    try:
        image = engine.images.get(pod["spec"]["containers"][0]["image"])
        return image.attrs["RootFS"]["Layers"]
    finally:
        engine.close()


# The table of the project's first description, column by column, with the names of this job.
TABLE = """\
NAME                     READY   STATUS    RESTARTS   AGE
elastic-owned-master     1/1     Running   0          AGO
elastic-owned-worker-0   1/1     Running   0          AGO
elastic-owned-worker-1   1/1     Running   0          AGO
"""


def _look_with_kubectl(laptop):
    command = ["kubectl", "--kubeconfig", KUBECONFIG, "-n", laptop.namespace, "get", "pods"]
    # Those of earlier jobs are there too, and make its columns wider.
    command += ["-l", "elastic-job-name=owned"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    print(f"$ {' '.join(command)}\n{done.stdout}")
    assert re.fullmatch(re.escape(TABLE).replace("AGO", r"\w+"), done.stdout), done.stdout


def test_the_pods_belong_to_the_master_and_go_with_it(laptop, master_of_edited):
    names = {f"elastic-owned-{replica}" for replica in ("master", "worker-0", "worker-1")}
    eventually(
        lambda: (
            {
                name
                for name, pod in laptop.pods("owned").items()
                if pod["status"]["phase"] == "Running"
            }
            == names
        ),
        240.0,
    )
    if shutil.which("kubectl"):
        _look_with_kubectl(laptop)
    else:
        print("no kubectl on this machine: its table of the pods was not looked at")
    pods = laptop.pods("owned")
    master = master_of_edited["metadata"]
    assert "ownerReferences" not in master
    for index in range(2):
        metadata = pods[f"elastic-owned-worker-{index}"]["metadata"]
        assert metadata["ownerReferences"] == [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": "elastic-owned-master",
                "uid": master["uid"],
                "controller": True,
            }
        ]
        labels = metadata["labels"]
        assert {key: labels[key] for key in labels if "replica" in key or key == "app"} == {
            "app": "elastic",
            "elastic-replica-type": "worker",
            "elastic-replica-index": str(index),
        }
        assert labels["elastic-job-name"] == "owned"
    began_s = time.monotonic()
    laptop.cluster.delete(PODS.path(laptop.namespace, master["name"]))
    eventually(lambda: not laptop.pods("owned"), 60.0)
    gone_s = time.monotonic() - began_s
    print(f"all pods were gone {gone_s:.1f} s after the master was deleted")
    assert gone_s <= 10.0
    status = laptop.platform.status("owned")
    assert status.phase == "Failed"
    assert "master" in status.message
