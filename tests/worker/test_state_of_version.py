"""A version is evaluated with its own non-trained state, whatever was computed on it before."""

from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest

from elastic.frameworks.base import Batch, StepResult
from elastic.policy.tasks.records import RecordRange, Shard, Task, TaskKind
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.client import PulledModel
from elastic.worker.step import Trainer
from elastic.worker.strategy import LeaseLostError, MasterExchange, PulledParameters

TASK = Task(1, 0, TaskKind.TRAINING, 0, RecordRange(0, 0, 8), Shard("s", 0, 8))


class Client:
    """A master whose version never changes, and where every lease is lost."""

    num_retries = 0

    def get_model(self, session, have_version, version=None):
        if have_version == 0:
            return None
        return PulledModel(0, {"weight": np.ones(1)}, {"mean": np.zeros(1)})

    room = MappingProxyType({})

    def report_gradient(self, *_, **__):
        return pb.ReportGradientReply(verdict=pb.ReportGradientReply.VERDICT_LEASE_LOST)


class Model:
    """Has a moving mean, which every gradient moves."""

    def __init__(self, frozen_names=()):
        self.state = {}
        self.frozen_names = frozen_names

    def load_frozen(self, values):
        self.frozen = values

    def load(self, parameters, state):
        self.state = {name: array.copy() for name, array in state.items()}

    def lay_gradients_in(self, arrays):
        assert not arrays

    def gradients(self, batch, seed):
        self.state["mean"] += 7
        return StepResult({"weight": np.zeros(1)}, dict(self.state), 0.5)


@pytest.mark.parametrize("is_local", [False, True])
def test_a_gradient_that_did_not_count_leaves_nothing_behind(is_local):
    model = Model()
    updater = SimpleNamespace(apply=lambda _: None) if is_local else None
    parameters = PulledParameters(MasterExchange(Client()), model, updater, 4 if is_local else 1)
    parameters.begin(SimpleNamespace(key="k", shares_memory=False))
    trainer = Trainer(parameters, model, seed=0)
    loaded = SimpleNamespace(start=0, end=8, result=lambda: Batch(None, None, 8))
    contribution = trainer.compute(TASK, loaded, 0.0)
    with pytest.raises(LeaseLostError):
        parameters.contribute(contribution)
    assert model.state["mean"] == 7
    parameters.fill_version(0)
    assert model.state["mean"] == 0


def test_after_a_wait_for_a_task_the_newest_version_is_asked_for():
    client = Client()
    asked = []
    client.get_model = lambda *arguments: (
        asked.append(arguments) or Client.get_model(client, *arguments)
    )
    parameters = PulledParameters(MasterExchange(client), Model(), None, 1)
    parameters.begin(SimpleNamespace(key="k", shares_memory=False))
    parameters.fill()
    parameters.fill()
    assert len(asked) == 1
    parameters.doubt_version()
    parameters.fill()
    assert asked[1][1] == 0


def test_what_is_the_same_in_all_versions_is_asked_for_once_a_session():
    client, calls = Client(), []
    model = Model({"base"})
    session = SimpleNamespace(key="k", shares_memory=False)

    def get_frozen(of):
        assert of is session
        calls.append("frozen")
        return {"base": np.full(1, len(calls))}

    def get_model(*arguments):
        calls.append("version")
        return Client.get_model(client, *arguments)

    client.get_frozen, client.get_model = get_frozen, get_model
    parameters = PulledParameters(MasterExchange(client), model, None, 1)
    parameters.begin(session)
    # To evaluate, before anything is computed, and then to compute.
    parameters.fill_version(0)
    parameters.fill()
    assert calls == ["frozen", "version", "version"]
    assert model.frozen == {"base": 1}
    session = SimpleNamespace(key="of the next master", shares_memory=False)
    parameters.begin(session)
    parameters.fill()
    assert calls[3:] == ["frozen", "version"]
    assert model.frozen == {"base": 4}


def test_a_model_without_them_asks_for_none():
    parameters = PulledParameters(MasterExchange(Client()), Model(), None, 1)
    parameters.begin(SimpleNamespace(key="k", shares_memory=False))
    # The client of this test has no such call.
    parameters.fill()
    assert parameters.version == 0
