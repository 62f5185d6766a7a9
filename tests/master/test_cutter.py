"""Cuts are written one after the other, also where nobody waits for one any more."""

import asyncio
import contextlib
import threading

from support.fence_contract import FakeFence
from support.served_master import PATIENCE_S, ServedMaster

from elastic.checkpoints.cuts import list_cuts, read_cut, write_cut
from elastic.master import cutter


class HeldDisk:
    """Writes cuts, the first not before it is told to; knows how many were written at once."""

    def __init__(self):
        self.is_held = threading.Event()
        self.goes_on = threading.Event()
        self.most_at_once = 0
        self._at_once = 0

    def write_cut(self, folder, cut, check):
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            if not self.is_held.is_set():
                self.is_held.set()
                assert self.goes_on.wait(PATIENCE_S)
            return write_cut(folder, cut, check)
        finally:
            self._at_once -= 1


def plan(folder):
    return cutter.CutPlan(folder, None, "job", "run")


async def _write_the_last_cut_while_another_is_given_up(folder, disk):
    master = ServedMaster()
    one = cutter.Cutter(master.job, plan(folder), lambda *event: events.append(event))
    events = []
    cutting = asyncio.create_task(one.run(0.0))
    await asyncio.to_thread(disk.is_held.wait, PATIENCE_S)
    cutting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await cutting
    final = asyncio.create_task(one.final_checkpoint())
    # Long enough to write it, if it did not wait for the other one.
    done, _ = await asyncio.wait([final], timeout=0.5)
    disk.goes_on.set()
    assert not done
    assert await final
    assert events == []
    return one.newest_checkpoint


def test_the_last_cut_waits_for_one_that_is_written_for_nobody(tmp_path, monkeypatch):
    disk = HeldDisk()
    monkeypatch.setattr(cutter, "write_cut", disk.write_cut)
    path = asyncio.run(_write_the_last_cut_while_another_is_given_up(tmp_path, disk))
    assert disk.most_at_once == 1
    assert list_cuts(tmp_path) == [path]
    assert read_cut(path).version == 0


def test_a_recovery_cut_waits_for_the_update_under_way(tmp_path):
    async def play():
        master = ServedMaster()
        cuts = cutter.Cutter(master.job, plan(tmp_path), lambda *event: None)
        async with master.store.lock:
            cutting = asyncio.create_task(cuts.recovery_cut())
            # Long enough to write one, if it did not wait.
            done, _ = await asyncio.wait([cutting], timeout=0.5)
            assert not done
            master.store.version = 1
        assert await cutting

    asyncio.run(play())
    assert [read_cut(path).version for path in list_cuts(tmp_path)] == [1]


def test_a_cut_that_is_fenced_while_it_is_written_is_seen_only_when_the_fence_opens(tmp_path):
    fence = FakeFence()
    asked = []

    class ClosesAfterTheFirst:
        """Lets the writing begin, and closes before what was written can be seen."""

        def check(self):
            asked.append(fence.is_open)
            fence.check()
            fence.is_open = len(asked) != 1

    async def play():
        master = ServedMaster()
        cuts = cutter.Cutter(
            master.job, plan(tmp_path), lambda *event: None, fence=ClosesAfterTheFirst()
        )
        cutting = asyncio.create_task(cuts.recovery_cut())
        while len(asked) < 4:
            await asyncio.sleep(0.01)
        assert list(tmp_path.iterdir()) == []
        fence.is_open = True
        assert await cutting

    asyncio.run(asyncio.wait_for(play(), PATIENCE_S))
    assert asked[:2] == [True, False]
    assert [path.name for path in tmp_path.iterdir()] == ["version-0000000000"]
