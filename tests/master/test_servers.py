"""What servers come to together is what one process comes to, and one commit is one update."""

import asyncio
import threading
from dataclasses import replace
from functools import partial

import grpc
import keras
import numpy as np
import pytest
import torch
from support.served_shares import (
    TOKEN,
    Shares,
    gradient_of,
    model_def_of,
    store_of,
    update,
)

from elastic.errors import ModelDefError, TrainingError
from elastic.frameworks import load_framework
from elastic.master.parameters.servers import MAX_HANGS, ServerLife, ServerParameters, Staged
from elastic.master.parameters.strategy import ParametersLostError
from elastic.policy.replicas import ReplicaId
from elastic.ps.servicer import Serving
from elastic.rpc.client import MasterClient
from elastic.rpc.server_client import AsyncServerClient, Commit, CommitId, OtherEraError
from elastic.rpc.wire import SERVER_METHODS

PATIENCE_S = 300.0


def run(scenario):
    return asyncio.run(asyncio.wait_for(scenario, PATIENCE_S))


def by_place(parameters):
    """Two groups with rates of their own, told by the parameters' places."""
    groups = [{"params": parameters[:2], "lr": 0.1}, {"params": parameters[2:], "lr": 0.3}]
    return torch.optim.SGD(groups, momentum=0.9)


class OwnSGD(torch.optim.SGD):
    """A class of the user's, whose tensors are not cut."""


OPTIMIZERS = {
    "torch-groups": ("torch", by_place),
    "torch-adam": ("torch", partial(torch.optim.Adam, lr=0.01)),
    "torch-adagrad": ("torch", partial(torch.optim.Adagrad, lr=0.01)),
    "torch-own": ("torch", partial(OwnSGD, lr=0.01, momentum=0.5)),
    "keras-adam": ("keras", partial(keras.optimizers.Adam, 0.01)),
    "keras-sgd": ("keras", partial(keras.optimizers.SGD, 0.01, momentum=0.9)),
}


def given(store, update_number):
    """Two gradients of unlike numbers of records."""
    return [(*gradient_of(store, 2 * update_number + each), 3 + each) for each in range(2)]


async def same(strategy, store):
    """That both have the same version; numbers of cut tensors may differ in their last bit."""
    assert strategy.version == store.version
    for ours, others in zip(await _copied(strategy), await _copied(store), strict=True):
        assert ours.keys() == others.keys()
        for name, array in ours.items():
            np.testing.assert_allclose(array, others[name], rtol=1e-5, atol=1e-7, err_msg=name)


async def _copied(strategy):
    async with strategy.lock:
        parameters, state, optimizer = await strategy.copy()
    return parameters, state, optimizer.tensors, {"values": np.array(repr(optimizer.values) != "")}


SETTINGS = ({}, {"scale": 0.5, "state_share": 0.25}, {"rate_scale": 2.0})


@pytest.mark.parametrize(
    ("name", "num_servers"),
    [("torch-adam", 1), ("keras-adam", 3), *((name, 2) for name in OPTIMIZERS)],
)
def test_servers_come_to_what_one_process_comes_to(name, num_servers):
    framework, optimizer = OPTIMIZERS[name]
    store = store_of(framework, optimizer)

    async def scenario():
        async with Shares(framework, optimizer, num_servers).serve() as shares:
            await same(shares.strategy, store)
            for number, settings in enumerate(SETTINGS):
                made = given(store, number)
                assert await shares.update(*made, **settings) == number + 1
                await update(store, *made, **settings)
            await same(shares.strategy, store)
            async with shares.strategy.lock:
                model = await shares.strategy.whole()
            for key, array in model.parameters().items():
                np.testing.assert_allclose(array, store.model.parameters()[key], rtol=1e-5)

    run(scenario())


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("torch-groups", 2, 0),
        ("torch-adam", 2, 3),
        ("torch-adam", 0, 2),
        ("keras-adam", 2, 0),
        ("keras-adam", 3, 1),
    ],
)
def test_a_cut_written_with_some_servers_is_loaded_with_others(name, before, after):
    framework, optimizer = OPTIMIZERS[name]

    async def scenario():
        store = store_of(framework, optimizer)
        await update(store, *given(store, 0))
        if before:
            async with Shares(framework, optimizer, before).serve() as shares:
                await shares.update(*given(store, 0))
                async with shares.strategy.lock:
                    cut = await shares.strategy.copy()
        else:
            cut = await store.copy()
        back = store_of(framework, optimizer)
        back.load(1, *cut)
        await update(store, *given(store, 1))
        if not after:
            await update(back, *given(store, 1))
            await same(back, store)
            return
        async with Shares(framework, optimizer, after).serve(back) as shares:
            await shares.update(*given(store, 1))
            await same(shares.strategy, store)

    run(scenario())


