"""`KubernetesPlatform` on a real cluster keeps what users may rely on everywhere."""

import pytest
from support.cluster import needs_cluster
from support.jobs_contract import MAX_WORKERS, MIN_WORKERS, PlatformContract

pytestmark = needs_cluster


class ClusterHarness:
    """A master here starts no worker: the test does it in its place."""

    def __init__(self, jobs):
        self.jobs = jobs
        self.platform = jobs.platform

    def submit(self, job_name, does, **settings):
        size = {"num_workers": f"{MIN_WORKERS}:{MAX_WORKERS}"}
        self.jobs.submit(job_name, does, **size | settings)

    def start_worker(self, job_name):
        self.jobs.start_worker(0, job_name)

    def life(self, job_name):
        objects = self.jobs.objects(job_name)
        pods = [pod["metadata"] for pod in objects.pods()]
        return objects.submission().uid, {p["uid"]: p.get("deletionTimestamp") for p in pods}

    def runs(self, job_name):
        phases = {pod["status"].get("phase") for pod in self.jobs.objects(job_name).pods()}
        return not phases <= {"Succeeded", "Failed"}

    def traces(self, job_name):
        return [name for name in self.jobs.belongings() if job_name in name]


@pytest.fixture(scope="module")
def harness(job_namespace):
    return ClusterHarness(job_namespace)


class TestKubernetesPlatform(PlatformContract):
    pass
