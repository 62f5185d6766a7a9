"""The controller as a cluster runs it: installed by one command, elected, replaced when killed."""

import os
import subprocess
import time
from pathlib import Path

import pytest
from support.cluster import (
    KUBECONFIG,
    eventually,
    exists,
    make_namespace,
    needs_cluster,
    open_cluster,
    remove_namespace,
)

import elastic
from elastic.cli.main import main
from elastic.platforms.kubernetes.api.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    DEPLOYMENTS,
    LEASES,
    PODS,
)

pytestmark = needs_cluster

ROOT = Path(elastic.__file__).parents[1]
SELECTED = {"labelSelector": "elastic-component=controller"}


@pytest.fixture(scope="module")
def image():
    """The engine that the node runs has it, under a name of this checkout's own."""
    build = [ROOT / "images" / "build_all.sh", "--only", "controller", "--base", "elastic-base:ci"]
    subprocess.run(build, check=True, capture_output=True)
    name = f"elastic-test-controller:{os.getpid()}"
    subprocess.run(["docker", "tag", "elastic:controller", name], check=True)
    yield name
    subprocess.run(["docker", "rmi", "--force", name], check=True, capture_output=True)


@pytest.fixture(scope="module")
def cluster():
    return open_cluster()


@pytest.fixture
def namespace(cluster):
    name = make_namespace(cluster, "controller")
    yield name
    remove_namespace(cluster, name)
    for resource in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS):
        cluster.delete(resource.path(None, f"elastic-controller-{name}"))


def install(namespace, *flags):
    return main(["install", "--controller", f"--kubeconfig={KUBECONFIG}", "-n", namespace, *flags])


def pods(cluster, namespace):
    """Those that are ready, by their names."""
    found = cluster.get(PODS.path(namespace), SELECTED)["items"]
    return {
        pod["metadata"]["name"]
        for pod in found
        if "deletionTimestamp" not in pod["metadata"]
        and {"type": "Ready", "status": "True"}.items()
        <= next(
            (c for c in pod["status"].get("conditions", []) if c["type"] == "Ready"), {}
        ).items()
    }


def leader(cluster, namespace):
    """The name of the pod that acts."""
    lease = exists(cluster, LEASES.path(namespace, "elastic-controller"))
    holder = (lease or {}).get("spec", {}).get("holderIdentity")
    # A host name, which is that of the pod, and what tells its processes apart.
    return holder and holder.rpartition("-")[0]


def test_two_replicas_start_with_their_rights_and_one_takes_over(cluster, namespace, image, capsys):
    """Two pods start, one of them again, and a lease runs out."""
    assert install(namespace, f"--image={image}") == 0
    capsys.readouterr()
    assert install(namespace, f"--image={image}") == 0
    *lines, _ = capsys.readouterr().out.splitlines()
    assert {line.rpartition(": ")[2] for line in lines} == {"unchanged"}
    eventually(lambda: len(pods(cluster, namespace)) == 2, 120.0)
    first = eventually(lambda: leader(cluster, namespace))
    assert first in pods(cluster, namespace)
    log = PODS.path(namespace, first, "log")
    lines = [line.decode() for line in cluster.lines(log, {})]
    assert not [line for line in lines if "Traceback" in line or "not permitted" in line], lines
    cluster.delete(PODS.path(namespace, first), grace_s=0)
    killed_s = time.monotonic()
    eventually(lambda: leader(cluster, namespace) not in (None, first))
    assert time.monotonic() - killed_s <= 15.0
    eventually(lambda: len(pods(cluster, namespace)) == 2, 120.0)
    deployment = DEPLOYMENTS.path(namespace, "elastic-controller")
    # Its own controller sees the pods a moment later.
    eventually(lambda: cluster.get(deployment)["status"].get("readyReplicas") == 2)
