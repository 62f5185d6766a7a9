"""Which process has which place, and who has lost it."""

import asyncio

import pytest

from elastic.master.parameters.servers import MAX_HANGS, ServerLife, ServerRing
from elastic.policy.fleet import HEARTBEAT_LIMIT_S, STALL_S
from elastic.policy.replicas import ReplicaId

SET_UP_S = 30.0


def life(index, launch=1, name="life"):
    return ServerLife(ReplicaId("ps", index, launch), name, f"127.0.0.1:{index + 1}")


@pytest.fixture
def ring():
    ring = ServerRing(2, SET_UP_S, clock=lambda: ring.now_s)
    ring.now_s = 100.0
    return ring


def test_it_is_complete_when_each_place_has_a_process(ring):
    async def scenario():
        waiting = asyncio.ensure_future(ring.complete())
        ring.announced(life(0))
        ring.announced(life(0))
        await asyncio.sleep(0)
        assert (ring.missing(), waiting.done()) == ([1], False)
        ring.announced(life(1))
        assert await waiting == [life(0), life(1)]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "loses",
    [
        pytest.param(lambda ring: ring.gone(life(0).replica), id="its-launch-ends"),
        pytest.param(lambda ring: ring.announced(life(0, 2)), id="another-launch"),
        pytest.param(lambda ring: ring.announced(life(0, 1, "new")), id="the-same-launch-again"),
        pytest.param(lambda ring: ring.fence(life(0).replica), id="it-is-fenced"),
    ],
)
def test_a_place_is_lost(ring, loses):
    async def scenario():
        ring.announced(life(0))
        ring.announced(life(1))
        waiting = asyncio.ensure_future(ring.change_of([life(0), life(1)]))
        ring.gone(ReplicaId("ps", 0, 7))
        ring.announced(life(1))
        await asyncio.sleep(0)
        assert ring.has([life(0)])
        assert not waiting.done()
        loses(ring)
        await waiting
        assert not ring.has([life(0)])

    asyncio.run(scenario())


def test_who_is_fenced_has_no_place_whatever_it_says(ring):
    ring.announced(life(0))
    ring.fence(life(0).replica)
    ring.announced(life(0))
    assert ring.missing() == [0, 1]
    ring.announced(life(0, 2))
    assert ring.missing() == [1]


def wait(ring, seconds, running=()):
    """Look each second."""
    for _ in range(int(seconds)):
        ring.now_s += 1
        ring.announced(life(1))
        assert ring.to_replace(running) == []


def test_who_is_silent_for_as_long_as_a_worker_may_be_is_to_be_replaced(ring):
    ring.announced(life(0))
    wait(ring, HEARTBEAT_LIMIT_S)
    ring.now_s += 1
    silent_s = HEARTBEAT_LIMIT_S + 1
    assert ring.to_replace() == [(life(0).replica, f"gave no sign of life for {silent_s} s")]


def test_nobody_is_silent_while_the_master_stands_still(ring):
    """As on a machine that was suspended, or has far too much to do."""
    ring.announced(life(0))
    running = [life(0).replica, life(1, 2).replica]
    assert ring.to_replace(running) == []
    ring.now_s += SET_UP_S + HEARTBEAT_LIMIT_S + STALL_S
    assert ring.to_replace(running) == []
    wait(ring, HEARTBEAT_LIMIT_S, running)
    ring.now_s += 1
    assert [server for server, _ in ring.to_replace(running)] == [life(0).replica]


def test_who_runs_and_never_says_so_is_to_be_replaced(ring):
    running = [life(0).replica, life(1).replica]
    ring.announced(life(1))
    assert ring.to_replace(running) == []
    wait(ring, SET_UP_S, running)
    ring.now_s += 1
    hung = "hung in set-up: no word of it within start_timeout=30 s"
    assert ring.to_replace(running) == [(life(0).replica, hung)]
    ring.fence(life(0).replica)
    assert ring.to_replace(running) == []


def test_who_does_not_answer_is_to_be_replaced_and_the_job_ends_when_nobody_does(ring):
    ring.announced(life(0))
    for launch in range(1, MAX_HANGS):
        there = life(0, launch)
        ring.announced(there)
        assert not ring.hangs(there, 5)
        assert ring.to_replace() == [(there.replica, "did not answer in time")]
        ring.gone(there.replica)
        assert ring.to_replace() == []
    assert not ring.hangs(life(0, 9), 4)
    assert ring.hangs(life(0, 9), 5)
