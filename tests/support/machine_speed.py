"""How fast the cores of this machine are while a run lasts.

A virtual machine of two cores has two whole ones on one day, and on another both threads of one
that other guests use as well: the same run took 26 and 51 minutes. A limit in minutes would judge
the neighbours. So a small fixed work is done all through the run, and the processor time that it
takes beside all that the tests do is compared with what it takes on a core of its own.
"""

import argparse
import inspect
import threading
import time
from contextlib import contextmanager
from pathlib import Path

PERIOD_S = 15.0
REFERENCE_S = 0.048
"""Processor time of the work on a core of its own, where the other computes nothing: the fastest
tenths of a second of an idle machine of two cores."""
_SOURCE = inspect.getsource(argparse)
_NUM_TIMES = 3


def work_s():
    """Processor time of the work, in seconds.

    Source is compiled, which makes many small objects, as most of what tests do: where the caches
    are shared it loses as much as they do. A sum of numbers loses half of that.
    """
    began_s = time.thread_time()
    for _ in range(_NUM_TIMES):
        compile(_SOURCE, "argparse.py", "exec")
    return time.thread_time() - began_s


def stolen_share(before, after):
    """Of the time in which a core had something to do, what the host gave to others."""
    used = [now - then for then, now in zip(before, after, strict=True)]
    idle, stolen = used[3] + used[4], used[7]
    return stolen / ((sum(used) - idle) or 1)


def core_times():
    """Ticks of all cores: user, nice, system, idle, iowait, irq, softirq, steal (`man proc`)."""
    return [int(ticks) for ticks in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]


class MachineSpeed:
    """Measures while it is entered, in a thread of its own.

    Attributes:
        mean: Speed of a core since it was entered, 1 on the machine that the limit was set for, and
            never above: a faster one has no shorter limit.
    """

    def __init__(self):
        self._times_s = []
        self._before = core_times()
        self._ended = threading.Event()

    @property
    def mean(self):
        times_s = self._times_s or [work_s()]
        # Of the times, not of their reciprocals: work that is given takes as long as their sum.
        speed = REFERENCE_S * len(times_s) / sum(times_s)
        return min(1.0, speed) * (1 - stolen_share(self._before, core_times()))

    @contextmanager
    def measured(self):
        thread = threading.Thread(target=self._measure, name="speed of the machine")
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            thread.join()

    def _measure(self):
        while True:
            self._times_s.append(work_s())
            if self._ended.wait(PERIOD_S):
                return
