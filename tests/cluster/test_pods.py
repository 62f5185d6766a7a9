"""What the pods of a job are given, and where they may write."""

import json
import re
import subprocess
import sys

import pytest
from support.cluster import KUBECONFIG, core, eventually, needs_cluster
from support.whole_jobs import Workshop

from elastic.errors import JobSpecError
from elastic.spec.status import JobPhase

pytestmark = needs_cluster

NUM_RECORDS = 40
KEY = "s3cr3t-of-a-bucket"
READ_ONLY = "Read-only file system"


@pytest.fixture(scope="module")
def workshop():
    workshop = Workshop(NUM_RECORDS, "pods")
    yield workshop
    workshop.close()


def _make_secret(workshop, name, **values):
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "stringData": values,
    }
    workshop.cluster.create(f"/api/v1/namespaces/{workshop.namespace}/secrets", manifest)


def _submit(workshop, name, **settings):
    model_params = {"num_records": NUM_RECORDS, **settings.pop("model_params", {})}
    return workshop.submit(
        name, model_def="surroundings.CustomModel", model_params=model_params, **settings
    )


def test_pods_have_the_variables_of_secrets_and_write_below_tmp_alone(workshop):
    _make_secret(workshop, "keys", KEY=KEY, BOTH="of the secret", HOME="/root")
    job = _submit(workshop, "given", env_secret="keys", envs={"BOTH": "of the flag"})
    job.succeed()
    for role in ("master", "worker"):
        told = json.loads((workshop.shared / f"given-{role}.json").read_text())
        assert told["variables"] == {"KEY": KEY, "BOTH": "of the flag", "HOME": "/tmp"}
        assert told["written"] == {
            "tmp": True, "cache": True, "kernels": True, "shared memory": True, "root": READ_ONLY,
            "beside": READ_ONLY,
        }  # fmt: skip
    # Nothing that can be read without the right to read Secrets has what is in it.
    assert KEY not in json.dumps([*job.pods(), *workshop.config_maps()])
    assert KEY not in job.logs()
    _prune(workshop, job)


def _prune(workshop, job):
    """By the command, which leaves what is the user's own."""
    eventually(lambda: {pod["status"]["phase"] for pod in job.pods()} <= {"Succeeded", "Failed"})
    command = ["elastic.cli", "prune", "-n", workshop.namespace, "--kubeconfig", KUBECONFIG]
    # The server tells its time in whole seconds, and nodes have clocks of their own.
    options = ["--yes", "--older_than", "2126-01-01T00:00:00Z"]
    done = subprocess.run(
        [sys.executable, "-m", *command, *options],
        check=True, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert re.fullmatch(r"job given: Succeeded \S+ ago\n1 job removed\n", done.stdout), done.stdout
    assert job.pods() == []
    left = [
        item["metadata"]["name"]
        for kind in ("configmaps", "secrets", "services")
        for item in workshop.cluster.get(core(kind).path(workshop.namespace))["items"]
    ]
    assert [name for name in left if "given" in name] == []
    assert "keys" in left


def test_a_secret_that_is_not_there_is_told_before_anything_is(workshop):
    with pytest.raises(JobSpecError, match=r"'none'.* kubectl create secret generic none -n "):
        _submit(workshop, "ungiven", env_secret="none")
    assert "ungiven" not in workshop.platform.jobs()
    secrets = workshop.cluster.get(f"/api/v1/namespaces/{workshop.namespace}/secrets")["items"]
    assert "none" not in [secret["metadata"]["name"] for secret in secrets]


def test_a_model_that_writes_beside_itself_is_told_where_it_can(workshop):
    job = _submit(workshop, "writing", model_params={"notes": "/model_zoo/notes.txt"})
    status = job.until(lambda s: s.phase is JobPhase.FAILED)
    assert f"{READ_ONLY}: '/model_zoo/notes.txt' (/model_zoo/surroundings.py:" in status.message
    assert "write to /tmp, or what is to last below the mount_path of a --volume" in status.message
