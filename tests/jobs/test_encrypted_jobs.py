"""Whole jobs of processes that encrypt their calls, and what others on the network see of them."""

import contextlib
import socket
import ssl

import pytest
from support.datasets import prepared_dir
from support.gate import Gate
from support.local_job import LocalJob, end_and_wait, make_spec
from support.statuses import each_epoch
from support.thread_job import ZOO

from elastic.errors import RpcError
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.client import MasterClient

NUM_RECORDS = 101
NUM_EPOCHS = 2


def spec_of(gate, **settings):
    data = prepared_dir("counting", num_records=NUM_RECORDS) / "train.npz"
    params = {"num_records": NUM_RECORDS, "gate": str(gate.folder), "free_records": NUM_RECORDS}
    return make_spec(
        "spread_counting_torch.CustomModel",
        data,
        model_zoo=str(ZOO),
        model_params=params,
        num_epochs=NUM_EPOCHS,
        num_workers=2,
        tls=True,
        **settings,
    )


def register(address, token, certificate):
    """Register as the newest launch of a worker, without any patience."""
    client = MasterClient(lambda: address, token, 0.0, certificate=certificate)
    with contextlib.closing(client):
        client.register(pb.RegisterRequest(worker_index=0, launch=9))


def shown_certificate(address):
    """What whoever listens there shows to anybody."""
    host, port = address.split(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((host, int(port))) as plain,
        context.wrap_socket(plain) as wrapped,
    ):
        return ssl.DER_cert_to_PEM_cert(wrapped.getpeercert(binary_form=True))


def told_by(job):
    """All that a job writes for others, and what is seen of its processes."""
    secret = (job.directory.key_path, job.directory.token_path)
    files = [p for p in job.directory.path.rglob("*") if p.is_file() and p not in secret]
    processes = [(each.cmdline(), each.environ()) for each in job.processes()]
    return b"".join(path.read_bytes() for path in files) + str(processes).encode()


@pytest.mark.parametrize("num_ps", [0, 2])
def test_every_record_counts_once_though_the_master_dies(tmp_path, num_ps):
    gate = Gate(tmp_path / "gate")
    with LocalJob(spec_of(gate, num_ps=num_ps), tmp_path) as job, gate:
        job.wait_until(lambda status: status.progress.records_done >= NUM_RECORDS)
        address, token = job.directory.address(), job.directory.token()
        certificate = job.directory.certificate()
        assert shown_certificate(address) == certificate.chain
        # In clear the token opens nothing.
        with pytest.raises(RpcError, match="the master was away"):
            register(address, token, None)
        with pytest.raises(RpcError, match="UNAUTHENTICATED"):
            register(address, "another", certificate)
        told = told_by(job)
        for line in certificate.key.splitlines()[1:-1]:
            assert line.encode() not in told
        assert token.encode() not in told
        end_and_wait(job.pids("master")[0])
        gate.open()
        status = job.succeed()
        counts = {name: set(array.tolist()) for name, array in job.parameters().items()}
    assert counts == {f"parts.{part}": {float(NUM_EPOCHS)} for part in range(3)}
    assert each_epoch(status) == [(NUM_RECORDS, NUM_RECORDS, 0)] * NUM_EPOCHS
    assert (status.master_restarts, status.workers_lost) == (1, 0)
