"""Real jobs, of which nothing outlives its test."""

import pytest
from support.local_jobs import Jobs

from elastic.platforms.base import ReplicaId


@pytest.fixture
def jobs(tmp_path):
    jobs = Jobs(tmp_path)
    yield jobs
    jobs.end_all()


@pytest.fixture
def worker():
    return ReplicaId("worker", 0, 1)
