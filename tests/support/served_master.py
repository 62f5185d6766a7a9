"""A real master servicer behind real gRPC, and a peer that sends it whatever a test wants."""

import asyncio
import contextlib
from pathlib import Path

import grpc
import numpy as np

from elastic.master.coordination.rounds import EvaluationRound
from elastic.master.coordination.running import Listeners, RunningJob
from elastic.master.coordination.updates import CommitLog
from elastic.master.kinds.preparation import (
    build_store,
    check_sources,
    choose_sample,
    training_ledger,
)
from elastic.master.parameters.servers import ServerLife, ServerParameters, ServerRing, ServerRules
from elastic.master.servicer import MasterServicer, Reception
from elastic.policy.fleet import Liveness
from elastic.policy.replicas import ReplicaId
from elastic.policy.updates.update_group import UpdateRule
from elastic.ps.servicer import ServerServicer, share_builder
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.layout import Layout, Proof
from elastic.rpc.server import SERVER_OPTIONS, MasterHandler, ServerHandler
from elastic.rpc.wire import METHODS, encode_data, specs_to_proto
from elastic.telemetry.meter import JobMeter
from support.datasets import prepared_dir
from support.local_job import make_spec

ZOO = Path(__file__).parent / "zoo"
TOKEN = "the-token-of-this-job"
PATIENCE_S = 300.0
"""For a whole scenario, the first import of its framework included."""
NUM_RECORDS = 40
NUM_PARTS = 3
"""Of the model in `zoo/spread_counting_torch.py`."""


def parts_of(counts):
    """The parameters of the counting model that is spread over servers."""
    return {
        f"parts.{part}": np.ascontiguousarray(counts[part::NUM_PARTS]) for part in range(NUM_PARTS)
    }


def counts_of(parameters):
    """How often each record is in the parameters, of the model in one piece or in parts."""
    if "counts" in parameters:
        return parameters["counts"].copy()
    counts = np.empty(NUM_RECORDS, np.float32)
    for part in range(NUM_PARTS):
        counts[part::NUM_PARTS] = parameters[f"parts.{part}"]
    return counts


