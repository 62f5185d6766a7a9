"""What loop and step rely on, wherever parameters live: in the master, or on servers."""

import asyncio
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from support.served_master import NUM_RECORDS, TOKEN, ServedMaster, counts_of, parts_of

from elastic.frameworks.base import StepResult
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.client import MasterClient
from elastic.rpc.layout import ModelBuffer
from elastic.rpc.wire import task_from_proto
from elastic.worker.servers import ServerExchange
from elastic.worker.strategy import (
    Contribution,
    LeaseLostError,
    MasterExchange,
    Outcome,
    PulledParameters,
)

SIZE = 8


pytestmark = pytest.mark.parametrize(
    "num_ps", [0, 1, 2], ids=["in-master", "one-server", "servers"]
)


class Model:
    """Counts records; its state counts steps, and every gradient moves it."""

    frozen_names = ()

    def __init__(self, is_spread):
        self.counts, self.steps = np.full(NUM_RECORDS, np.nan), np.full((), np.nan)
        self._is_spread = is_spread
        self.room = {}

    def load(self, parameters, state):
        if parameters is not None:
            self.counts = counts_of(parameters)
        self.steps = state["steps"].copy()

    def lay_gradients_in(self, arrays):
        self.room = arrays

    def gradients(self, start):
        self.steps += 1
        counts = np.zeros(NUM_RECORDS, np.float32)
        counts[start : start + SIZE] = -1 / SIZE
        state = {"steps": self.steps.copy()}
        if self._is_spread:
            return StepResult(parts_of(counts), {**state, "frozen": np.ones(5, np.float32)}, 0.5)
        gradient = {"counts": counts}
        if self.room:
            # As one who computes elsewhere and copies the gradient to this memory.
            np.copyto(self.room["counts"], counts)
            gradient = dict(self.room)
        return StepResult(gradient, state, 0.5)


class WorkerOf:
    """One worker's strategy and model, beside the client that leases its tasks."""

    def __init__(
        self,
        address,
        index,
        share_memory=True,
        updater=None,
        get_model_steps=1,
        num_ps=0,
        narrows=False,
    ):
        self._index = index
        self.client = MasterClient(lambda: address, TOKEN, 5.0, share_memory=share_memory)
        self.model = Model(num_ps > 0)
        exchange = MasterExchange(self.client, narrows=narrows)
        if num_ps:
            is_synchronous = updater is None
            exchange = ServerExchange(self.client, is_synchronous=is_synchronous, narrows=narrows)
        self.exchange = exchange
        self.strategy = PulledParameters(exchange, self.model, updater, get_model_steps)
        self.begin()

    def begin(self):
        request = pb.RegisterRequest(worker_index=self._index, launch=1, host="test", pid=1)
        session = self.client.register(request)
        self.strategy.begin(session)
        self.task = task_from_proto(self.client.get_task(session.key).task)
        self.session = session

    def compute(self, start):
        """The gradient of a minibatch of the task, on the version that the model has."""
        start += self.task.records.start
        return Contribution(self.task, start, start + SIZE, self.model.gradients(start), 0.01)

    def contribute(self, start):
        self.strategy.fill()
        return self.strategy.contribute(self.compute(start))


def play(
    scenario,
    *,
    num_ps,
    num_workers=1,
    share_memory=True,
    get_model_steps=1,
    updater=None,
    narrows=False,
    **settings,
):
    """Play a scenario of workers in a thread, against a fresh master that waits for no group."""

    async def serve():
        own_steps = {"get_model_steps": get_model_steps, "use_async": True} if updater else {}
        rules = {"grads_to_wait": 1, **own_steps, **settings}
        master = ServedMaster(num_ps=num_ps, **rules)
        master.loop = asyncio.get_running_loop()
        async with master.serve() as peer:

            def workers():
                made = [
                    WorkerOf(
                        peer.address,
                        index,
                        share_memory,
                        updater,
                        get_model_steps,
                        num_ps,
                        narrows,
                    )
                    for index in range(num_workers)
                ]
                try:
                    scenario(master, *made)
                finally:
                    for worker in made:
                        worker.client.close()

            await asyncio.to_thread(workers)

    asyncio.run(asyncio.wait_for(serve(), 300))


def newest(master):
    """The counts of the newest version, asked for from a worker's thread."""
    return asyncio.run_coroutine_threadsafe(master.newest_counts(), master.loop).result()


@pytest.mark.parametrize("share_memory", [True, False])
def test_what_was_accepted_is_in_what_is_filled_next(share_memory, num_ps):
    def scenario(master, worker):
        assert worker.contribute(0) == Outcome(is_accepted=True, version=1)
        assert worker.contribute(SIZE) == Outcome(is_accepted=True, version=2)
        worker.strategy.fill()
        assert worker.strategy.version == 2
        assert worker.model.counts.tolist() == [1.0] * 16 + [0.0] * 24
        assert worker.model.counts.tolist() == newest(master).tolist()

    play(scenario, num_ps=num_ps, share_memory=share_memory)


def test_the_version_that_an_update_made_is_there_with_its_answer(num_ps):
    """Servers are asked for it beside the master, once an answer has shown that they have it."""

    def scenario(master, worker):
        pulled = []
        get_model = worker.exchange.get_model
        worker.exchange.get_model = lambda *asked: pulled.append(asked) or get_model(*asked)
        for start in (0, SIZE):
            assert worker.contribute(start).is_accepted
        worker.strategy.fill()
        assert worker.model.counts.tolist() == newest(master).tolist()
        assert len(pulled) == (2 if num_ps else 1)

    play(scenario, num_ps=num_ps)


