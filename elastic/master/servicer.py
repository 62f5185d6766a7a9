"""The protocol's calls, turned into calls of tasks and updates of the job as it is now."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import grpc

from elastic.errors import TrainingError
from elastic.frameworks.base import MetricState
from elastic.master.coordination.rounds import EvaluationRound
from elastic.master.coordination.running import RunningJob
from elastic.master.coordination.sessions import FailureReport, WorkerSession
from elastic.master.coordination.updates import GradientReport
from elastic.master.kinds.one_pass import PredictionRound
from elastic.master.parameters.servers import ServerLife, ServerRing
from elastic.master.parameters.strategy import Incoming, ParametersLostError
from elastic.policy.minibatches import Oddity
from elastic.policy.replicas import ReplicaId
from elastic.policy.tasks.ledger import NoTask
from elastic.policy.tasks.records import Task
from elastic.policy.updates.update_group import Outcome, RefuseStale
from elastic.rows.base import RowGradients, Values
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.layout import Layout, PackedModel, Proof, iter_chunks
from elastic.rpc.rows import (
    RowsError,
    gradients_from_memory,
    gradients_from_proto,
    ids_from_bytes,
    is_one_message,
    lay_rows,
    lay_values,
    reply_chunks,
    wanted_of_proto,
)
from elastic.rpc.server import malformed
from elastic.rpc.wire import (
    CallRefusedError,
    Chunks,
    Pieces,
    encode_data,
    layout_from_proto,
    share_to_proto,
    specs_to_proto,
    task_to_proto,
    tensors_from_proto,
)
from elastic.spec.roles import PS, WORKER

HEARTBEAT_S: Final = 2.0
WAIT_S: Final = 0.05
"""How soon a worker without a task asks again: far below a step, far above a call."""
NOT_OPEN: Final = "the job is not ready yet, or goes back to a cut: try again"
FAULTY: Final = "this master has met a fault of its own and ends: try the next one"

T = TypeVar("T")


class MasterServicer:
    """Implements `MasterService`: checks what peers send, and answers reports once."""

    def __init__(
        self,
        job: RunningJob,
        sample: Task,
        current_launch: Callable[[ReplicaId], int],
        prediction_dir: Path | None = None,
        total_steps: int = 0,
        proof: Proof | None = None,
    ) -> None:
        self._job = job
        self._sample = task_to_proto(sample)
        self._current_launch = current_launch
        self._prediction_dir = prediction_dir
        self._total_steps = total_steps
        self._proof = proof or Proof()

    async def register(self, request: pb.RegisterRequest) -> pb.RegisterReply:
        """Open a session; an older launch of the same index loses its lease."""
        replica = ReplicaId(WORKER, request.worker_index, request.launch)
        newest = self._current_launch(replica)
        if request.launch < newest:
            raise CallRefusedError(
                grpc.StatusCode.ABORTED,
                f"launch {request.launch} of {replica.name} was replaced by {newest}",
            )
        old = self._job.sessions.of(replica)
        if old is not None:
            # Before the new one is there, since both have one name when a process comes again.
            self._job.tasks.lose(old.replica)
        session = self._job.sessions.open(replica, request.pid, request.host)
        reply = pb.RegisterReply(
            session=session.key,
            heartbeat_interval_s=HEARTBEAT_S,
            sample=self._sample,
            total_steps=self._total_steps,
        )
        if self._prediction_dir is not None:
            reply.prediction_dir = str(self._prediction_dir)
        self._proof.give(reply)
        directions = self._job.parameters.directions()
        reply.era = directions.era
        reply.servers.extend(
            share_to_proto(each.share, each.address, each.proof) for each in directions.servers
        )
        return reply

    async def heartbeat(self, request: pb.HeartbeatRequest) -> pb.HeartbeatReply:
        """Note that a worker's process lives."""
        self._session(request.session, is_step=False)
        return pb.HeartbeatReply()

    async def get_task(self, request: pb.GetTaskRequest) -> pb.GetTaskReply:
        """Lease the next range."""
        session = self._session(request.session)
        working_on = request.working_on if request.HasField("working_on") else None
        if working_on is None:
            await self._job.tasks.admit(session)
            # Who was lost meanwhile must get nothing: nobody would take it back.
            session = self._session(request.session)
        task = self._job.tasks.lease(session, working_on)
        if isinstance(task, Task):
            return pb.GetTaskReply(task=task_to_proto(task))
        if task is NoTask.FINISHED:
            return pb.GetTaskReply(finished=True)
        return pb.GetTaskReply(wait_s=WAIT_S)

    async def get_model(self, request: pb.GetModelRequest) -> AsyncIterator[pb.ModelChunk | Pieces]:
        """Send the newest version, if the worker lacks it, or what is the same in all."""
        session = self._session(request.session)
        parameters = self._job.parameters
        if request.frozen:
            values = parameters.model.frozen()
            layout = Layout.of(values)
            yield pb.ModelChunk(header=pb.ModelHeader(state=specs_to_proto(layout.specs)))
            for pieces in iter_chunks(layout, list(values.values())):
                yield encode_data(pieces)
            return
        wanted = request.version if request.HasField("version") else parameters.version
        if request.HasField("have_version") and request.have_version == wanted:
            yield pb.ModelChunk(header=pb.ModelHeader(model_version=wanted, unchanged=True))
            return
        with self._job.sessions.serving(session):
            packed = await self._packed(
                request.session, request.version if request.HasField("version") else None
            )
        if packed is None:
            self._session(request.session)
            raise CallRefusedError(
                grpc.StatusCode.NOT_FOUND, f"version {wanted} of the model is not kept"
            )
        specs, split = packed.layout.specs, packed.num_parameters
        header = pb.ModelHeader(
            model_version=packed.version,
            parameters=specs_to_proto(specs[:split]),
            state=specs_to_proto(specs[split:]),
        )
        if request.shares_memory:
            # One message whatever comes, which a worker receives for less than a stream.
            handle = packed.buffer.handle()
            if handle is not None:
                header.shared.CopyFrom(handle)
            yield pb.ModelChunk(header=header)
            return
        yield pb.ModelChunk(header=header)
        for pieces in iter_chunks(packed.layout, packed.arrays):
            yield encode_data(pieces)

    async def get_rows(self, request: pb.GetRowsRequest) -> AsyncIterator[pb.RowsChunk | Pieces]:
        """Send rows of a table, of the newest version or of one that is kept."""
        session = self._session(request.session, is_step=False)
        version = request.version if request.HasField("version") else None
        try:
            ids = ids_from_bytes(request.ids)
            with self._job.sessions.serving(session):
                values = await self._job.parameters.rows(request.table, ids, version)
        except ValueError as error:
            raise malformed(str(error)) from error
        except TrainingError as error:
            self._job.failure.fail(error)
            raise CallRefusedError(grpc.StatusCode.DATA_LOSS, str(error)) from error
        if values is None:
            self._session(request.session, is_step=False)
            raise CallRefusedError(
                grpc.StatusCode.NOT_FOUND, f"rows of version {version} are not kept"
            )
        if request.HasField("buffer"):
            yield await _laid(session, request, values)
            return
        for chunk in reply_chunks(values):
            yield chunk

    async def report_gradient(
        self, header: pb.GradientHeader, chunks: Chunks
    ) -> pb.ReportGradientReply:
        """Receive a gradient and have it judged; a repeated report gets the first one's reply."""
        session = self._session(header.session)
        if header.oddity:
            self._job.updates.note_oddity(_oddity_of(header))
        reply = await self._verdict(session, header, chunks)
        reply = await self._with_model(header, reply)
        if header.HasField("rows_ahead") and await self._has_laid_rows(session, header, reply):
            reply.rows_version = reply.model_version
        return reply

    async def _verdict(
        self,
        session: WorkerSession,
        header: pb.GradientHeader,
        chunks: Chunks,
    ) -> pb.ReportGradientReply:
        try:
            if header.sequence == session.sequence and session.reply is not None:
                return _reply_of(await asyncio.shield(session.reply))
            if header.sequence != session.sequence + 1:
                raise malformed(
                    f"report {header.sequence} of a session whose last was {session.sequence}"
                )
            report = _report_of(header)
            outcome = self._job.updates.precheck(session, report)
            if outcome is None:
                contribution = await self._job.parameters.receive(
                    _incoming(session, header, chunks)
                )
                outcome = await self._judge(session, header.sequence, report, contribution)
                return _reply_of(outcome)
        except ValueError as error:
            raise malformed(str(error)) from error
        reply: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        reply.set_result(outcome)
        session.sequence, session.reply = header.sequence, reply
        return _reply_of(outcome)

    async def report_task_result(
        self, request: pb.ReportTaskResultRequest
    ) -> pb.ReportTaskResultReply:
        """The end of a task other than by its last gradient."""
        session = self._session(request.session)
        outcomes = pb.ReportTaskResultRequest
        accepted = True
        try:
            match request.outcome:
                case outcomes.OUTCOME_EVALUATED:
                    accepted = self._evaluated(session, request)
                case outcomes.OUTCOME_PREDICTING | outcomes.OUTCOME_PREDICTED:
                    accepted = self._predicted(session, request)
                case outcomes.OUTCOME_FAILED:
                    # What it has begun to count has to be brought to its end, whoever waits for it.
                    accepted = await asyncio.shield(
                        self._job.tasks.failed(session, _failure_of(request))
                    )
                case outcomes.OUTCOME_SEARCHING:
                    accepted = self._job.tasks.searched(session, _failure_of(request))
                case outcomes.OUTCOME_RELEASED:
                    accepted = self._job.tasks.release(session, request.task_id, request.attempt)
                case outcomes.OUTCOME_HOPELESS:
                    self._job.failure.fail(TrainingError(request.message))
                case outcomes.OUTCOME_EMPTY:
                    accepted = await asyncio.shield(
                        self._job.tasks.commit_empty(
                            session, request.task_id, request.attempt, request.start, request.end
                        )
                    )
                case _:
                    raise malformed(f"outcome {request.outcome} is none of the protocol's")
        except ValueError as error:
            raise malformed(str(error)) from error
        return pb.ReportTaskResultReply(accepted=accepted)

    # -- inside --------------------------------------------------------------------------------

    def _session(self, key: str, is_step: bool = True) -> WorkerSession:
        session = self._job.sessions.find(key)
        if session is None:
            raise CallRefusedError(
                grpc.StatusCode.FAILED_PRECONDITION, "unknown session: register again"
            )
        self._job.sessions.liveness.heard(session.replica, time.monotonic())
        if is_step:
            # A worker that goes on has finished reading the version it pulled.
            self._job.parameters.release(key)
        return session

    async def _packed(self, key: str, version: int | None = None) -> PackedModel | None:
        """A version for a worker to read; None if it is not kept, or the session has ended."""
        packed = await self._job.parameters.packed(key, version)
        if self._job.sessions.find(key) is None:
            # Lost while it waited: nobody else would say that it has finished reading.
            self._job.parameters.left(key)
            return None
        return packed

    async def _with_model(
        self, header: pb.GradientHeader, reply: pb.ReportGradientReply
    ) -> pb.ReportGradientReply:
        """Add the newest version, if the worker wants it and can read it where it lies.

        To a copy: a repeated report gets the first one's verdict, but the model as it is by then.
        """
        is_going_on = reply.verdict != pb.ReportGradientReply.VERDICT_LEASE_LOST
        parameters = self._job.parameters
        if not (header.wants_model and header.HasField("shared") and is_going_on):
            return reply
        if parameters.version == header.model_version:
            return reply
        packed = await self._packed(header.session)
        handle = None if packed is None else packed.buffer.handle()
        if packed is None or handle is None:
            return reply
        model = pb.SharedModel(model_version=packed.version, buffer=handle)
        return pb.ReportGradientReply(
            verdict=reply.verdict, model_version=reply.model_version, model=model
        )

    async def _has_laid_rows(
        self, session: WorkerSession, header: pb.GradientHeader, reply: pb.ReportGradientReply
    ) -> bool:
        """Lay the rows of the reply's version that the worker will need; False where none are."""
        parameters, version = self._job.parameters, reply.model_version
        if version <= header.model_version or parameters.version != version:
            return False
        try:
            rows = [
                await parameters.rows(table, ids)
                for table, ids in wanted_of_proto(header.rows_ahead)
            ]
            found = [values for values in rows if values is not None]
            # An update counts its version before it changes rows, which a thread may be reading.
            if len(found) < len(rows) or parameters.version != version:
                return False
            lay_rows(found, session.memory.get(header.rows_ahead.buffer))
        except ValueError as error:
            raise malformed(str(error)) from error
        except (TrainingError, ParametersLostError):
            # The gradient has counted. Who needs the rows asks for them, and is told.
            return False
        return True

    async def _judge(
        self,
        session: WorkerSession,
        sequence: int,
        report: GradientReport,
        contribution: object,
    ) -> Outcome:
        async def judge() -> Outcome:
            try:
                return await self._job.updates.add(session, report, contribution)
            finally:
                self._job.parameters.give_back(contribution)

        # While the bytes were coming, the caller may have given this call up and tried again, and
        # the other call may have overtaken this one.
        if session.sequence > sequence:
            self._job.parameters.give_back(contribution)
            raise malformed(f"report {sequence} of a session whose last was {session.sequence}")
        if session.reply is not None and session.sequence == sequence:
            self._job.parameters.give_back(contribution)
        else:
            previous = session.sequence, session.reply
            reply = asyncio.ensure_future(judge())
            reply.add_done_callback(partial(_forget_refused, session, previous))
            session.sequence, session.reply = sequence, reply
        # A caller that hangs up cancels this call; the update must not be cut in half by it, and
        # the same report may come again and ask for the reply.
        return await asyncio.shield(session.reply)

    def _evaluated(self, session: WorkerSession, request: pb.ReportTaskResultRequest) -> bool:
        evaluation = self._job.tasks.round
        if not isinstance(evaluation, EvaluationRound):
            return False
        metrics = _metrics_of(request.metrics)
        self._note_progress(session, request)
        return evaluation.add(request.task_id, request.attempt, request.start, request.end, metrics)

    def _predicted(self, session: WorkerSession, request: pb.ReportTaskResultRequest) -> bool:
        """A part of a task has its predictions, or all of it has, which then counts."""
        prediction = self._job.tasks.round
        if not isinstance(prediction, PredictionRound):
            return False
        task_id, attempt, start, end = request.task_id, request.attempt, request.start, request.end
        if request.outcome == pb.ReportTaskResultRequest.OUTCOME_PREDICTING:
            self._note_progress(session, request)
            return prediction.ledger.is_leased(task_id, attempt)
        self._job.tasks.note_round_progress(session, 0, None)
        return prediction.add(task_id, attempt, start, end, request.num_predictions)

    def _note_progress(self, session: WorkerSession, request: pb.ReportTaskResultRequest) -> None:
        step_s = request.step_s if request.HasField("step_s") else None
        records = request.end - request.start
        if records < 0 or not (step_s is None or 0 <= step_s < math.inf):
            raise malformed(f"a report of {records} records in {step_s} s")
        self._job.tasks.note_round_progress(session, records, step_s)


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

    def get_model(self, request: pb.GetModelRequest) -> AsyncIterator[pb.ModelChunk | Pieces]:
        """See `MasterServicer`."""
        return self._stream(lambda servicer: servicer.get_model(request))

    def get_rows(self, request: pb.GetRowsRequest) -> AsyncIterator[pb.RowsChunk | Pieces]:
        """See `MasterServicer`."""
        return self._stream(lambda servicer: servicer.get_rows(request))

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

    async def _stream(self, call: Callable[[MasterServicer], AsyncIterator[T]]) -> AsyncIterator[T]:
        servicer = self._present()
        with self._refusing():
            async for chunk in call(servicer):
                self._check(servicer)
                yield chunk

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


