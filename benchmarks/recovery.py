"""A killed worker's replacement until its first gradient counts, against a cold start."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import psutil

from benchmarks.jobs import MODEL_ZOO, Job, prepared, threads_environment
from benchmarks.measure import Bar, Ratio, Series, take_turns
from benchmarks.processes import ROOT, run_json
from benchmarks.sizes import Size
from elastic.checkpoints.cuts import list_cuts, read_cut
from elastic.platforms.base import ReplicaPhase

BAR: Final = Bar(first=1.5, goal=1.2, is_ceiling=True)
POLL_S: Final = 0.002
STEPS_BEFORE: Final = 5
TIMEOUT_S: Final = 120.0


class VictimJob:
    """A job with one worker that is killed again and again."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._log = Path(job.spec.commit_log)

    def recovery_s(self) -> float:
        """Kill the worker in the middle of its work; seconds until the next gradient counts."""
        self._wait_for_commits(STEPS_BEFORE)
        victim = psutil.Process(self._worker_pid())
        began_s = time.perf_counter()
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait(TIMEOUT_S)
        # A report that was on its way may still be counted; no replacement is as fast as this.
        time.sleep(0.2)
        self._wait_for_commits(1)
        return time.perf_counter() - began_s

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Keep the worker from computing, so that it takes no time from something else."""
        worker = psutil.Process(self._worker_pid())
        worker.suspend()
        try:
            yield
        finally:
            worker.resume()

    def _wait_for_commits(self, count: int) -> None:
        """Wait until the log, of one line an update, has so many lines more."""
        deadline_s = time.monotonic() + TIMEOUT_S
        target = self._num_commits() + count
        while self._num_commits() < target:
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"no update for {TIMEOUT_S:g} s: {self.job.status()}")
            time.sleep(POLL_S)

    def _num_commits(self) -> int:
        return self._log.read_bytes().count(b"\n") if self._log.exists() else 0

    def _worker_pid(self) -> int:
        while True:
            for observed in self.job.directory.observed():
                replica = observed.replica
                if replica.id.role == "worker" and replica.phase is ReplicaPhase.RUNNING:
                    assert replica.pid is not None
                    return replica.pid
            time.sleep(POLL_S)


def run(size: Size) -> list[Ratio]:
    """Seconds from SIGKILL to the replacement's first gradient that counts."""
    with prepared(size.num_records) as folder:
        job = Job(
            folder,
            "torch",
            size,
            num_workers="1",
            num_epochs=100_000,
            commit_log=str(folder / "commits"),
            envs=threads_environment(1),
            recovery_interval=0.5,
            # To be paused is no hang.
            hang_timeout=3600,
        )
        with job:
            victim = VictimJob(job)
            parameters = _parameters(job, folder / "parameters")
            recovery, cold = take_turns(
                size.job_rounds,
                victim.recovery_s,
                partial(_cold_start_s, size, victim, parameters),
                warmups=0,
            )
    return [
        Ratio(
            "worker killed, until the next gradient counts",
            Series("SIGKILL to first gradient of the next", "s", recovery),
            Series("import torch, build and fill the model", "s", cold),
            BAR,
        )
    ]


def _parameters(job: Job, path: Path) -> Path:
    """Write the job's parameters as one run of bytes."""
    while not (cuts := list_cuts(job.directory.cuts_path)):
        time.sleep(POLL_S)
    arrays = read_cut(cuts[0]).parameters.values()
    path.write_bytes(np.concatenate([array.ravel() for array in arrays]).tobytes())
    return path


def _cold_start_s(size: Size, victim: VictimJob, parameters: Path) -> float:
    params = [f"{name}={value}" for name, value in size.model_params.items()]
    script = ROOT / "benchmarks" / "cold_start.py"
    command = [script, MODEL_ZOO, "char_lm.char_lm_torch", parameters, *params]
    with victim.paused():
        began_s = time.perf_counter()
        run_json(command, threads_environment(1))
        return time.perf_counter() - began_s
