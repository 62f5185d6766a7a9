"""Whole jobs of the language model on this machine, and the plain loops of the same model."""

import contextlib
import itertools
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.processes import ROOT, run_json
from benchmarks.sizes import Size
from elastic.platforms.local.directory import JobDirectory
from elastic.platforms.local.platform import LocalPlatform
from elastic.platforms.registry import THREAD_VARIABLES
from elastic.spec.job import JobSpec
from elastic.spec.status import JobPhase, JobStatus
from model_zoo.char_lm.prepare_data import prepare

MODEL_ZOO: Final = ROOT / "model_zoo"
BASELINES: Final = ROOT / "benchmarks" / "baselines"
MINIBATCH_SIZE: Final = 32
RECORDS_PER_TASK: Final = 512
POLL_S: Final = 0.1
KILL_TIMEOUT_S: Final = 30.0


def model_def(framework: str) -> str:
    """The language model of a framework."""
    return f"char_lm.char_lm_{framework}.CustomModel"


def threads_environment(threads: int) -> dict[str, str]:
    """What makes every framework compute with so many threads."""
    return dict.fromkeys(THREAD_VARIABLES, str(threads))


@contextlib.contextmanager
def prepared(num_records: int) -> Iterator[Path]:
    """A temporary folder with `train.npz` of so many records."""
    with tempfile.TemporaryDirectory(prefix="elastic-bench-") as folder:
        prepare(Path(folder), num_windows=num_records, num_test_windows=1)
        yield Path(folder)


class Job:
    """A job of the language model; leaving the context kills whatever is left of it."""

    def __init__(self, folder: Path, framework: str, size: Size, **settings: Any) -> None:
        """Describe the job.

        Args:
            folder: Holds `train.npz`, and gets the job's own files.
            framework: `keras` or `torch`.
            size: How large the model is.
            settings: Of the `JobSpec`, beyond those that all benchmarks share.
        """
        home = Path(tempfile.mkdtemp(prefix="home-", dir=folder))
        common: dict[str, Any] = {
            "job_name": "bench",
            "platform": "local",
            "model_zoo": MODEL_ZOO,
            "model_def": model_def(framework),
            "model_params": dict(size.model_params),
            "training_data_dir": str(folder / "train.npz"),
            "minibatch_size": MINIBATCH_SIZE,
            "records_per_task": RECORDS_PER_TASK,
        }
        self.spec = JobSpec(**{**common, **settings})
        self.directory = JobDirectory(home / "jobs" / self.spec.job_name)
        self._platform = LocalPlatform(home)

    def __enter__(self) -> "Job":
        self._platform.submit(self.spec)
        return self

    def __exit__(self, *_: object) -> None:
        self._platform.kill(self.spec.job_name, KILL_TIMEOUT_S)

    def status(self) -> JobStatus:
        return self._platform.status(self.spec.job_name)

    def finish(self) -> JobStatus:
        """Wait for the job's end.

        Raises:
            RuntimeError: It did not succeed.
        """
        while not (status := self.status()).phase.is_final:
            time.sleep(POLL_S)
        if status.phase is not JobPhase.SUCCEEDED:
            raise RuntimeError(f"the job ended as {status.phase}: {status.message}")
        return status


def steady_epoch_s(status: JobStatus) -> float:
    """Seconds of an epoch by the job's own clock.

    From the end of the first epoch, which has the start in it, to the end of the last: as a plain
    loop is timed, the beginning of every epoch included.
    """
    spans_s = epoch_spans_s(status)
    return sum(spans_s) / len(spans_s)


def epoch_spans_s(status: JobStatus) -> list[float]:
    """Seconds of each epoch but the first, by the job's own clock."""
    ends_s = [event.time_s for event in status.events if event.kind == "EpochEnded"]
    return [later - earlier for earlier, later in itertools.pairwise(ends_s)]


def run_baseline(
    command: list[object], folder: Path, framework: str, size: Size, threads: int
) -> Mapping[str, float]:
    """Run a plain loop over the same records with the same model."""
    params = ",".join(f"{name}={value}" for name, value in size.model_params.items())
    result: Mapping[str, float] = run_json(
        [
            *command,
            *("--model_zoo", MODEL_ZOO, "--model_def", model_def(framework)),
            *("--model_params", params, "--data", folder / "train.npz"),
            *("--minibatch_size", MINIBATCH_SIZE, "--epochs", size.num_epochs),
            *("--threads", threads),
        ],
        threads_environment(threads),
    )
    return result


def num_threads(threads: int) -> str:
    """For the name of a ratio."""
    return "1 thread" if threads == 1 else f"{threads} threads"


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))
