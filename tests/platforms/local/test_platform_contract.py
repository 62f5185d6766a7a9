"""`LocalPlatform` keeps what users may rely on everywhere."""

import pytest
from support.jobs_contract import MAX_WORKERS, MIN_WORKERS, PlatformContract
from support.local_jobs import Jobs

from elastic.platforms.base import ReplicaId
from elastic.platforms.local.processes import has_master, has_supervisor


class LocalHarness:
    """Every worker of every job runs until it is ended."""

    def __init__(self, jobs):
        self.jobs = jobs
        self.platform = jobs.platform()
        for index in range(MAX_WORKERS):
            jobs.arrange(ReplicaId("worker", index, 1), "run")

    def submit(self, job_name, does, **settings):
        size = {"num_workers": f"{MIN_WORKERS}:{MAX_WORKERS}"}
        self.jobs.submit(job_name, does, **size | settings)

    def start_worker(self, job_name):
        """The master does."""

    def life(self, job_name):
        # Further workers may just be started, as the job was asked for more of them.
        pids = {m.pid for m in self.jobs.members(job_name) if m.replica and m.replica.index == 0}
        return self.jobs.directory(job_name).submission().uid, pids

    def runs(self, job_name):
        directory = self.jobs.directory(job_name)
        # One that is just leaving shows no environment, but has its lock.
        has_lock = has_supervisor(directory) or has_master(directory)
        return has_lock or bool(self.jobs.members(job_name))

    def traces(self, job_name):
        # The lock of a name outlives its jobs.
        paths = (self.jobs.home / "jobs").glob(f"*{job_name}*")
        return [path.name for path in paths if path.name != f".{job_name}.lock"]


@pytest.fixture(scope="module")
def harness(tmp_path_factory):
    jobs = Jobs(tmp_path_factory.mktemp("jobs"))
    yield LocalHarness(jobs)
    jobs.end_all()


class TestLocalPlatform(PlatformContract):
    pass