class ServedMaster:
    """The parts of a master that answer calls, over the counting model; nothing starts workers.

    With `num_ps` its parameters are in parts, which servers of this process have.
    """

    def __init__(self, calls_at="", **settings):
        """Take the name at which it is told to take calls, and settings of the job."""
        self.proof = Proof(calls_at)
        has_servers = settings.get("num_ps", 0) > 0
        if has_servers:
            settings["model_zoo"] = str(ZOO)
        self.spec = make_spec(
            f"{'spread_counting_torch' if has_servers else 'counting.counting_torch'}.CustomModel",
            prepared_dir("counting", num_records=NUM_RECORDS) / "train.npz",
            model_params={"num_records": NUM_RECORDS},
            **{"shuffle": "none", "records_per_task": 20, "minibatch_size": 1, **settings},
        )
        self.launches = {}
        self.events = []
        self.contributors = []
        sources = check_sources(self.spec)
        sample = choose_sample(self.spec, sources)
        self.store = build_store(self.spec, sources, sample)
        self.ledger = training_ledger(self.spec, sources.chunks)
        rule = UpdateRule(self.spec.gradients_per_update, self.spec.is_async)
        self.ring = ServerRing(self.spec.num_ps)
        self.servers = []
        self.parameters = self._strategy() if has_servers else self.store
        self.job = RunningJob.assemble(
            self.ledger,
            self.parameters,
            rule,
            Liveness(self.spec.hang_timeout, self.spec.start_timeout),
            CommitLog(""),
            Listeners(
                lambda kind, message: self.events.append((kind, message)),
                self.contributors.append,
                JobMeter(),
            ),
        )
        self._servicer = MasterServicer(
            self.job,
            sample,
            lambda replica: self.launches.get(replica.index, 0),
            proof=self.proof,
        )
        self.reception = Reception({}, lambda replica: 0)
        self.reception.open(self._servicer)
        self._shards = sources.shards
        self.heard = []
        self._listen()

    def _strategy(self):
        rules = ServerRules(TOKEN, 0, not self.spec.is_async, PATIENCE_S, PATIENCE_S)
        return ServerParameters(self.store, self.ring, rules, lambda _: None)

    def _listen(self):
        """Note each session key that a call was found to have."""
        find = self.job.sessions.find

        def noting(key):
            self.heard.append(key)
            return find(key)

        self.job.sessions.find = noting

    def note_end_of(self, method):
        """An event that is set when a call of a method has ended, by its answer or given up."""
        answer, ended = getattr(self._servicer, method), asyncio.Event()

        async def noting(request):
            try:
                return await answer(request)
            finally:
                ended.set()

        setattr(self._servicer, method, noting)
        return ended

    def note_begin_of(self, method):
        """An event that is set when a call of a method that downloads has come."""
        answer, begun = getattr(self._servicer, method), asyncio.Event()

        async def noting(request):
            begun.set()
            async for chunk in answer(request):
                yield chunk

        setattr(self._servicer, method, noting)
        return begun

    @contextlib.asynccontextmanager
    async def serve(self):
        """Serve, and give a peer that has the token."""
        server = grpc.aio.server(options=SERVER_OPTIONS)
        server.add_generic_rpc_handlers((MasterHandler(self.reception, TOKEN),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        await self._start_servers()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                peer = Peer(channel, (("authorization", f"Bearer {TOKEN}"),))
                peer.address = f"127.0.0.1:{port}"
                yield peer
        finally:
            await server.stop(None)
            for each in self.servers:
                await each.stop(None)

    async def _start_servers(self):
        for index in range(self.spec.num_ps):
            server = grpc.aio.server(options=SERVER_OPTIONS)
            servicer = ServerServicer(share_builder(self.spec))
            server.add_generic_rpc_handlers((ServerHandler(servicer, TOKEN),))
            port = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            self.servers.append(server)
            replica = ReplicaId("ps", index, 1)
            self.ring.announced(ServerLife(replica, "life", f"127.0.0.1:{port}"))
        await self.parameters.start()

    def begin_evaluation(self):
        round_ = EvaluationRound(0, self.store.version, self._shards, self.spec)
        self.job.tasks.open_round(round_)
        return round_

    def counts(self):
        """How often each record is in the parameters that the master has."""
        return counts_of(self.store.model.parameters())

    async def newest_counts(self):
        """How often each record is in the newest version, wherever that is."""
        async with self.parameters.lock:
            return counts_of((await self.parameters.whole()).parameters())

    def account(self):
        """All that a report could change, in a form that can be compared."""
        return (
            self.store.version,
            self.ledger.snapshot(),
            self.ledger.only_staged_left,
            self.counts().tolist(),
            self.job.updates.rejected_gradients,
            self.job.updates.loss,
            self.job.updates._group.num_staged,
        )


class Peer:
    """Calls the master's methods with messages, or with bytes that are none."""

    def __init__(self, channel, metadata):
        self._channel = channel
        self.metadata = metadata
        self.address = None

    def with_metadata(self, *metadata):
        return Peer(self._channel, metadata)

    def call(self, name, request):
        """A unary call, or the first message of a stream of replies."""
        is_stream = METHODS[name].streams_replies
        make = self._channel.unary_stream if is_stream else self._channel.unary_unary
        return make(METHODS[name].path, _as_bytes, METHODS[name].decode_reply)(
            request, metadata=self.metadata
        )

    def report(self, messages):
        """A ReportGradient call over an (async) iterable of chunk messages or bytes."""
        method = METHODS["ReportGradient"]
        return self._channel.stream_unary(method.path, _as_bytes, method.decode_reply)(
            messages, metadata=self.metadata
        )

    async def register(self, index=0, launch=1):
        request = pb.RegisterRequest(worker_index=index, launch=launch, host="test", pid=1)
        return (await self.call("Register", request)).session

    async def get_task(self, session, working_on=None):
        """The task that the master gives; fails the test if it gives none."""
        request = pb.GetTaskRequest(session=session, working_on=working_on)
        reply = await self.call("GetTask", request)
        assert reply.HasField("task"), reply
        return reply.task

    async def refusal(self, call):
        """The status and message that end a call."""
        try:
            reply = await (call.read() if hasattr(call, "read") else call)
        except grpc.aio.AioRpcError as error:
            return error.code().name, error.details()
        raise AssertionError(f"the call was not refused: {reply}")


def gradient(session, task, start, end, sequence=1, version=0, num_records=NUM_RECORDS):
    """Header and bytes of a right report: the gradient of records `[start, end)`."""
    counts = np.zeros(num_records, np.float32)
    counts[start:end] = -1 / (end - start)
    arrays = {"counts": counts, "steps": np.ones((), np.float32)}
    layout = Layout.of(arrays)
    buffer = np.zeros(layout.size_bytes, np.uint8)
    layout.fill(buffer, arrays.values())
    specs = specs_to_proto(layout.specs)
    header = pb.GradientHeader(
        session=session, sequence=sequence, task_id=task.task_id, attempt=task.attempt,
        start=start, end=end, model_version=version, loss=0.5, step_s=0.01,
        gradients=specs[:1], state=specs[1:],
    )  # fmt: skip
    return header, buffer.tobytes()


def messages(header, data):
    """The messages of one report."""
    return [pb.GradientChunk(header=header), data_message(data)]


def data_message(data):
    """The bytes of a message of data."""
    return b"".join(encode_data([data]))


def _as_bytes(message):
    return message if isinstance(message, bytes) else message.SerializeToString()
