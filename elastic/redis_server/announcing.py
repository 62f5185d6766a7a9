"""Tells the master where the job's Redis is, for as long as it answers."""

import logging
import os
import secrets
import signal
import threading
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

import redis

from elastic.errors import RpcError, SupersededError
from elastic.platforms.surroundings import Surroundings
from elastic.policy.replicas import ReplicaId
from elastic.redis_server.encrypting import encrypt
from elastic.rows.redis_link import connect
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.client import MasterClient
from elastic.spec.redis_url import RedisAddress
from elastic.spec.roles import REDIS

log = logging.getLogger(__name__)

ANSWER_S: Final = 5.0
LOOK_S: Final = 0.2
"""How often is looked whether the server is there, or answers at last."""


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