def test_the_rate_that_an_update_had_is_told_beside_that_of_the_next():
    """Rows of embeddings are updated by the first, when the servers go on to the other."""

    def halving():
        return keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.5, 1, 0.5))

    store = store_of("keras", halving)

    async def scenario():
        async with Shares("keras", halving, 1).serve() as shares:
            for number, rate in enumerate((0.5, 0.25)):
                made = given(store, number)
                await shares.update(*made)
                await update(store, *made)
                for each in (shares.strategy, store):
                    assert each.applied_learning_rate == rate
                    assert each.learning_rate == rate / 2

    run(scenario())


def torch_shares(num_servers=2):
    return Shares("torch", OPTIMIZERS["torch-adam"][1], num_servers)


async def commit_of(shares, *ids, version=None, **changes):
    strategy = shares.strategy
    commit = Commit(
        changes.get("era", strategy.era),
        strategy.version + 1 if version is None else version,
        [CommitId(*each) for each in ids],
        1.0,
        0,
        changes.get("ended", ()),
    )
    return [await server.client.commit(commit, 60.0) for server in strategy._servers]


async def values_of(shares):
    return [
        {name: array.copy() for name, array in each._held.store.model.parameters().items()}
        for each in shares.servicers
    ]


def assert_alike(ones, others):
    for one, other in zip(ones, others, strict=True):
        for name, array in one.items():
            np.testing.assert_array_equal(array, other[name], err_msg=name)


def test_a_commit_that_is_asked_for_again_is_made_once():
    async def scenario():
        async with torch_shares().serve() as shares:
            made = gradient_of(shares.strategy._mirror, 1)
            await shares.give("s", 1, *made, 5)
            first = await commit_of(shares, ("s", 1, 5, 1.0))
            there = await values_of(shares)
            assert await commit_of(shares, ("s", 1, 5, 1.0)) == first
            assert_alike(await values_of(shares), there)
            assert [each._held.store.version for each in shares.servicers] == [1, 1]

    run(scenario())


@pytest.mark.parametrize(
    ("ids", "changes", "error"),
    [
        pytest.param([("s", 2, 5, 1.0)], {}, OtherEraError, id="not-staged"),
        pytest.param([("other", 1, 5, 1.0)], {}, OtherEraError, id="of-another-session"),
        pytest.param([("s", 1, 5, 1.0)], {"era": "x"}, OtherEraError, id="of-another-era"),
        pytest.param([("s", 1, 6, 1.0)], {}, Exception, id="other-records"),
        pytest.param([("s", 1, 5, 1.0)], {"version": 2}, Exception, id="not-the-next"),
        pytest.param([("s", 1, 5, 1.0)], {"version": 0}, Exception, id="an-old-one"),
        pytest.param([("s", 1, 5, -1.0)], {}, Exception, id="a-negative-rate"),
        pytest.param([], {}, Exception, id="of-nothing"),
    ],
)
def test_a_commit_of_anything_else_changes_nothing(ids, changes, error):
    async def scenario():
        async with torch_shares().serve() as shares:
            await shares.give("s", 1, *gradient_of(shares.strategy._mirror, 1), 5)
            there = await values_of(shares)
            with pytest.raises(error):
                await commit_of(shares, *ids, **changes)
            assert_alike(await values_of(shares), there)
            await commit_of(shares, ("s", 1, 5, 1.0))

    run(scenario())


def test_what_is_refused_or_left_behind_is_kept_nowhere():
    async def scenario():
        async with torch_shares().serve() as shares:
            made = gradient_of(shares.strategy._mirror, 1)
            await shares.give("s", 1, *made, 5)
            await shares.give("gone", 1, *made, 5)
            await shares.give("late", 1, *made, 5)
            await shares.give("s", 2, *made, 5, dropped=[1])
            staged = [set(each._held.staged) for each in shares.servicers]
            assert staged == [{("s", 2), ("gone", 1), ("late", 1)}] * 2
            # A report that the master accepted counts, though its worker has left since.
            await commit_of(shares, ("s", 2, 5, 1.0), ("gone", 1, 5, 1.0), ended=["gone", "late"])
            assert [set(each._held.staged) for each in shares.servicers] == [set()] * 2
            with pytest.raises(OtherEraError):
                await shares.give("gone", 2, *made, 5)

    run(scenario())


def test_a_gradient_of_an_older_version_is_not_received():
    async def scenario():
        async with torch_shares().serve() as shares:
            made = gradient_of(shares.strategy._mirror, 1)
            await shares.update((*made, 5))
            assert await shares.give("s", 9, *made, 5, version=0) == [False, False]
            assert [set(each._held.staged) for each in shares.servicers] == [set()] * 2

    run(scenario())


