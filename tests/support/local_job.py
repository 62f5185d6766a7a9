"""Real jobs on the local platform, for tests that break them."""

import contextlib
import os
import random
import select
import signal
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import psutil

from elastic.checkpoints.cuts import read_cut
from elastic.platforms.base import ReplicaPhase
from elastic.platforms.local.directory import JobDirectory
from elastic.platforms.local.platform import LocalPlatform
from elastic.platforms.local.supervisor import start_supervisor
from elastic.spec.job import JobSpec
from elastic.spec.status import JobPhase, JobStatus
from support import warm
from support.bounds import Stillness
from support.datasets import MODEL_ZOO
from support.gate import Gate

POLL_S = 0.05
PATIENCE_S = 600.0
"""For what comes about by itself, however slowly."""


def make_spec(model_def, data, **settings):
    """A JobSpec for the local platform with short names for what every test sets."""
    defaults = {
        "platform": "local",
        "model_zoo": str(MODEL_ZOO),
        "job_name": "job",
        "minibatch_size": 8,
        "records_per_task": 40,
        "hang_timeout": 60,
        "recovery_interval": 0.3,
    }
    return JobSpec(model_def=model_def, training_data_dir=str(data), **{**defaults, **settings})


class LocalJob:
    """One submitted job; leaving the context kills whatever is left of it."""

    def __init__(self, spec: JobSpec, home: Path, is_cold: bool = False) -> None:
        """A job, whose processes begin warm but where a test is about how they begin."""
        start = start_supervisor if is_cold else partial(warm.start_supervisor, spec)
        self.spec = spec
        self.home = home
        self.platform = LocalPlatform(home, start_supervisor=start)
        self.directory = JobDirectory(home / "jobs" / spec.job_name)

    def __enter__(self) -> "LocalJob":
        self.platform.submit(self.spec)
        return self

    def __exit__(self, *_):
        self.platform.kill(self.spec.job_name, 60.0)

    def status(self) -> JobStatus:
        return self.platform.status(self.spec.job_name)

    def wait_until(self, condition, timeout_s=PATIENCE_S) -> JobStatus:
        """Poll until `condition(status)`; fails with the job's own words."""
        return self._poll(condition, timeout_s, may_end=False)

    def wait(self, timeout_s=PATIENCE_S) -> JobStatus:
        """Wait for the end of the job, however that is."""
        return self._poll(lambda status: status.phase.is_final, timeout_s, may_end=True)

    def _poll(self, condition, timeout_s, may_end) -> JobStatus:
        deadline, stillness = time.monotonic() + timeout_s, Stillness()
        while not condition(status := self.status()):
            try:
                assert may_end or not status.phase.is_final, f"it has ended: {status}"
                assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {status}"
                stillness.look(status)
            except AssertionError as error:
                error.add_note(self.logs())
                raise
            time.sleep(POLL_S)
        return status

    def succeed(self, timeout_s=PATIENCE_S) -> JobStatus:
        status = self.wait(timeout_s)
        assert status.phase is JobPhase.SUCCEEDED, f"{status}\n{self.logs()}"
        return status

    def cut(self):
        """The job's last checkpoint."""
        return read_cut(Path(self.status().checkpoint))

    def parameters(self):
        """The trained parameters, from the job's last checkpoint."""
        return self.cut().parameters

    def logs(self, tail: int = 60) -> str:
        lines = self.platform.logs(self.spec.job_name, [], follow=False, tail=tail)
        return "\n".join(f"{line.replica}: {line.text}" for line in lines)

    def pids(self, role: str) -> dict[int, int]:
        """Process ids of the running replicas of a role, by index."""
        return {
            o.replica.id.index: o.replica.pid
            for o in self.directory.observed()
            if o.replica.id.role == role
            and o.replica.phase is ReplicaPhase.RUNNING
            and o.replica.pid is not None
        }

    def kill_one(self, role: str, index: int, sig: int = signal.SIGKILL) -> bool:
        pid = self.pids(role).get(index)
        if pid is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, sig)
            return True
        return False

    def processes(self) -> list[psutil.Process]:
        """Everything alive that belongs to the job."""
        uid = self.directory.submission().uid
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if uid in process.environ().values():
                    found.append(process)
        return found

    def wait_until_gone(self) -> None:
        """The end is published by processes that then take a moment to end themselves."""
        deadline = time.monotonic() + PATIENCE_S
        while left := self.processes():
            assert time.monotonic() < deadline, left
            time.sleep(POLL_S)


def suspend(pid: int) -> None:
    """Halt a process, and wait until it stands: a signal alone may find it busy."""
    os.kill(pid, signal.SIGSTOP)
    while psutil.Process(pid).status() != psutil.STATUS_STOPPED:
        time.sleep(0.001)


def end_and_wait(pid: int) -> None:
    """SIGKILL a process and wait until it is dead; whose child it is may reap it later."""
    descriptor = os.pidfd_open(pid)
    try:
        os.kill(pid, signal.SIGKILL)
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll()
    finally:
        os.close(descriptor)


DRAWN_FAULTS = ("worker", "worker", "worker", "master", "scale")


def break_at_random(
    job: LocalJob,
    gate: Gate,
    seed: int,
    num_faults: int,
    max_workers: int,
    faults: Sequence[str] = (),
    drawn: Sequence[str] = DRAWN_FAULTS,
) -> list[str]:
    """Break a running job at random moments, seeded; returns what was done to it.

    A fault comes after some further records have counted, or after three seconds, so that it
    meets the job in any state, start and recovery included. A drawn one that meets nobody is
    skipped; one of `faults`, which are fewer than `num_faults`, waits for somebody. The job cannot
    end before the gate is opened, before the last fault, so that this one may meet the end.

    Args:
        job: What is broken.
        gate: Where its workers wait.
        seed: Of the moments, and of what is done in them.
        num_faults: How often.
        max_workers: The most that the job is scaled to.
        faults: What to do first, in their order; the others are drawn.
        drawn: Of which.
    """
    rng = random.Random(seed)
    done: list[str] = []
    for number in range(num_faults):
        if number == num_faults - 1:
            gate.open()
        records = job.status().progress.records_done + rng.randint(1, 60)
        deadline = time.monotonic() + rng.uniform(0.2, 3.0)
        while time.monotonic() < deadline:
            status = job.status()
            if status.phase.is_final:
                assert gate.is_open, f"{status}\n{job.logs()}"
                return done
            if status.progress.records_done >= records:
                break
            time.sleep(rng.uniform(0.0, 0.02))
        fault = faults[number] if number < len(faults) else rng.choice(drawn)
        if fault == "scale":
            size = rng.randint(1, max_workers)
            with contextlib.suppress(Exception):
                job.platform.scale(job.spec.job_name, size)
            done.append(f"scale to {size}")
            continue
        if number < len(faults):
            # The restarts of masters that had told nothing yet are in no status.
            job.wait_until(
                lambda status, role=fault: status.started_s is not None and job.pids(role)
            )
        pids = job.pids(fault)
        if pids:
            index = rng.choice(sorted(pids))
            job.kill_one(fault, index)
            done.append(f"kill {fault}-{index}")
    return done
