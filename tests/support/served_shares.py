"""Parameter servers of this process behind real gRPC, loaded by the master's strategy."""

import asyncio
import contextlib

import grpc
import keras
import numpy as np
import tensorflow as tf
import torch
from torch import nn

from elastic.frameworks import load_framework
from elastic.frameworks.base import Batch
from elastic.master.parameters.servers import (
    ServerLife,
    ServerParameters,
    ServerRing,
    ServerRules,
    Staged,
)
from elastic.master.parameters.store import Contribution, ParameterStore
from elastic.master.parameters.strategy import cut_out
from elastic.policy.replicas import ReplicaId
from elastic.ps.servicer import ServerServicer
from elastic.rows.base import RowGradient
from elastic.rows.ids import spread_rows
from elastic.rpc.layout import Layout, SharedMemory
from elastic.rpc.server import SERVER_OPTIONS, ServerHandler
from elastic.rpc.server_client import Gradient, ServerClient
from elastic.spec.model_def import ModelDef

TOKEN = "the-token-of-this-job"
SHAPES = ((700, 128), (40, 3), (7,), ())
"""The first is large enough to be cut."""


class TorchNet(nn.Module):
    def __init__(self):
        super().__init__()
        made = np.random.default_rng(0)
        self.own = nn.ParameterList(
            nn.Parameter(torch.as_tensor(made.normal(size=shape).astype(np.float32)))
            for shape in SHAPES
        )
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(5))

    def forward(self, features):
        return features


class KerasNet(keras.Model):
    def __init__(self):
        super().__init__()
        made = np.random.default_rng(0)
        self.own = [
            self.add_weight(
                shape=shape,
                name=f"w{i}",
                initializer=lambda s, dtype: tf.cast(made.normal(size=s), dtype),
            )
            for i, shape in enumerate(SHAPES)
        ]
        self.mean = self.add_weight(shape=(5,), name="mean", trainable=False, initializer="zeros")

    def call(self, features):
        return features


NETS = {"torch": (TorchNet, torch.ones(1, 2)), "keras": (KerasNet, tf.ones((1, 2)))}


def model_def_of(framework, optimizer, net=None, **more):
    """A module with the optimizer."""
    own, _ = NETS[framework]
    return ModelDef("net", framework, net or own, None, optimizer, lambda data, mode: data, **more)


def store_of(framework, optimizer, net=None):
    """The model in one process, with its optimizer."""
    model_def, loaded = model_def_of(framework, optimizer, net), load_framework(framework)
    model = loaded.build_model(model_def, {}, Batch(NETS[framework][1], None, 1), seed=0)
    return ParameterStore(model, loaded.build_updater(model_def, model))


def gradient_of(store, seed):
    """Gradients and state of a model."""
    random = np.random.default_rng(seed)

    def draw(array):
        if array.dtype.kind == "i":
            return np.array(seed, array.dtype)
        return np.asarray(random.normal(size=array.shape)).astype(array.dtype)

    model = store.model
    return (
        {name: draw(array) for name, array in model.parameters().items()},
        {name: draw(array) for name, array in model.state().items()},
    )


class Shares:
    """Servers, and a worker that stages what a test gives it."""

    def __init__(self, framework, optimizer, num_servers, *, is_synchronous=True):
        self.framework, self.optimizer = framework, optimizer
        self.ring = ServerRing(num_servers)
        self.rules = ServerRules(TOKEN, 0, is_synchronous, 300.0, 300.0)
        self.strategy = None
        self.servicers = [self._servicer() for _ in range(num_servers)]
        self._servers, self._clients = [], []
        self._memory = {}

    def _servicer(self):
        model_def, loaded = (
            model_def_of(self.framework, self.optimizer),
            load_framework(self.framework),
        )
        return ServerServicer(
            lambda whole, parameters, state, steps: loaded.build_share(
                model_def, whole, parameters, state, steps
            )
        )

    @contextlib.asynccontextmanager
    async def serve(self, store=None):
        """Serve, loaded from a store."""
        for index, servicer in enumerate(self.servicers):
            server = grpc.aio.server(options=SERVER_OPTIONS)
            server.add_generic_rpc_handlers((ServerHandler(servicer, TOKEN),))
            port = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            self._servers.append(server)
            address = f"127.0.0.1:{port}"
            self._clients.append(ServerClient(address, TOKEN))
            self.ring.announced(ServerLife(ReplicaId("ps", index, 1), "life", address))
        try:
            await self.begin_era(store or store_of(self.framework, self.optimizer))
            yield self
        finally:
            if self.strategy is not None:
                await self.strategy.close()
            for client in self._clients:
                client.close()
            for server in self._servers:
                await server.stop(None)

    async def begin_era(self, store):
        """Load the servers anew."""
        self.strategy = ServerParameters(store, self.ring, self.rules, lambda _: None)
        await self.strategy.start()

    async def give(self, session, sequence, gradients, state, num_records, **changes):
        """Stage a gradient on all servers; gives what each says of it."""
        era = self.strategy.era
        said, of_servers = [], spread(changes.get("rows", {}), len(self._clients))
        servers = self.strategy.directions().servers
        for place, client, rows in zip(servers, self._clients, of_servers, strict=True):
            parts = cut_out(place.share.parameters, gradients)
            others = cut_out(place.share.state, state)
            layout, arrays = Layout.of(parts, others), [*parts.values(), *others.values()]
            # Each other one is handed over in memory, with its rows.
            memory = SharedMemory(layout.size_bytes) if sequence % 2 else None
            if memory is not None:
                layout.fill(memory.data, arrays)
                self._memory[client, sequence] = memory
            gradient = Gradient(
                changes.get("era", era),
                session,
                sequence,
                changes.get("version", self.strategy.version),
                num_records,
                layout,
                len(parts),
                arrays,
                None if memory is None else memory.handle(),
                dropped=changes.get("dropped", ()),
                rows=rows,
            )
            said.append(await asyncio.to_thread(client.stage, gradient))
        return said

    async def update(self, *given, scale=1.0, state_share=1.0, rate_scale=1.0):
        """Make an update of `(gradients, state, num_records)`, or with gradients of rows behind."""
        async with self.strategy.lock:
            for number, (gradients, state, num_records, *rows) in enumerate(given):
                session, sequence = f"s{number}", self.strategy.version + 1
                more = {"rows": rows[0]} if rows else {}
                assert all(
                    await self.give(session, sequence, gradients, state, num_records, **more)
                )
                self.strategy.stage(Staged(session, sequence, num_records, is_staged=True), scale)
            return await self.strategy.commit(state_share, rate_scale)


def spread(rows, num_servers):
    """Of gradients of rows what each server gets."""
    found = [{} for _ in range(num_servers)]
    for table, gradient in rows.items():
        places = spread_rows(table, gradient.ids, num_servers)
        for server, each in zip(found, places, strict=True):
            server[table] = RowGradient(gradient.ids[each], gradient.values[each])
    return found


async def update(store, *given, scale=1.0, state_share=1.0, rate_scale=1.0):
    """The same update, in one process."""
    async with store.lock:
        for gradients, state, num_records in given:
            arrays = list(gradients.values()), list(state.values())
            store.stage(Contribution(*arrays, num_records), scale)
        return await store.commit(state_share, rate_scale)