def test_a_server_that_lost_its_memory_ends_the_era():
    async def scenario():
        async with torch_shares().serve() as shares:
            made = gradient_of(shares.strategy._mirror, 1)
            await shares.give("s", 1, *made, 5)
            shares.strategy.stage(Staged("s", 1, 5, is_staged=True), 1.0)
            life = (await shares.ring.complete())[1]
            shares.ring.announced(ServerLife(life.replica, "another", life.address))
            await asyncio.wait_for(shares.strategy.lost(), 60)
            with pytest.raises(ParametersLostError, match=r"ps-1 was lost"):
                await shares.strategy.commit()

    run(scenario())


def test_a_server_that_ends_in_the_midst_of_a_commit_ends_the_era():
    async def scenario():
        async with torch_shares().serve() as shares:
            made = gradient_of(shares.strategy._mirror, 1)
            await shares.give("s", 1, *made, 5)
            shares.strategy.stage(Staged("s", 1, 5, is_staged=True), 1.0)
            async with shares.servicers[0]._held.store.lock:
                committing = asyncio.ensure_future(shares.strategy.commit())
                # The other one has made it.
                while shares.servicers[1]._held.store.version == 0:
                    await asyncio.sleep(0.01)
                shares.ring.gone(ReplicaId("ps", 0, 1))
                with pytest.raises(ParametersLostError):
                    await committing
            shares.ring.announced(
                ServerLife(ReplicaId("ps", 0, 2), "again", shares.strategy._servers[0].life.address)
            )
            store = store_of("torch", OPTIMIZERS["torch-adam"][1])
            await shares.begin_era(store)
            await same(shares.strategy, store)

    run(scenario())


def test_servers_that_nobody_reaches_end_the_job_at_last():
    async def scenario():
        shares = torch_shares(1)
        rules = replace(shares.rules, first_s=0.1, limit_s=0.1)
        store = store_of("torch", OPTIMIZERS["torch-adam"][1])
        said = []
        for launch in range(1, MAX_HANGS + 1):
            # Port 9 discards.
            life = ServerLife(ReplicaId("ps", 0, launch), "life", "127.0.0.1:9")
            shares.ring.announced(life)
            strategy = ServerParameters(store, shares.ring, rules, lambda _: None)
            with pytest.raises((ParametersLostError, TrainingError)) as error:
                await strategy.start()
            said.append((type(error.value), str(error.value)))
            assert [replica for replica, _ in shares.ring.to_replace()] == [life.replica]
            shares.ring.fence(life.replica)
            await strategy.close()
        what = "ps-0 has not taken its share of version 0 within 0.1 s"
        assert said[:-1] == [(ParametersLostError, what)] * (MAX_HANGS - 1)
        assert said[-1] == (
            TrainingError,
            f"{what}, nor has another in its place: see `elastic logs ps-0`",
        )

    run(scenario())


def test_a_server_that_takes_a_load_and_never_answers_counts_as_lost():
    async def scenario():
        async with torch_shares().serve() as shares:
            rules = replace(shares.rules, first_s=0.2, limit_s=0.2)
            store = store_of("torch", OPTIMIZERS["torch-adam"][1])
            strategy = ServerParameters(store, shares.ring, rules, lambda _: None)
            async with shares.servicers[0]._loading:
                with pytest.raises(ParametersLostError, match="ps-0 has not taken its share"):
                    await strategy.start()
            await strategy.close()

    run(scenario())


def test_an_optimizer_that_fails_ends_the_job():
    class Failing(torch.optim.SGD):
        def step(self, closure=None):
            raise RuntimeError("no step today")

    async def scenario():
        async with Shares("torch", partial(Failing, lr=0.1), 2).serve() as shares:
            with pytest.raises(TrainingError, match=r"failed at step 1: .*no step today"):
                await shares.update((*gradient_of(shares.strategy._mirror, 1), 5))

    run(scenario())


def test_a_rate_that_a_callback_sets_is_not_passed_over():
    async def scenario():
        async with torch_shares().serve() as shares:
            updater = shares.strategy._mirror.updater
            updater._optimizer.param_groups[0]["lr"] = 0.5
            with pytest.raises(TrainingError, match=r"set the learning rate from 0.01 to 0.5"):
                await shares.strategy.commit()

    run(scenario())


def hooked(parameters):
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    optimizer.register_step_pre_hook(lambda *_: None)
    return optimizer


class Constrained(keras.Model):
    def __init__(self):
        super().__init__()
        self.own = self.add_weight(shape=(3,), name="own", constraint="non_neg")

    def call(self, features):
        return features


def scaled():
    return keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1))


