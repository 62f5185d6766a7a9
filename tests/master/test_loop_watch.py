"""A master whose event loop stands still is told of, and no other."""

import asyncio
import threading
import time

from elastic.master import loop_watch
from elastic.master.loop_watch import LoopWatch


def hold(until):
    until.wait()


def watched(work, limit_s, monkeypatch):
    """What the watch tells while `work` is done; it is given an event that the watch sets."""
    monkeypatch.setattr(loop_watch, "TICK_S", 0.05)
    told, was_told = [], threading.Event()

    def tell(message):
        told.append(message)
        was_told.set()

    async def run():
        watch = LoopWatch(limit_s, tell)
        watch.start()
        try:
            await work(was_told)
        finally:
            watch.stop()

    asyncio.run(run())
    return told


def test_where_it_stands_is_told_once(monkeypatch):
    async def work(was_told):
        hold(was_told)
        await asyncio.sleep(0.5)

    [message] = watched(work, 0.3, monkeypatch)
    assert f"{__file__}:{hold.__code__.co_firstlineno + 1}) hangs: the master has stood" in message


def test_our_own_code_may_wait_for_a_disk(monkeypatch, caplog):
    monkeypatch.setattr(loop_watch, "stuck_in", lambda frame: None)

    async def work(_):
        time.sleep(1.0)

    assert watched(work, 0.3, monkeypatch) == []
    assert "the master has stood still for 0.3 s in code of its own" in caplog.text


def test_a_loop_that_answers_now_and_then_goes_on(monkeypatch):
    async def work(_):
        for _ in range(25):
            time.sleep(0.1)
            await asyncio.sleep(0.01)

    assert watched(work, 2.0, monkeypatch) == []
