"""Who answers the calls of a job over all of its beginnings within one life of the master."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeVar

import grpc

from elastic.master.parameters.ring import ServerLife, ServerRing
from elastic.master.parameters.strategy import ParametersLostError
from elastic.master.servicer import HEARTBEAT_S, MasterServicer
from elastic.policy.replicas import ReplicaId
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.wire import CallRefusedError, Chunks, Pieces
from elastic.spec.roles import PS

T = TypeVar("T")

NOT_OPEN: Final = "the job is not ready yet, or goes back to a cut: try again"
FAULTY: Final = "this master has met a fault of its own and ends: try the next one"


class Reception:
    """Implements `MasterService`: passes calls on to the job as it is now.

    While a job that has lost a parameter server goes back to its cut, workers are told to try
    again, and so is everybody whose call belonged to what was before.

    Attributes:
        failure: The first exception in an answer that nobody has foreseen. After it nobody knows
            whether what the master holds is right, so that it must end: the next one goes on from
            the newest cut, and the policy of restarts ends a job that makes no progress so.
        failed: Set when there is one.
    """

    def __init__(
        self, rings: Mapping[str, ServerRing], current_launch: Callable[[ReplicaId], int]
    ) -> None:
        """Begin without a job.

        Args:
            rings: The servers that there are, by their roles.
            current_launch: Gives the newest launch of a replica.
        """
        self._rings = rings
        self._current_launch = current_launch
        self._servicer: MasterServicer | None = None
        self.failure: Exception | None = None
        self.failed = asyncio.Event()

    def open(self, servicer: MasterServicer) -> None:
        """Have workers meet the job."""
        self._servicer = servicer

    def close(self) -> None:
        """Have them wait."""
        self._servicer = None

    async def register(self, request: pb.RegisterRequest) -> pb.RegisterReply:
        """See `MasterServicer`."""
        return await self._pass_on(lambda servicer: servicer.register(request))

    async def heartbeat(self, request: pb.HeartbeatRequest) -> pb.HeartbeatReply:
        """See `MasterServicer`."""
        return await self._pass_on(lambda servicer: servicer.heartbeat(request))

    async def get_task(self, request: pb.GetTaskRequest) -> pb.GetTaskReply:
        """See `MasterServicer`."""
        return await self._pass_on(lambda servicer: servicer.get_task(request))

    async def report_gradient(
        self, header: pb.GradientHeader, chunks: Chunks
    ) -> pb.ReportGradientReply:
        """See `MasterServicer`."""
        return await self._pass_on(lambda servicer: servicer.report_gradient(header, chunks))

    async def report_task_result(
        self, request: pb.ReportTaskResultRequest
    ) -> pb.ReportTaskResultReply:
        """See `MasterServicer`."""
        return await self._pass_on(lambda servicer: servicer.report_task_result(request))

    async def get_model(self, request: pb.GetModelRequest) -> AsyncIterator[pb.ModelChunk | Pieces]:
        """See `MasterServicer`."""
        servicer = self._present()
        with self._refusing():
            async for chunk in servicer.get_model(request):
                self._check(servicer)
                yield chunk

    async def get_rows(self, request: pb.GetRowsRequest) -> AsyncIterator[pb.RowsChunk | Pieces]:
        """See `MasterServicer`."""
        servicer = self._present()
        with self._refusing():
            async for chunk in servicer.get_rows(request):
                self._check(servicer)
                yield chunk

    async def register_server(self, request: pb.RegisterServerRequest) -> pb.RegisterServerReply:
        """A server says that it is there, whether or not there is a job yet."""
        replica = ReplicaId(request.role or PS, request.server_index, request.launch)
        ring = self._rings.get(replica.role)
        if ring is None or not 0 <= replica.index < ring.num_servers:
            raise CallRefusedError(
                grpc.StatusCode.INVALID_ARGUMENT, f"the job has no server {replica.name}"
            )
        newest = self._current_launch(replica)
        if request.launch < newest:
            raise CallRefusedError(
                grpc.StatusCode.ABORTED,
                f"launch {request.launch} of {replica.name} was replaced by {newest}",
            )
        ring.announced(ServerLife(replica, request.life, request.address))
        return pb.RegisterServerReply(heartbeat_interval_s=HEARTBEAT_S)

    # -- inside --------------------------------------------------------------------------------

    async def _pass_on(self, call: Callable[[MasterServicer], Awaitable[T]]) -> T:
        servicer = self._present()
        try:
            with self._refusing():
                return await call(servicer)
        finally:
            self._check(servicer)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Have a caller try again where its call met a fault that is not its own."""
        try:
            yield
        except ParametersLostError as error:
            raise _not_now() from error
        except (CallRefusedError, grpc.aio.BaseError):
            # Of the peer or of the connection to it.
            raise
        except Exception as error:
            self._fail(error)
            raise CallRefusedError(grpc.StatusCode.UNAVAILABLE, FAULTY) from error

    def _fail(self, error: Exception) -> None:
        self.failure = self.failure or error
        self.failed.set()

    def _present(self) -> MasterServicer:
        if self._servicer is None:
            raise _not_now()
        return self._servicer

    def _check(self, servicer: MasterServicer) -> None:
        if self._servicer is not servicer:
            raise _not_now()


def _not_now() -> CallRefusedError:
    return CallRefusedError(grpc.StatusCode.UNAVAILABLE, NOT_OPEN)
