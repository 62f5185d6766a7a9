"""Parameter servers as pods of the master's, which are killed, deleted and lost with it.

They have the rows of a table as well, since what loses those loses more than parameters.
"""

import pytest
from support.cluster import needs_cluster
from support.rows import check_counts
from support.statuses import each_epoch
from support.whole_jobs import CONTROL, Workshop, is_at_work

from elastic.checkpoints.cuts import read_cut

pytestmark = needs_cluster

NUM_RECORDS = 300
NUM_EPOCHS = 4


@pytest.fixture(scope="module")
def workshop():
    workshop = Workshop(NUM_RECORDS, "servers")
    yield workshop
    workshop.close()


def kinds(status):
    return [event.kind for event in status.events]


def goes_back(job, deed):
    """Do something to a server, and wait until the job is at work with all servers again."""
    before = kinds(job.status()).count("Resumed")
    deed()
    job.until(
        lambda s: (
            kinds(s).count("Resumed") > before
            and all(row.phase == "Running" for row in s.workers)
            and s.phase == "Running"
        )
    )


def test_a_server_is_a_pod_of_the_masters_and_no_loss_of_one_loses_a_record(workshop):
    job = workshop.submit(
        "servers",
        model_def="counted_rows.CustomModel",
        model_params={"num_records": NUM_RECORDS, "delay_ms": 400},
        num_workers="2",
        num_ps=2,
        embedding_store="ps",
        num_epochs=NUM_EPOCHS,
        ps_resource_request="cpu=0.05,memory=300Mi",
        ps_resource_limit="cpu=1,memory=600Mi",
    )
    job.until(lambda s: s.phase == "Running" and s.progress.model_version > 2)
    master, server = job.pod("master"), job.pod("ps-1")
    [owner] = server["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (master["metadata"]["uid"], True)
    [container] = server["spec"]["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "50m", "memory": "300Mi"},
        "limits": {"cpu": "1", "memory": "600Mi"},
    }
    assert "elastic.ps" in container["command"]
    workers = {pod["metadata"]["uid"] for pod in job.worker_pods()}

    goes_back(job, lambda: job.delete_pod(job.pod("ps-1"), 0.0))
    goes_back(job, lambda: job.kill_container(job.pod("ps-0")))
    goes_back(job, job.kill_master)
    assert {pod["metadata"]["uid"] for pod in job.worker_pods()} == workers
    servers = [job.pod(f"ps-{index}") for index in range(2)]
    assert all(map(is_at_work, servers))

    job.hurry()
    status = job.succeed()
    cut = read_cut(workshop.shared / str(status.checkpoint).removeprefix(f"{CONTROL}/"))
    check_counts(cut, NUM_RECORDS, NUM_EPOCHS)
    assert [size.rows for size in status.tables] == [NUM_RECORDS]
    assert each_epoch(status) == [(NUM_RECORDS, NUM_RECORDS, 0)] * NUM_EPOCHS
    launches = {(row.role, row.index): row.launch for row in status.workers}
    assert launches == {("worker", 0): 1, ("worker", 1): 1, ("ps", 0): 2, ("ps", 1): 2}, [
        event.message for event in status.events
    ]
    assert status.master_restarts == 1
    lines = [line.text for line in workshop.platform.logs("servers", ["ps-1"], False, 50)]
    assert any("serving at" in line for line in lines)
    job.leave(60.0)
