"""What somebody who listens on the network of the pods learns of a job."""

import re

import pytest
from support.cluster import needs_cluster
from support.whole_jobs import Workshop, secret_of, shown_certificate
from support.wire import Wire

from elastic.platforms.kubernetes.objects import names

pytestmark = needs_cluster

NUM_RECORDS = 100
PORTS = (names.MASTER_PORT, names.CALLS_PORT)
HANDSHAKE = b"\x16\x03"
"""Begins each connection by TLS, from both ends."""


@pytest.fixture(scope="module")
def workshop():
    workshop = Workshop(NUM_RECORDS, "wire")
    yield workshop
    workshop.close()


def submit(workshop, name, tls):
    return workshop.submit(
        name,
        tls=tls,
        model_def="counted_rows.CustomModel",
        model_params={"num_records": NUM_RECORDS, "delay_ms": 400},
        num_workers="1",
        num_ps=1,
        ps_resource_request="cpu=0.05,memory=300Mi",
        ps_resource_limit="cpu=1,memory=600Mi",
    )


def heard(workshop, name, tls, look=lambda job, secret: None):
    """All that goes to and from a master's ports while its job works, first bytes first.

    Returns:
        What each connection carried, in each direction, by port, and the Secret of the job.
    """
    with Wire(*PORTS) as wire:
        job = submit(workshop, name, tls)
        job.until(lambda s: s.progress.model_version > 2)
        secret, address = secret_of(job), job.pod("master")["status"]["podIP"]
        look(job, secret)
        job.hurry()
        job.succeed()
        said = {
            port: [
                b"".join(payloads)
                for heard in (wire.said_to, wire.said_by)
                for payloads in heard(address, port).values()
            ]
            for port in PORTS
        }
    return said, secret


def check_certificates(job, secret):
    master = job.pod("master")["status"]["podIP"]
    for port in PORTS:
        assert shown_certificate(master, port) == secret["tls.crt"]
    lines = [line.text for line in job.platform.logs(job.name, ["ps-0"], False, 50)]
    [(host, port)] = re.findall(r"serving at (\S+):(\d+)", "\n".join(lines))
    assert shown_certificate(host, int(port)) == secret["tls.crt"]


def test_nothing_of_a_job_is_in_clear_on_the_wire(workshop):
    said, secret = heard(workshop, "encrypted", None, check_certificates)
    # The worker's, the server's, each both ways; by sockets the worker's alone.
    assert len(said[names.MASTER_PORT]) >= 4
    assert len(said[names.CALLS_PORT]) >= 2
    assert {each[:2] for port in PORTS for each in said[port]} == {HANDSHAKE}
    assert set(secret) == {"token", "tls.crt", "tls.key"}
    everything = b"".join(each for port in PORTS for each in said[port])
    for word in (secret["token"], "authorization", "elastic.v1"):
        assert word.encode() not in everything


def test_without_tls_the_same_ears_hear_the_token(workshop):
    said, secret = heard(workshop, "clear", tls=False)
    assert set(secret) == {"token"}
    for port, word in zip(PORTS, ("Register", "ReportGradient"), strict=True):
        assert HANDSHAKE not in {each[:2] for each in said[port]}
        everything = b"".join(said[port])
        assert secret["token"].encode() in everything
        assert f"/elastic.v1.Master/{word}".encode() in everything
