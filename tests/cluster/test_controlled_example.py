"""The examples that train with elastic as they stand, and what `elastic train` prints of one."""

import re
import shutil
import subprocess
import sys

import pytest
from support.cluster import (
    KUBECONFIG,
    eventually,
    exists,
    make_namespace,
    needs_custom_resources,
    open_cluster,
    remove_namespace,
)
from support.controlled import EXAMPLES, ROOT, Applied, Controller, example
from support.datasets import MODEL_ZOO, prepared_dir
from support.whole_jobs import BASE_IMAGE

from elastic.cli.main import main
from elastic.controller.resources.elastic_train_job import RESOURCE
from elastic.platforms.kubernetes.api.resources import PERSISTENT_VOLUME_CLAIMS as CLAIMS
from elastic.platforms.kubernetes.api.resources import PODS
from elastic.platforms.kubernetes.job import installing

pytestmark = needs_custom_resources

NAME = "digits"
MASTER = f"elastic-{NAME}-master"
CLAIM = f"elastic-{NAME}-state"
VOLUMES = "/api/v1/persistentvolumes"
PATIENCE_S = 280.0


@pytest.fixture(scope="module")
def cluster():
    return open_cluster()


@pytest.fixture(scope="module")
def namespace(cluster):
    name = make_namespace(cluster, "example")
    list(installing.apply(cluster, installing.master_access(name, "elastic-master")))
    yield name
    remove_namespace(cluster, name)


@pytest.fixture(scope="module")
def controller(namespace, tmp_path_factory):
    found = Controller(namespace, tmp_path_factory.mktemp("controller") / "log")
    found.start()
    yield found
    found.end()
    assert "Traceback" not in found.log()


def docker(*words):
    return subprocess.run(["docker", *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def image(tmp_path, capsys):
    """`digits:1`, by the command that the example gives; its base has the data, as elastic:ci."""
    found = prepared_dir("digits")
    for part in ("train", "test"):
        folder = tmp_path / "data" / "digits" / part
        folder.mkdir(parents=True)
        shutil.copy(found / f"{part}.npz", folder)
    (tmp_path / "Dockerfile").write_text(
        f"FROM {BASE_IMAGE}\nCOPY data /data\nRUN chmod -R a+rX /data\n"
    )
    base = f"elastic-test/digits-data:{tmp_path.name}"
    docker("build", "-t", base, str(tmp_path))
    assert main(["zoo", "build", str(MODEL_ZOO), "--image_base", base, "--image", "digits:1"]) == 0
    capsys.readouterr()
    yield
    # Its node may still have an ended container of it.
    docker("rmi", "--force", "digits:1", base)


@pytest.fixture
def volume(cluster, namespace, tmp_path):
    """A volume that the claim of the example finds where the cluster has nothing that makes one."""
    folder = tmp_path / "state"
    folder.mkdir()
    # Pods run as another user than the test.
    for each in (folder, *folder.parents[:3]):
        each.chmod(0o777 if each is folder else 0o755)
    name = f"{namespace}-{CLAIM}"
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": str(folder)},
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "",
        "claimRef": {"namespace": namespace, "name": CLAIM},
    }
    manifest = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}}
    cluster.create(VOLUMES, {**manifest, "spec": spec})
    yield folder
    cluster.delete(f"{VOLUMES}/{name}")


@pytest.mark.soak
def test_the_example_trains_as_it_stands_and_goes_on_when_its_master_is_deleted(
    cluster, namespace, controller, image, volume
):
    [manifest] = example("elastictrainjob.yaml")
    job = Applied(cluster, namespace, manifest)
    job.until(lambda: job.phase == "Running", PATIENCE_S)
    assert cluster.get(CLAIMS.path(namespace, CLAIM))["status"]["phase"] == "Bound"
    job.until(lambda: job.status["progress"]["records_done"] > 0, PATIENCE_S)
    first = job.pods()[MASTER]["metadata"]["uid"]
    job.remove(MASTER, None)
    eventually(
        lambda: job.pods().get(MASTER, {}).get("metadata", {}).get("uid") not in (None, first)
    )
    job.until(lambda: job.phase == "Succeeded", PATIENCE_S)
    [*_, last] = job.status["evaluations"]
    assert last["metrics"]["accuracy"] >= 0.85
    assert "BeginsAgain" not in job.reasons()
    assert any(volume.rglob("*")), "its state is on the volume"
    job.delete()
    job.until_gone()
    eventually(lambda: exists(cluster, CLAIMS.path(namespace, CLAIM)) is None)


@pytest.mark.soak
def test_trainers_that_are_jobs_of_elastic_train_a_model_each(
    cluster, namespace, controller, image
):
    [manifest] = example("trainingjob-digits.yaml")
    job = Applied(cluster, namespace, manifest)
    job.until(lambda: job.phase == "running", PATIENCE_S)
    job.until(lambda: job.phase == "succeeded", PATIENCE_S)
    logs = [job.log(name) for name in job.pods()]
    assert len(logs) == 2
    accuracies = [float(re.findall(r"accuracy[= ](0\.\d+)", log)[-1]) for log in logs]
    assert all(each >= 0.85 for each in accuracies), accuracies
    job.delete()
    job.until_gone()


def test_what_elastic_train_prints_is_what_kubectl_applies(cluster, namespace, controller):
    """As the guide has it: one command into the other."""
    guide = (ROOT / "docs" / "controllers.md").read_text()
    blocks = re.findall(r"^```\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
    [block] = [each for each in blocks if "kubectl apply -f -" in each]
    # No image of this cluster: nothing is to run.
    for written, meant in (
        ("elastic train", f"{sys.executable} -m elastic train"),
        ("registry.example.com/team/digits:1", "digits:none"),
        ("kubectl apply", f"kubectl apply -n {namespace} --kubeconfig {KUBECONFIG}"),
    ):
        block = block.replace(written, meant)
    command = ["bash", "-e", "-o", "pipefail", "-c", block]
    # The API serves a kind moments before it lists it among those that kubectl looks through.
    eventually(lambda: "elastic.dev" in {each["name"] for each in cluster.get("/apis")["groups"]})
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "elastictrainjob.elastic.dev/digits created" in done.stdout
    path = RESOURCE.path(namespace, NAME)
    printed = (EXAMPLES / "digits.yaml").read_text()
    assert cluster.get(path)["spec"]["job"]["model_def"] in printed
    eventually(lambda: exists(cluster, PODS.path(namespace, MASTER)))
    cluster.delete(path)
    eventually(lambda: exists(cluster, PODS.path(namespace, MASTER)) is None)
