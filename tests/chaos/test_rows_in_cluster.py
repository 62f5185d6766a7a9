"""The counting model with its rows in a Redis Cluster of the user's: each record counts once."""

import pytest
from support.gate import Gate
from support.gated_rows import NUM_EPOCHS, NUM_RECORDS, gated_spec, max_workers_of
from support.local_job import LocalJob, break_at_random
from support.redis_servers import PASSWORD, redis_cluster
from support.rows import check_counts
from support.seeds import drawn
from support.statuses import each_epoch

from elastic.spec.values import PASSWORD_VARIABLE

NUM_SEEDS = 20
NUM_DRAWN = 1
SERVER = "server of the cluster"
DISK = "server of the cluster and its disk"
END = "server of the cluster and the end of its file"


class ClusterJob(LocalJob):
    """A job of which servers of the cluster are killed, and started again."""

    def __init__(self, cluster, spec, home):
        super().__init__(spec, home)
        self._servers = cluster.servers

    def pids(self, role):
        if role in (SERVER, DISK, END):
            return {i: server.pid for i, server in enumerate(self._servers)}
        return super().pids(role)

    def kill_one(self, role, index, *signals):
        if role not in (SERVER, DISK, END):
            return super().kill_one(role, index, *signals)
        server = self._servers[index]
        server.kill()
        if role == DISK:
            server.lose_disk()
        elif role == END:
            server.lose_end(self.spec.seed % 7 / 20)
        server.start()
        return True


def _seeds():
    now = drawn(range(NUM_SEEDS), NUM_DRAWN, "rows/cluster")
    for seed in range(NUM_SEEDS):
        yield pytest.param(seed, marks=[] if seed in now else [pytest.mark.soak])


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)
    with redis_cluster(tmp_path / "cluster") as cluster:
        yield cluster


@pytest.mark.parametrize("seed", list(_seeds()))
def test_rows_count_once_whatever_dies(seed, cluster, tmp_path):
    gate = Gate(tmp_path / "gate")
    spec = gated_spec(
        gate,
        seed,
        embedding_store="redis",
        embedding_redis_url=f"redis://127.0.0.1:{cluster.servers[0].address.port}",
    )
    with ClusterJob(cluster, spec, tmp_path) as job, gate:
        first = [(SERVER, "master"), (DISK, "master"), (END, END)][seed % 3]
        others = (SERVER, DISK, END, "worker", "master", "master", "scale")
        done = break_at_random(job, gate, seed, 5, max_workers_of(seed), first, others)
        status = job.succeed()
        cut = job.cut()
        job.wait_until_gone()
    check_counts(cut, NUM_RECORDS, NUM_EPOCHS, done)
    assert each_epoch(status) == [(NUM_RECORDS, NUM_RECORDS, 0)] * NUM_EPOCHS
    assert [server.ask("DBSIZE") for server in cluster.servers] == [0, 0, 0]
