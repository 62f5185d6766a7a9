"""The life of a parameter server: it listens, says so to the master, and is loaded by it."""

import asyncio
import logging
from typing import Final

import grpc

from elastic.frameworks import load_framework
from elastic.policy.replicas import ReplicaId
from elastic.ps.servicer import BuildShare, ServerServicer
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.channels import add_port
from elastic.rpc.client import MasterClient
from elastic.rpc.network import SocketListeners
from elastic.rpc.server import SERVER_OPTIONS, ServerHandler
from elastic.spec.certificate import Certificate
from elastic.spec.job import JobSpec
from elastic.spec.model_def import load_model_def

log = logging.getLogger(__name__)

STOP_S: Final = 0.5


def share_builder(spec: JobSpec) -> BuildShare:
    """Import the user's module, and give what makes its optimizer over a share.

    Raises:
        UserError: The module cannot be used here.
    """
    model_def = load_model_def(spec.model_zoo, spec.model_def, spec.symbol_names())
    framework = load_framework(model_def.framework)
    return lambda whole, parameters, state, total_steps: framework.build_share(
        model_def, whole, parameters, state, total_steps
    )


class Serving:
    """One process that serves a share, from its first call to its end."""

    def __init__(
        self,
        client: MasterClient,
        replica: ReplicaId,
        life: str,
        token: str,
        host: str,
        build_share: BuildShare,
        certificate: Certificate | None = None,
    ) -> None:
        """Keep the parts.

        Args:
            client: Connection to the master.
            replica: Which launch of which server this is.
            life: Tells this process from any other, of the same launch too.
            token: The job's.
            host: Address that workers and the master reach this process by.
            build_share: Makes the user's optimizer over a share.
            certificate: The job's; None where its calls go in clear.
        """
        self._client = client
        self._replica = replica
        self._life = life
        self._token = token
        self._certificate = certificate
        self._host = host
        self._listeners = SocketListeners()
        self._servicer = ServerServicer(build_share, self._listeners.proof)

    async def run(self) -> None:
        """Serve until the job needs this server no more.

        Raises:
            SupersededError: A newer launch of this server has its place.
            RpcError: The master stayed away for too long.
        """
        server = grpc.aio.server(options=SERVER_OPTIONS)
        handler = ServerHandler(self._servicer, self._token)
        server.add_generic_rpc_handlers((handler,))
        port = add_port(server, f"{self._bracketed()}:0", self._certificate)
        await server.start()
        await self._listeners.start(handler, self._token, self._certificate, self._host)
        log.info("serving at %s:%d", self._host, port)
        announcing = asyncio.ensure_future(self._announce(f"{self._bracketed()}:{port}"))
        leaving = asyncio.ensure_future(self._servicer.left.wait())
        try:
            await asyncio.wait({announcing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if leaving.done():
                log.info("finished: the job has its end")
            else:
                await announcing
        finally:
            announcing.cancel()
            leaving.cancel()
            # What is being answered, such as the word to leave, goes out.
            await asyncio.gather(server.stop(STOP_S), self._listeners.stop(STOP_S))

    async def _announce(self, address: str) -> None:
        """Say again and again that this process is there: also to a master that has restarted."""
        request = pb.RegisterServerRequest(
            server_index=self._replica.index,
            launch=self._replica.launch,
            address=address,
            life=self._life,
        )
        while True:
            interval_s = await asyncio.to_thread(self._client.register_server, request)
            await asyncio.sleep(interval_s)

    def _bracketed(self) -> str:
        return f"[{self._host}]" if ":" in self._host else self._host