def _metrics_of(messages: Iterable[pb.Metric]) -> tuple[MetricState, ...]:
    return tuple(MetricState(each.name, tensors_from_proto(each.values)) for each in messages)


_Answered: TypeAlias = tuple[int, "asyncio.Future[Outcome] | None"]


def _forget_refused(
    session: WorkerSession, previous: _Answered, reply: asyncio.Future[Outcome]
) -> None:
    """Let the number of a report that broke the protocol be used again."""
    if not reply.cancelled() and reply.exception() is not None and session.reply is reply:
        session.sequence, session.reply = previous


def _report_of(header: pb.GradientHeader) -> GradientReport:
    """What a header claims.

    Raises:
        CallRefusedError: It claims what no worker can have measured.
    """
    if header.model_version < 0:
        raise malformed(f"a report with model_version={header.model_version}: it begins at 0")
    if not math.isfinite(header.loss):
        raise malformed(f"a report with loss={header.loss}: only finite ones come with a gradient")
    if not 0 <= header.step_s < math.inf:
        raise malformed(f"a report with step_s={header.step_s}: it is a time")
    return GradientReport(
        task_id=header.task_id,
        attempt=header.attempt,
        start=header.start,
        end=header.end,
        model_version=header.model_version,
        loss=header.loss,
        metrics=_metrics_of(header.metrics),
        step_s=header.step_s,
    )


