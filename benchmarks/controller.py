"""A whole controller with up to a thousand jobs of ten pods each: how soon it acts, what it takes.

The API server is one of this process, so that no cluster's pace is measured; the controller is a
process of its own, which asks it over HTTP for all that it does.
"""

import json
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil

from benchmarks.many_jobs import NUM_PODS, World, kubeconfig, world
from benchmarks.measure import Bar, Ratio, Series
from benchmarks.processes import Server
from benchmarks.sizes import Size

GROWTH_BAR: Final = Bar(first=1.2, goal=1.05, is_ceiling=True)
"""Of the exponent: 1 is in proportion to the jobs."""

SILENCE_BAR: Final = Bar(first=0.0, goal=0.0, is_ceiling=True)

FAILURE_PAUSE_S: Final = 0.05
NUM_REQUESTS: Final = 200


@dataclass(frozen=True, slots=True)
class Findings:
    """One controller with a number of jobs.

    Attributes:
        start_ms: Of its processor time for a job, from the job's creation until all of it runs.
        json_ms: Of this process's, to write the objects of a job as JSON and to read them, once.
        memory_kb: Of its memory for a job, once it runs.
        json_kb: Of the objects of a job, as JSON.
        median_ms: From a pod's failure to the first write about its job.
        p99_ms: Of the same, what one in a hundred takes longer than.
        request_ms: Of one request of the same server, in the median.
        event_ms: Of its processor time for a failure and all that follows from it.
        num_passes: Over jobs in which something had changed that means nothing.
        num_writes: In those.
    """

    start_ms: float
    json_ms: float
    memory_kb: float
    json_kb: float
    median_ms: float
    p99_ms: float
    request_ms: float
    event_ms: float
    num_passes: float
    num_writes: float


def run(size: Size) -> list[Ratio]:
    """Ratios for each number of jobs, and how they grow."""
    rounds = [
        [find(count, size.num_failures) for count in size.job_counts]
        for _ in range(size.job_rounds)
    ]
    columns = list(zip(*rounds, strict=True))
    of_count = [
        ratio
        for count, column in zip(size.job_counts, columns, strict=True)
        for ratio in _ratios(f"controller, {count:,} jobs", column)
    ]
    return [*of_count, *_growth(size.job_counts, rounds)]


def find(num_jobs: int, num_failures: int) -> Findings:
    """Run a controller with so many jobs."""
    from support.scraping import free_ports

    port = free_ports()
    with tempfile.TemporaryDirectory() as folder, world(num_jobs) as jobs:
        config = kubeconfig(jobs.api, Path(folder))
        with Server("benchmarks.controller_process", config, "--port", port) as server:
            memory = psutil.Process(server.ready["pid"]).memory_info
            jobs.wait(lambda: _is_ready(port))
            began_s, began_bytes = server.cpu_s(), memory().rss
            jobs.submit()
            jobs.wait(jobs.are_running)
            jobs.wait_for_rest()
            start_s, grown_bytes = server.cpu_s() - began_s, memory().rss - began_bytes
            passes, writes = _passes(port), jobs.num_writes
            jobs.touch()
            jobs.wait(lambda: _passes(port) >= passes + num_jobs)
            jobs.wait_for_rest()
            passes, writes = _passes(port) - passes, jobs.num_writes - writes
            before_s = server.cpu_s()
            times_ms = [
                each * 1e3
                for each in jobs.answer_times_s(num_failures, FAILURE_PAUSE_S, random.Random(1))
            ]
            event_s = (server.cpu_s() - before_s) / num_failures
            return Findings(
                start_ms=start_s / num_jobs * 1e3,
                json_ms=_json_s(jobs) / num_jobs * 1e3,
                memory_kb=grown_bytes / num_jobs / 1e3,
                json_kb=jobs.size_bytes() / num_jobs / 1e3,
                median_ms=float(np.median(times_ms)),
                p99_ms=float(np.quantile(times_ms, 0.99)),
                request_ms=_request_s(jobs) * 1e3,
                event_ms=event_s * 1e3,
                num_passes=passes,
                num_writes=writes,
            )


def _ratios(name: str, rounds: Sequence[Findings]) -> list[Ratio]:
    def series(what: str, unit: str, field: str) -> Series:
        return Series(what, unit, tuple(getattr(each, field) for each in rounds))

    request = series("one request of the same server", "ms", "request_ms")
    failure = "a pod fails, to the first write about its job"
    return [
        Ratio(
            f"{name}, event to action, median", series(failure, "ms", "median_ms"), request, None
        ),
        Ratio(f"{name}, event to action, p99", series(failure, "ms", "p99_ms"), request, None),
        Ratio(
            f"{name}, processor time of a job",
            series(f"until all {NUM_PODS} pods run", "ms", "start_ms"),
            series("its objects written as JSON and read, once", "ms", "json_ms"),
            None,
        ),
        Ratio(
            f"{name}, memory of a job",
            series("resident", "KB", "memory_kb"),
            series("its objects as JSON", "KB", "json_kb"),
            None,
        ),
        Ratio(
            f"{name}, writes of unchanged passes",
            series("writes", "writes", "num_writes"),
            series("passes over jobs with a new annotation", "passes", "num_passes"),
            SILENCE_BAR,
        ),
    ]


def _growth(counts: Sequence[int], rounds: Sequence[Sequence[Findings]]) -> list[Ratio]:
    """How processor time and memory of all jobs together grow with their number."""
    exponents = [
        Ratio(
            f"controller, growth of {what}",
            Series(f"exponent of {what} by jobs", "exponent", tuple(found)),
            Series("in proportion", "exponent", (1.0,) * len(rounds)),
            GROWTH_BAR,
        )
        for what, found in (
            ("processor time", [_exponent(counts, [f.start_ms for f in each]) for each in rounds]),
            ("memory", [_exponent(counts, [f.memory_kb for f in each]) for each in rounds]),
        )
    ]
    fewest, most = (
        Series(
            f"of the controller for a failure, {counts[at]:,} jobs", "ms",
            tuple(each[at].event_ms for each in rounds),
        )
        for at in (0, -1)
    )  # fmt: skip
    return [*exponents, Ratio("controller, processor time of an event", most, fewest, None)]


def _exponent(counts: Sequence[int], of_one: Sequence[float]) -> float:
    """By least squares on logarithms; `of_one` is for one job each."""
    totals = np.multiply(counts, of_one)
    return float(np.polyfit(np.log(counts), np.log(totals), 1)[0])


def _is_ready(port: int) -> bool:
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer:
            return bool(answer.status == 200) and _leads(port)
    except (urllib.error.URLError, OSError):
        return False


def _leads(port: int) -> bool:
    from support.scraping import scrape, value

    return bool(value(scrape(port), "elastic_controller_leader") == 1)


def _passes(port: int) -> float:
    from support.scraping import scrape

    samples: dict[str, Any] = scrape(port)
    return float(sum(count for _, count in samples["elastic_controller_passes_total"]))


def _json_s(jobs: World) -> float:
    """Processor time, in seconds, of writing all objects as JSON and reading them."""
    items = jobs.objects()
    began_s = time.process_time()
    for item in items:
        json.loads(json.dumps(item))
    return time.process_time() - began_s


def _request_s(jobs: World) -> float:
    """Of one request, in the median; a pod is read by a client like the controller's."""
    cluster = jobs.api.cluster()
    times_s = []
    for _ in range(NUM_REQUESTS):
        began_s = time.perf_counter()
        cluster.get("/api/v1/nodes/node-0")
        times_s.append(time.perf_counter() - began_s)
    return float(np.median(times_s))
