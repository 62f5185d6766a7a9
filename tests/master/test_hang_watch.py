"""A master whose event loop or work stands still is told of, and no other."""

import asyncio
import threading
import time

import pytest

from elastic.master import hang_watch
from elastic.master.hang_watch import HangWatch


def hold(until):
    until.wait()


async def on_the_loop(_watch, function, *arguments):
    function(*arguments)


async def in_a_thread(watch, function, *arguments):
    def work():
        with watch.over("work"):
            function(*arguments)

    await asyncio.to_thread(work)


anywhere = pytest.mark.parametrize("do", [on_the_loop, in_a_thread])


def watched(work, limit_s, monkeypatch, first_s=None):
    """What the watch tells while `work` is done; it is given an event that the watch sets."""
    monkeypatch.setattr(hang_watch, "TICK_S", 0.05)
    told, was_told = [], threading.Event()

    def tell(message):
        told.append(message)
        was_told.set()

    async def run():
        watch = HangWatch(limit_s, first_s or limit_s, tell)
        watch.start()
        try:
            await work(watch, was_told)
        finally:
            watch.stop()

    asyncio.run(run())
    return told


@anywhere
def test_where_it_stands_is_told_once(do, monkeypatch):
    async def work(watch, was_told):
        await do(watch, hold, was_told)
        await asyncio.sleep(0.5)

    [message] = watched(work, 0.3, monkeypatch)
    at = f"({__file__}:{hold.__code__.co_firstlineno + 1})"
    assert message.endswith(f" {at} hangs: training has stood still for 0.3 s")


@anywhere
def test_our_own_code_may_wait_for_a_disk(do, monkeypatch, caplog):
    monkeypatch.setattr(hang_watch, "stuck_in", lambda frame: None)

    async def work(watch, _):
        await do(watch, time.sleep, 1.0)

    assert watched(work, 0.3, monkeypatch) == []
    assert "training has stood still for 0.3 s in code of its own" in caplog.text


@anywhere
def test_what_goes_on_now_and_then_is_left_alone(do, monkeypatch):
    async def work(watch, _):
        for _ in range(25):
            await do(watch, time.sleep, 0.1)
            await asyncio.sleep(0.01)

    assert watched(work, 2.0, monkeypatch) == []


def test_a_thread_is_watched_no_longer_than_it_asks_for(monkeypatch):
    async def work(watch, _):
        def fail():
            with watch.over("work"):
                raise RuntimeError

        def fail_and_stay():
            with pytest.raises(RuntimeError):
                fail()
            time.sleep(1.0)

        await asyncio.to_thread(fail_and_stay)

    assert watched(work, 0.3, monkeypatch) == []


@pytest.mark.parametrize(
    ("hung", "limit_s"),
    [
        pytest.param("update", 3.0, id="what-is-usual"),
        pytest.param("copy", 4.0, id="the-second"),
        pytest.param("export", 4.0, id="the-first"),
    ],
)
def test_work_has_several_times_what_is_usual_and_more_while_nobody_knows(
    hung, limit_s, monkeypatch
):
    async def work(watch, was_told):
        def take(name, seconds):
            with watch.over(name):
                was_told.wait(seconds)

        # The first one compiles, and is not usual.
        for taken_s in (1.2, 0.6, 0.5):
            await asyncio.to_thread(take, "update", taken_s)
        await asyncio.to_thread(take, "copy", 1.2)
        assert not was_told.is_set()
        await asyncio.to_thread(take, hung, 60.0)

    [message] = watched(work, 0.3, monkeypatch, first_s=4.0)
    told_s = float(message.rpartition(" for ")[2].removesuffix(" s"))
    # The ticks of a busy machine are longer than they should be, so fewer of them were counted.
    assert 0.5 * limit_s < told_s <= limit_s + 0.3