@pytest.mark.parametrize("share_memory", [True, False])
def test_gradients_are_rounded_where_they_are_sent_and_state_never(share_memory, num_ps):
    def scenario(master, worker):
        worker.strategy.fill()
        contribution = worker.compute(0)
        for gradient in contribution.result.gradients.values():
            # Counts are gradients by the least of them, and bfloat16 has no 1001.
            gradient[:], gradient[0] = -1001, -1
        contribution.result.state["steps"][...] = 1001
        worker.strategy.contribute(contribution)
        assert set(newest(master).tolist()) == {1, 1001 if share_memory else 1000}
        worker.strategy.fill()
        assert worker.model.steps == 1001

    play(scenario, num_ps=num_ps, share_memory=share_memory, narrows=True)


def test_versions_are_sent_by_who_has_no_memory_left_to_share(num_ps, monkeypatch):
    """The worker can map what is shared, and finds nothing that is."""
    monkeypatch.setattr(ModelBuffer, "handle", lambda _: None)

    def scenario(master, worker):
        for start in (0, SIZE):
            assert worker.contribute(start).is_accepted
        worker.strategy.fill()
        assert worker.model.counts.tolist() == newest(master).tolist()
        assert sum(worker.model.counts) == 2 * SIZE

    play(scenario, num_ps=num_ps)


def test_who_was_late_computes_again_on_the_version_that_now_is(num_ps):
    def scenario(master, early, late):
        late.strategy.fill()
        computed = late.compute(0)
        assert early.contribute(0).is_accepted
        assert late.strategy.contribute(computed) == Outcome(is_accepted=False, version=1)
        assert late.contribute(0) == Outcome(is_accepted=True, version=2)
        assert sum(newest(master)) == 2 * SIZE

    play(scenario, num_ps=num_ps, num_workers=2)


def test_records_that_were_given_away_are_not_contributed(num_ps):
    def scenario(master, worker):
        worker.strategy.fill()
        # Who asks for a task and names none in work gives back what it has.
        worker.client.get_task(worker.session.key)
        with pytest.raises(LeaseLostError):
            worker.strategy.contribute(worker.compute(0))
        worker.strategy.fill()
        assert (worker.model.steps, master.parameters.version) == (0, 0)

    play(scenario, num_ps=num_ps)


def test_a_named_version_is_as_it_is_kept_and_the_next_step_begins_with_its_state(num_ps):
    def scenario(_, worker):
        for fill in (lambda: worker.strategy.fill_version(None), worker.strategy.fill):
            fill()
            assert (worker.model.steps, worker.strategy.version) == (0, 0)
            worker.model.gradients(0)

    play(scenario, num_ps=num_ps)


def test_a_new_session_trusts_no_version_of_the_one_before(num_ps):
    def scenario(_, worker):
        worker.strategy.fill()
        worker.model.counts[:] = 7
        worker.begin()
        worker.strategy.fill()
        assert not worker.model.counts.any()
        assert worker.contribute(0).is_accepted

    play(scenario, num_ps=num_ps)


def test_own_steps_are_taken_between_two_pulls(num_ps):
    applied = []
    updater = SimpleNamespace(apply=applied.append)

    def scenario(_, worker):
        pulled = []
        get_model = worker.exchange.get_model
        worker.exchange.get_model = lambda *asked: pulled.append(asked) or get_model(*asked)
        for start in (0, SIZE):
            worker.contribute(start)
            worker.strategy.doubt_version()
        assert (len(pulled), len(applied)) == (1, 2)
        worker.strategy.fill()
        assert worker.model.counts.tolist() == [1.0] * 16 + [0.0] * 24

    play(scenario, num_ps=num_ps, get_model_steps=2, updater=updater, share_memory=False)


def test_who_has_nothing_to_do_waits_until_asked_to_stop(num_ps):
    stopping = threading.Event()
    stopping.set()
    PulledParameters(None, None, None, 1).idle(300.0, stopping)


def test_a_group_holds_what_one_worker_brings_before_it_is_full(num_ps):
    """Its first gradient waits, wherever it lies, while the second is computed and handed over."""

    def scenario(master, worker):
        assert worker.contribute(0) == Outcome(is_accepted=True, version=0)
        assert worker.contribute(SIZE) == Outcome(is_accepted=True, version=1)
        worker.strategy.fill()
        assert worker.model.counts.tolist() == [1.0] * 16 + [0.0] * 24
        assert newest(master).tolist() == worker.model.counts.tolist()

    play(scenario, num_ps=num_ps, grads_to_wait=2, num_workers=1)


@pytest.mark.parametrize("share_memory", [True, False])
def test_gradients_lie_where_the_master_of_this_session_reads_them(share_memory, num_ps):
    """Else they are copied there, or sent."""

    def work(master, worker):
        assert worker.model.room == {}
        worker.contribute(0)
        room = worker.model.room
        assert bool(room) == (share_memory and not num_ps)
        worker.contribute(8)
        assert worker.model.room is room
        counts = newest(master)
        # The master of the session before may still read there.
        worker.begin()
        assert worker.model.room == {}
        worker.contribute(0)
        if room:
            assert not np.shares_memory(worker.model.room["counts"], room["counts"])
        assert (newest(master) - counts).sum() == 8

    play(work, num_ps=num_ps, share_memory=share_memory, records_per_task=40)
