"""Namespaces of a real cluster, of which none outlives its tests."""

import secrets

import pytest
from support.accounts import act_as
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
        return act_as(jobs.cluster, jobs.namespace, account, tmp_path)

    return make