async def _laid(session: WorkerSession, request: pb.GetRowsRequest, values: Values) -> pb.RowsChunk:
    """Answer with rows in the worker's memory."""
    lay = partial(lay_values, values, session.memory.get(request.buffer))
    num_rows, dim = values.shape
    try:
        # What would have been many parts keeps others waiting.
        if is_one_message(dim, num_rows):
            lay()
        else:
            await asyncio.to_thread(lay)
    except RowsError as error:
        raise malformed(str(error)) from error
    return pb.RowsChunk()


def _rows_of(session: WorkerSession, header: pb.GradientHeader) -> RowGradients:
    """Gradients of rows, in the header or in the worker's memory.

    Raises:
        LayoutError, RowsError: There can be no such rows.
    """
    if not header.HasField("shared_rows"):
        return gradients_from_proto(header.rows)
    shared = header.shared_rows
    return gradients_from_memory(shared, session.memory.get(shared.buffer))


def _incoming(session: WorkerSession, header: pb.GradientHeader, chunks: Chunks) -> Incoming:
    """What comes with a header.

    Raises:
        LayoutError: What it says of its tensors makes no sense.
        RowsError: The same of rows.
    """
    is_shared = header.HasField("shared")
    # Who shares its memory has said once how its tensors lie.
    is_told = not is_shared or bool(header.gradients or header.state)
    return Incoming(
        header.session,
        header.end - header.start,
        layout_from_proto(header.gradients) if is_told else None,
        layout_from_proto(header.state) if is_told else None,
        header.shared if is_shared else None,
        chunks,
        header.sequence,
        header.is_staged,
        _rows_of(session, header),
    )


def _oddity_of(header: pb.GradientHeader) -> Oddity:
    try:
        return Oddity(header.oddity)
    except ValueError as error:
        raise malformed(f"a report with oddity={header.oddity!r}: {error}") from error


def _failure_of(request: pb.ReportTaskResultRequest) -> FailureReport:
    return FailureReport(
        request.task_id,
        request.attempt,
        request.start,
        request.end,
        request.message,
        request.traceback,
        request.runs_at,
    )


def _reply_of(outcome: Outcome) -> pb.ReportGradientReply:
    verdicts = pb.ReportGradientReply
    if outcome.refusal is None:
        verdict = verdicts.VERDICT_ACCEPTED
    elif isinstance(outcome.refusal, RefuseStale):
        verdict = verdicts.VERDICT_STALE
    else:
        verdict = verdicts.VERDICT_LEASE_LOST
    return pb.ReportGradientReply(verdict=verdict, model_version=outcome.model_version)


def _not_now() -> CallRefusedError:
    return CallRefusedError(grpc.StatusCode.UNAVAILABLE, NOT_OPEN)
