"""The master's calls of a parameter server that goes away."""

import asyncio

import grpc
import numpy as np

from elastic.rpc.server import SERVER_OPTIONS, ServerHandler
from elastic.rpc.server_client import AsyncServerClient, LoadedShare, ServerAwayError

TOKEN = "token"
BIG = {"big": np.ones(8 << 20, np.float32)}
ROUNDS = 25
"""Each of the two statuses of a stream that breaks while it is sent comes in many of them."""


class Leaver:
    """A server that stops in the middle of what it is sent."""

    def __init__(self):
        self.has_begun = asyncio.Event()

    async def load(self, header, chunks):
        await anext(chunks)
        self.has_begun.set()
        await asyncio.Event().wait()

    stage = pull = commit = copy = leave = put_rows = read_rows = scan_rows = None


def share():
    return LoadedShare("era", 1, BIG, BIG, {}, {}, {}, 0, is_synchronous=True)


async def outcome():
    """What comes of a load that its server leaves in the middle."""
    leaver = Leaver()
    server = grpc.aio.server(options=SERVER_OPTIONS)
    server.add_generic_rpc_handlers((ServerHandler(leaver, TOKEN),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    client = AsyncServerClient(f"127.0.0.1:{port}", TOKEN)
    loading = asyncio.create_task(client.load(share()))
    await leaver.has_begun.wait()
    await server.stop(None)
    [error] = await asyncio.gather(loading, return_exceptions=True)
    await client.close()
    return type(error)


def test_a_server_that_goes_in_the_middle_of_a_load_is_away():
    async def scenario():
        return {await outcome() for _ in range(ROUNDS)}

    assert asyncio.run(scenario()) == {ServerAwayError}
