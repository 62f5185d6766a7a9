"""Strangers on the master's port do not disturb a job."""

import random
import socket
from pathlib import Path

from support.gate import Gate
from support.thread_job import ThreadJob, held_spec, write_records

from elastic.checkpoints.cuts import read_cut
from elastic.spec.status import JobPhase

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\x04\0\0\0\0\0"
NUM_CONNECTIONS = 150


def _noise(rng):
    """Bytes that are none of the protocol, some of which begin as if they were."""
    begin = rng.choice([b"", PREFACE, PREFACE + SETTINGS, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"])
    return begin + rng.randbytes(rng.choice([0, 1, 9, 100, 5000, 100_000]))


def test_random_bytes_on_the_port_change_nothing(tmp_path):
    data = write_records(tmp_path / "train.npz", num_records=400, delay_ms=1)
    gate = Gate(tmp_path / "gate")
    rng = random.Random(0)
    with ThreadJob(held_spec(data, gate, 400, num_workers="2"), tmp_path / "cuts") as job, gate:
        job.wait_until(lambda _: job.runner.addresses)
        host, _, port = job.runner.addresses[-1].rpartition(":")
        open_sockets = []
        for number in range(NUM_CONNECTIONS):
            # The job works while the noise is made, and cannot end before.
            for worker in (0, 1):
                gate.allow(worker, 1 + number // 10)
            connection = socket.create_connection((host, int(port)), timeout=60)
            try:
                connection.sendall(_noise(rng))
            except OSError:
                # The server has hung up on us, as it should.
                connection.close()
                continue
            # Half of them stay and say nothing more.
            open_sockets.append(connection)
            if rng.random() < 0.5:
                open_sockets.pop().close()
        job.wait_until(lambda statuses: statuses[-1].progress.records_done > 0)
        gate.open()
        status = job.wait()
        for connection in open_sockets:
            connection.close()
    assert status.phase is JobPhase.SUCCEEDED, status
    assert status.workers_lost == 0
    counts = read_cut(Path(status.checkpoint)).parameters["counts"]
    assert counts.tolist() == [1.0] * 400
