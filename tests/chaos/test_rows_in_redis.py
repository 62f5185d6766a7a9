"""The counting model with its rows in the job's own Redis: each record counts once."""

import shutil
import signal

import pytest
from support.gate import Gate
from support.gated_rows import NUM_EPOCHS, NUM_RECORDS, gated_spec, max_workers_of
from support.local_job import LocalJob, break_at_random
from support.redis_servers import lose_end
from support.rows import check_counts
from support.seeds import drawn
from support.statuses import each_epoch

from elastic.platforms.base import ReplicaId
from elastic.spec.roles import REDIS

NUM_SEEDS = 20
NUM_DRAWN = 1
DISK = "redis and its disk"
END = "redis and the end of its file"


class RedisJob(LocalJob):
    """A job of which the Redis can be killed with what it has written, without the last of it, or
    without anything.
    """

    def pids(self, role):
        return super().pids(REDIS if role in (DISK, END) else role)

    def kill_one(self, role, index, *signals):
        if role not in (DISK, END):
            return super().kill_one(role, index, *signals)
        # As it is there before the end is noticed, so that no later launch reads half of it.
        kept = self.directory.kept_path(ReplicaId(REDIS, index, 1))
        if role == DISK:
            shutil.rmtree(kept / "appendonlydir", ignore_errors=True)
        elif super().kill_one(REDIS, index, signal.SIGSTOP):
            lose_end(kept, self.spec.seed % 7 / 20)
        return super().kill_one(REDIS, index, *signals)


def _seeds():
    now = drawn(range(NUM_SEEDS), NUM_DRAWN, "rows/redis")
    for seed in range(NUM_SEEDS):
        yield pytest.param(seed, marks=[] if seed in now else [pytest.mark.soak])


@pytest.mark.parametrize("seed", list(_seeds()))
def test_rows_count_once_whatever_dies(seed, tmp_path):
    gate = Gate(tmp_path / "gate")
    spec = gated_spec(
        gate,
        seed,
        embedding_store="redis",
        num_ps=seed % 2,
        tls=seed % 3 == 0,
    )
    with RedisJob(spec, tmp_path) as job, gate:
        first = [(END, DISK), (REDIS, END), (DISK, "master")][seed % 3]
        others = (REDIS, DISK, END, "worker", "master", "scale")
        done = break_at_random(job, gate, seed, 5, max_workers_of(seed), first, others)
        status = job.succeed()
        cut = job.cut()
        job.wait_until_gone()
    check_counts(cut, NUM_RECORDS, NUM_EPOCHS, done)
    assert each_epoch(status) == [(NUM_RECORDS, NUM_RECORDS, 0)] * NUM_EPOCHS
