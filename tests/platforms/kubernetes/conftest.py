"""Namespaces of a real cluster, of which none outlives its tests."""

import secrets
from pathlib import Path

import pytest
import yaml
from support.cluster import KUBECONFIG
from support.kubernetes_jobs import ClusterJobs, build_scripted_image


@pytest.fixture(scope="session")
def scripted_image():
    build_scripted_image()


@pytest.fixture(scope="module")
def job_namespace(scripted_image):
    jobs = ClusterJobs.create()
    yield jobs
    jobs.delete()


@pytest.fixture
def jobs(job_namespace):
    """A namespace for the jobs of one module; none of them runs on when its test is over."""
    yield job_namespace
    job_namespace.end_pods()


@pytest.fixture
def job_name():
    """A name that no other test's job has."""
    return f"job-{secrets.token_hex(3)}"


@pytest.fixture
def kubeconfig_of(jobs, tmp_path):
    """Have a service account in the namespace; gives the kubeconfig of who acts as it."""

    def make(account):
        if jobs.get("serviceaccounts", account) is None:
            jobs.create_object("serviceaccounts", {"metadata": {"name": account}})
        token = _token_of(jobs, account)
        config = yaml.safe_load(Path(KUBECONFIG).read_text())
        (cluster,) = config["clusters"]
        context = {"cluster": cluster["name"], "user": account, "namespace": jobs.namespace}
        config["users"] = [{"name": account, "user": {"token": token}}]
        config["contexts"] = [{"name": account, "context": context}]
        config["current-context"] = account
        path = tmp_path / f"{account}.yaml"
        path.write_text(yaml.safe_dump(config))
        return path

    return make


def _token_of(jobs, account):
    """A token for the account, by the API that every version has."""
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {},
        "spec": {"expirationSeconds": 3600},
    }
    path = f"/api/v1/namespaces/{jobs.namespace}/serviceaccounts/{account}/token"
    return jobs.cluster.create(path, request)["status"]["token"]
