"""A plugin of pytest that tells where a run's time went, by folder and by cause.

Several times a second it looks at what the processes of a test are doing, its own and all that it
has started. What it finds is the cause of the time since it looked last:

- *starting*: one of them is an interpreter that starts, or imports modules;
- *computing*: none starts, and together they use a core for a fifth of the time or more, or one
  of them waits for a core;
- *pods*: none does either, and the test is one of the cluster, whose pods are no children of ours;
- *waiting*: none does either.

Times are summed over tests, so that those of several processes side by side add up to more than the
run took.
"""

import bisect
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path

import pytest

from support.starts.sitecustomize import ImportTeller

CAUSES = ("starting", "computing", "pods", "waiting")
STARTS_VARIABLE = "ELASTIC_TEST_STARTS"
REPORT_VARIABLE = "ELASTIC_TEST_REPORT"
"""Names a file for the times of a run and for what failed, for who puts several runs together."""

NUM_LONGEST = 20
LONG_S = 1.0
PERIOD_S = 0.2
BUSY = 0.2
"""Cores in use from which on processes compute, and do not just look whether there is news."""
_SURE_AFTER_LOOKS = 5
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PROPERTY = "seconds by cause"


class Observer:
    """Looks at this process and all that were started by it, in a thread of its own."""

    def __init__(self, starts):
        self._starts = starts
        self._mark = f"{STARTS_VARIABLE}={starts}\0".encode()
        self._ours = {os.getpid()}
        self._strangers = {}
        self._used_ticks = {}
        self._is_runnable = False
        self._looks = []
        threading.Thread(target=self._look_often, daemon=True, name="where time goes").start()

    def causes(self, began_s, ended_s, of_cluster):
        """Seconds by cause between two times; forgets what was before them."""
        starts = self._read_starts()
        looks, self._looks = self._looks, []
        seconds = Counter()
        for since_s, until_s, is_busy in looks:
            length_s = min(until_s, ended_s) - max(since_s, began_s)
            if length_s > 0:
                seconds[_cause(starts, (since_s + until_s) / 2, is_busy, of_cluster)] += length_s
        # Tests that are shorter than a look: they have computed.
        seconds["computing"] += max(0.0, ended_s - began_s - seconds.total())
        return {cause: round(seconds[cause], 3) for cause in CAUSES}

    def _read_starts(self):
        with suppress(FileNotFoundError):
            lines = self._starts.read_text().splitlines()
            self._starts.unlink()
            return _merged([list(map(float, line.split())) for line in lines])
        return []

    def _look_often(self):
        since_s = time.time()
        while True:
            time.sleep(PERIOD_S)
            try:
                used_s = self._count_ticks() / _TICKS_A_SECOND
            except (OSError, MemoryError):
                # The test lets its process have no more files or memory: the next look is for this
                # time as well.
                continue
            until_s = time.time()
            is_busy = self._is_runnable or used_s >= BUSY * (until_s - since_s)
            self._looks.append((since_s, until_s, is_busy))
            since_s = until_s

    def _count_ticks(self):
        """Processor time of all of ours since the last look that was possible."""
        names = os.listdir("/proc")  # noqa: PTH208 - a tenth of the time of `iterdir`
        pids = [int(name) for name in names if name.isdigit()]
        self._ours.intersection_update(pids)
        self._strangers = {pid: self._strangers.get(pid, 0) for pid in pids}
        used_ticks, self._is_runnable = {}, False
        for pid in pids:
            if self._strangers[pid] < _SURE_AFTER_LOOKS:
                # One that cannot be read is one as well: it has ended, is another user's, or the
                # kernel's, of which there are a hundred.
                self._strangers[pid] += 1
                with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                    self._look_at(pid, used_ticks)
        before, self._used_ticks = self._used_ticks, used_ticks
        return sum(ticks - before.get(pid, 0) for pid, ticks in used_ticks.items())

    def _look_at(self, pid, used_ticks):
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        # Looked at more than once: it may be one of ours that is about to become another program.
        if pid in self._ours or int(fields[1]) in self._ours or self._has_mark(pid):
            self._ours.add(pid)
            self._strangers[pid] = 0
            self._is_runnable |= fields[0] == b"R"
            used_ticks[pid] = int(fields[11]) + int(fields[12])

    def _has_mark(self, pid):
        return self._mark in _read(f"/proc/{pid}/environ")