@pytest.mark.parametrize(
    ("framework", "optimizer", "net", "num_servers", "message"),
    [
        ("torch", hooked, None, 2, r"a SGD with a hook of its step, .* --num_ps 1"),
        ("torch", hooked, None, 1, ""),
        (
            "keras",
            partial(keras.optimizers.SGD, 0.1, global_clipnorm=1.0),
            None,
            2,
            "a SGD with global_clipnorm, which looks at all gradients at once",
        ),
        ("keras", scaled, None, 2, "with a scaled loss"),
        ("keras", partial(keras.optimizers.SGD, 0.1), Constrained, 1, "constrain constrained/own"),
        (
            "torch",
            partial(OwnSGD, lr=0.1),
            None,
            5,
            "num_ps=5 are more servers than the model's 4 parameters can be spread over",
        ),
    ],
)
def test_what_servers_would_do_otherwise_is_refused(
    framework, optimizer, net, num_servers, message
):
    async def scenario():
        shares = Shares(framework, optimizer, num_servers)
        store = store_of(framework, optimizer, net)
        if not message:
            ServerParameters(store, shares.ring, shares.rules, lambda _: None)
            return
        with pytest.raises(ModelDefError, match=message):
            ServerParameters(store, shares.ring, shares.rules, lambda _: None)

    run(scenario())


def test_parameters_of_other_servers_take_no_memory():
    framework = load_framework("torch")
    whole = {"a": np.broadcast_to(np.zeros((), np.float32), (1 << 30, 8)), "b": np.ones(3, "f4")}
    model_def = model_def_of("torch", partial(torch.optim.Adam, lr=0.1))
    share, updater = framework.build_share(model_def, whole, {"b": whole["b"]}, {})
    updater.apply({"b": np.ones(3, np.float32)})
    assert list(share.parameters()) == ["b"]
    assert set(updater.state().tensors) == {"b/step", "b/exp_avg", "b/exp_avg_sq"}


@pytest.mark.parametrize("name", SERVER_METHODS)
@pytest.mark.parametrize("token", ["", "Bearer ", "Bearer another", f"Bearer {TOKEN}X"])
def test_only_the_jobs_own_token_opens_a_method(name, token):
    async def scenario():
        async with torch_shares(1).serve() as shares:
            there = await values_of(shares)
            refusal = await _refusal(shares, name, b"", token)
            assert_alike(await values_of(shares), there)
            assert not shares.servicers[0].left.is_set()
            return refusal

    code, message = run(scenario())
    assert code is grpc.StatusCode.UNAUTHENTICATED
    assert message.startswith("elastic.v1.Server needs this job's token")


@pytest.mark.parametrize("name", [name for name in SERVER_METHODS if name != "Leave"])
@pytest.mark.parametrize("garbage", [b"\xff\xff\xff", b"\x12\x05abc"])
def test_bytes_that_are_no_message_change_nothing(name, garbage):
    async def scenario():
        async with torch_shares(1).serve() as shares:
            there = await values_of(shares)
            refusal = await _refusal(shares, name, garbage, f"Bearer {TOKEN}")
            assert_alike(await values_of(shares), there)
            return refusal

    code, _ = run(scenario())
    assert code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION)


async def _refusal(shares, name, request, token):
    """The status and message that a server ends a call with, whatever it streams."""
    address = (await shares.ring.complete())[0].address
    method = SERVER_METHODS[name]
    kinds = [
        "stream" if each else "unary" for each in (method.streams_requests, method.streams_replies)
    ]
    async with grpc.aio.insecure_channel(address) as channel:
        call = getattr(channel, "_".join(kinds))(method.path)(
            iter([request]) if method.streams_requests else request,
            metadata=(("authorization", token),),
        )
        with pytest.raises(grpc.RpcError) as error:
            await (_read_all(call) if method.streams_replies else call)
    return error.value.code(), error.value.details()


async def _read_all(call):
    while await call.read() is not grpc.aio.EOF:
        pass


class GoneMaster(MasterClient):
    """Of a master that has left; `address` is what the server would have told it."""

    def __init__(self):
        super().__init__(lambda: "127.0.0.1:1", TOKEN, patience_s=PATIENCE_S)
        self.is_told = threading.Event()

    def register_server(self, request):
        self.address = request.address
        self.is_told.set()
        return super().register_server(request)


def test_a_server_that_is_told_to_leave_waits_for_no_master():
    client = GoneMaster()
    serving = Serving(client, ReplicaId("ps", 0, 1), "life", TOKEN, "127.0.0.1", None)

    async def leave():
        server = AsyncServerClient(client.address, TOKEN)
        await server.leave(PATIENCE_S)
        await server.close()

    process = threading.Thread(target=lambda: asyncio.run(serving.run()), daemon=True)
    process.start()
    assert client.is_told.wait(PATIENCE_S)
    run(leave())
    process.join(PATIENCE_S / 10)
    assert not process.is_alive()
