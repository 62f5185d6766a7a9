"""Strangers on the master's port do not disturb a job."""

import random
import socket
from pathlib import Path

from support.thread_job import ThreadJob, obedient_spec, write_records

from elastic.master.cuts import read_cut
from elastic.spec.status import JobPhase

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\x04\0\0\0\0\0"
NUM_CONNECTIONS = 150


def _noise(rng):
    """Bytes that are none of the protocol, some of which begin as if they were."""
    begin = rng.choice([b"", PREFACE, PREFACE + SETTINGS, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"])
    return begin + rng.randbytes(rng.choice([0, 1, 9, 100, 5000, 100_000]))


def test_random_bytes_on_the_port_change_nothing(tmp_path):
    data = write_records(tmp_path / "train.npz", num_records=400, delay_ms=3)
    rng = random.Random(0)
    with ThreadJob(obedient_spec(data, 400, num_workers="2"), tmp_path / "cuts") as job:
        while not job.runner.addresses:
            job.runner.wait(0.02)
        host, _, port = job.runner.addresses[-1].rpartition(":")
        open_sockets = []
        for _ in range(NUM_CONNECTIONS):
            connection = socket.create_connection((host, int(port)), timeout=10)
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
        assert not job.runner.statuses[-1].phase.is_final, "the job ran while the noise was made"
        status = job.wait()
        for connection in open_sockets:
            connection.close()
    assert status.phase is JobPhase.SUCCEEDED, status
    assert status.workers_lost == 0
    counts = read_cut(Path(status.checkpoint)).parameters["counts"]
    assert counts.tolist() == [1.0] * 400