def _read(path):
    # What a `Path` makes of it takes longer than to read it.
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123
        return file.read()


def _merged(spans):
    merged = []
    for began_s, ended_s in sorted(spans):
        if merged and began_s <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], ended_s)
        else:
            merged.append([began_s, ended_s])
    return merged


def _cause(starts, time_s, is_busy, of_cluster):
    at = bisect.bisect(starts, [time_s, float("inf")]) - 1
    if at >= 0 and starts[at][0] <= time_s <= starts[at][1]:
        return "starting"
    if is_busy:
        return "computing"
    return "pods" if of_cluster else "waiting"


def table(tests):
    """Lines that tell the times of tests, given by test as seconds by cause."""
    folders = defaultdict(list)
    for name, causes in tests.items():
        folders["/".join(name.split("/")[:2])].append(causes)
    yield f"{'':28}{'tests':>6}" + "".join(f"{cause:>11}" for cause in (*CAUSES, "seconds"))
    for folder, rows in sorted(folders.items(), key=lambda item: -sum_of(item[1]).total()):
        yield _row(folder, rows)
    yield _row("all", list(tests.values()))
    longest = sorted(tests, key=lambda name: -sum(tests[name].values()))
    for name in longest[:NUM_LONGEST]:
        if sum(tests[name].values()) < LONG_S:
            break
        yield f"{sum(tests[name].values()):7.1f} s  {name}"


def sum_of(rows):
    """Seconds by cause of all rows."""
    total = Counter()
    for row in rows:
        total.update(row)
    return total


def _row(name, rows):
    total = sum_of(rows)
    seconds = [*(total[cause] for cause in CAUSES), total.total()]
    return f"{name:28}{len(rows):6}" + "".join(f"{value:11.0f}" for value in seconds)


class TimeByCause:
    """What pytest calls in each process that runs tests, and in the one that reports."""

    def __init__(self):
        self._starts = Path(tempfile.mkdtemp(prefix="starts-")) / "spans"
        os.environ[STARTS_VARIABLE] = str(self._starts)
        folder = str(Path(__file__).parent / "starts")
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, paths)])
        # Tests hand their own path on to what they start.
        sys.path.append(folder)
        sys.meta_path.insert(0, ImportTeller(self._starts))
        self._observer = Observer(self._starts)
        self._began_s = time.time()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        if call.when == "setup":
            self._began_s = call.start
        if call.when == "teardown":
            of_cluster = item.get_closest_marker("cluster") is not None
            causes = self._observer.causes(self._began_s, call.stop, of_cluster)
            item.user_properties.append((_PROPERTY, causes))
        return (yield)


class Report:
    """Puts the times of all processes together, and tells them at the end."""

    def __init__(self):
        self._tests = {}
        self._failed = {}

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self._failed[report.nodeid] = True
        causes = dict(report.user_properties).get(_PROPERTY)
        if causes:
            self._tests[report.nodeid] = causes

    def pytest_terminal_summary(self, terminalreporter):
        path = os.environ.get(REPORT_VARIABLE)
        if path:
            told = {"tests": self._tests, "failed": list(self._failed)}
            Path(path).write_text(json.dumps(told))
        else:
            for line in table(self._tests):
                terminalreporter.write_line(line)


def pytest_configure(config):
    is_one_of_several = hasattr(config, "workerinput")
    runs_tests = is_one_of_several or not getattr(config.option, "numprocesses", None)
    if runs_tests:
        config.pluginmanager.register(TimeByCause())
    if not is_one_of_several:
        config.pluginmanager.register(Report())
