"""A gradient pushed until it is applied, against one raw TCP stream; encrypted, and rounded."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from benchmarks.master_process import CERTIFICATE, TOKEN
from benchmarks.measure import Bar, Ratio, Series, take_turns
from benchmarks.models.dense_torch import NUM_TENSORS, WIDTH
from benchmarks.processes import Server
from benchmarks.sizes import Size
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.client import MasterClient, Session
from elastic.rpc.layout import Array
from elastic.spec.values import Certificate

BAR: Final = Bar(first=0.3, goal=0.8)
PATIENCE_S: Final = 5.0

Pair: TypeAlias = tuple[tuple[float, ...], tuple[float, ...]]
"""What was measured of two ways."""


@dataclass(slots=True)
class Master:
    """A master, and its version, which the pushes of all its workers raise."""

    process: Server
    certificate: Certificate | None = None
    version: int = 0


class Pusher:
    """One worker that reports the same gradient again and again."""

    def __init__(
        self,
        master: Master,
        index: int,
        gradients: dict[str, Array],
        *,
        share_memory: bool = False,
        narrows: bool = False,
    ) -> None:
        self._narrows = narrows
        address: str = master.process.ready["address"]
        self._client = MasterClient(
            lambda: address, TOKEN, PATIENCE_S, share_memory, certificate=master.certificate
        )
        self._gradients = gradients
        self._master = master
        request = pb.RegisterRequest(worker_index=index, launch=1)
        self._session: Session = self._client.register(request)
        if self._session.shares_memory != share_memory:
            raise RuntimeError("this machine cannot share memory between processes")
        # Reports speak of the tensors of the model that was pulled.
        self._client.get_model(self._session, None)
        self._task = self._client.get_task(self._session.key).task
        self._next = self._task.start
        self._sequence = 0

    def gb_per_s(self, num_pushes: int) -> float:
        """Gigabytes of gradient a second, each push to its reply."""
        size_bytes = sum(array.nbytes for array in self._gradients.values())
        began_s = time.perf_counter()
        for _ in range(num_pushes):
            self._push()
        return num_pushes * size_bytes / (time.perf_counter() - began_s) / 1e9

    def cpu_s_per_gb(self, num_pushes: int) -> float:
        """Seconds of processor time a gigabyte, of this process and of the master."""
        size_bytes = sum(array.nbytes for array in self._gradients.values())
        process = self._master.process
        began_s = time.process_time() + process.cpu_s()
        for _ in range(num_pushes):
            self._push()
        return (time.process_time() + process.cpu_s() - began_s) / (num_pushes * size_bytes / 1e9)

    def close(self) -> None:
        self._client.close()

    def _push(self) -> None:
        self._sequence += 1
        header = pb.GradientHeader(
            sequence=self._sequence,
            task_id=self._task.task_id,
            attempt=self._task.attempt,
            start=self._next,
            end=self._next + 1,
            model_version=self._master.version,
        )
        self._next += 1
        reply = self._client.report_gradient(
            self._session, header, self._gradients, {}, narrows=self._narrows
        )
        assert reply.verdict == pb.ReportGradientReply.VERDICT_ACCEPTED
        self._master.version = reply.model_version


class TcpStream:
    """The bytes of a gradient through one socket, until the other process has them all."""

    def __init__(self, port: int, size_bytes: int) -> None:
        self._payload = np.ones(size_bytes, np.uint8).data
        self._socket = socket.create_connection(("127.0.0.1", port))

    def gb_per_s(self, num_pushes: int) -> float:
        """Gigabytes a second, each run to its answer."""
        began_s = time.perf_counter()
        for _ in range(num_pushes):
            self._socket.sendall(self._payload)
            self._socket.recv(1)
        return num_pushes * len(self._payload) / (time.perf_counter() - began_s) / 1e9

    def close(self) -> None:
        self._socket.close()


def run(size: Size) -> list[Ratio]:
    """The path over memory that both processes map, and that of chunks, in clear and by TLS."""
    rows = size.payload_mb * 10**6 // (4 * NUM_TENSORS * WIDTH)
    gradients = {f"matrices.{i}": np.ones((rows, WIDTH), np.float32) for i in range(NUM_TENSORS)}
    size_bytes = sum(array.nbytes for array in gradients.values())
    with ExitStack() as stack:
        # A worker has one long task.
        own, encrypted, by_grpc, encrypted_by_grpc = (
            Master(
                stack.enter_context(
                    Server(
                        "benchmarks.master_process",
                        *("--payload_mb", size.payload_mb, "--num_tasks", 3),
                        *("--records_per_task", 10**6, *flags),
                    )
                ),
                CERTIFICATE if "--encrypts" in flags else None,
            )
            for flags in ((), ("--encrypts",), ("--by_grpc",), ("--encrypts", "--by_grpc"))
        )
        sink = stack.enter_context(Server("benchmarks.tcp_sink", size_bytes))
        tcp = TcpStream(sink.ready["port"], size_bytes)
        stack.callback(tcp.close)
        shared = Pusher(own, 0, gradients, share_memory=True)
        others = [
            Pusher(own, 1, gradients),
            Pusher(encrypted, 1, gradients),
            Pusher(own, 2, gradients, narrows=True),
            Pusher(encrypted, 2, gradients, narrows=True),
            Pusher(by_grpc, 1, gradients),
            Pusher(encrypted_by_grpc, 1, gradients),
        ]
        for pusher in (shared, *others):
            stack.callback(pusher.close)
        cpu_s = take_turns(
            size.rounds, *(partial(path.cpu_s_per_gb, size.num_pushes) for path in others)
        )
        paths: list[Pusher | TcpStream] = [shared, tcp, others[0], tcp, *others[1:]]
        by_memory, tcp_1, clear, tcp_2, *rest = take_turns(
            size.rounds, *(partial(path.gb_per_s, size.num_pushes) for path in paths)
        )
    clear_s, tls_s, rounded_s, rounded_tls_s, grpc_s, grpc_tls_s = cpu_s
    tls, rounded, rounded_tls, grpc_clear, grpc_tls = rest
    what = f"push + apply, {size.payload_mb} MB"
    return [
        _ratio(f"{what}, shared memory", by_memory, tcp_1),
        _ratio(f"{what}, sockets", clear, tcp_2),
        *_compared(
            f"{what}, sockets, TLS", "encrypted", "in clear", (tls, clear), (tls_s, clear_s)
        ),
        *_compared(
            f"{what}, sockets, bfloat16",
            "--wire_dtype bfloat16, of float32",
            "--wire_dtype float32",
            (rounded, clear),
            (rounded_s, clear_s),
        ),
        *_compared(
            f"{what}, sockets, TLS, bfloat16",
            "--wire_dtype bfloat16, of float32",
            "--wire_dtype float32",
            (rounded_tls, tls),
            (rounded_tls_s, tls_s),
        ),
        *_compared(f"{what}, in clear", "sockets", "gRPC", (clear, grpc_clear), (clear_s, grpc_s)),
        *_compared(f"{what}, TLS", "sockets", "gRPC", (tls, grpc_tls), (tls_s, grpc_tls_s)),
    ]


def _compared(
    what: str, one: str, other: str, gb_per_s: Pair, cpu_s_per_gb: Pair
) -> Iterator[Ratio]:
    """Two ways, by their speed and by the processor time that they take."""
    for kind, unit, (first, second) in (
        ("", "GB/s", gb_per_s),
        (", processor time", "s/GB", cpu_s_per_gb),
    ):
        yield Ratio(f"{what}{kind}", Series(one, unit, first), Series(other, unit, second), None)


def _ratio(name: str, pushed: tuple[float, ...], tcp: tuple[float, ...]) -> Ratio:
    return Ratio(
        name,
        Series("ReportGradient, torch SGD applied", "GB/s", pushed),
        Series("one TCP stream", "GB/s", tcp),
        BAR,
    )
