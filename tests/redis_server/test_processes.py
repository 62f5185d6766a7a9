"""The process of a job's own Redis is one of the job's, whoever else is left."""

import contextlib
import re

import psutil
import pytest
from support.gate import Gate
from support.gated_rows import gated_spec
from support.local_job import LocalJob
from support.local_jobs import eventually

from elastic.redis_server.program import can_keep_environment
from elastic.spec.roles import REDIS


def test_a_redis_that_has_outlived_all_others_ends_with_its_job(tmp_path):
    gate = Gate(tmp_path / "gate")
    with LocalJob(gated_spec(gate, 0, embedding_store="redis"), tmp_path) as job, gate:
        job.wait_until(lambda status: status.progress.records_done)
        server = psutil.Process(job.pids(REDIS)[0])
        # Whoever is left may start others again, until nobody is.
        while others := [each for each in job.processes() if each != server]:
            for each in others:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
        assert job.processes() == [server]
        job.platform.kill(job.spec.job_name, 60.0)
        eventually(lambda: not server.is_running())


def test_a_resumed_job_has_no_rows_of_the_run_before_in_its_redis(tmp_path):
    gate = Gate(tmp_path / "gate")
    gate.open()
    for num_epochs in (1, 2):
        settings = {"num_epochs": num_epochs, "resume": num_epochs > 1}
        spec = gated_spec(gate, 0, embedding_store="redis").model_copy(update=settings)
        with LocalJob(spec, tmp_path) as job:
            job.succeed()
            run = job.directory.submission().uid
            [kept] = job.directory.replica_paths()
        written = b"".join(path.read_bytes() for path in kept.rglob("*.aof"))
        runs = set(re.findall(rb"job/([0-9a-f-]+)", written))
        assert runs == {run.encode()}


@pytest.mark.parametrize(
    ("said", "can"),
    [
        ("Redis server v=6.0.16 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64", False),
        ("Redis server v=6.2.7 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64", True),
        ("Valkey server v=9.1.2 sha=00000000:1 malloc=libc bits=64", True),
        ("", False),
    ],
)
def test_servers_that_are_too_old_to_be_told_are_not(said, can, tmp_path):
    program = tmp_path / "redis-server"
    program.write_text(f"#!/bin/sh\necho '{said}'\n")
    program.chmod(0o755)
    assert can_keep_environment(str(program)) is can
