"""A job with one worker, against the plain loop of the same model in one process."""

from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.jobs import (
    BASELINES,
    Job,
    num_cores,
    num_threads,
    prepared,
    run_baseline,
    steady_epoch_s,
    threads_environment,
)
from benchmarks.measure import Bar, Ratio, Series, take_turns
from benchmarks.sizes import Size

BAR: Final = Bar(first=1.15, goal=1.03, is_ceiling=True)


def run(size: Size) -> list[Ratio]:
    """Seconds of an epoch in steady state, with one thread and with what a job takes by itself."""
    with prepared(size.num_records) as folder:
        return [
            measure_job(size, folder, framework, threads)
            for framework in ("torch", "keras")
            for threads in (1, None)
        ]


def measure_job(size: Size, folder: Path, framework: str, threads: int | None) -> Ratio:
    """One framework with so many threads on both sides; None leaves the job its default."""
    job, plain = take_turns(
        size.job_rounds,
        partial(_job_epoch_s, size, folder, framework, threads),
        partial(_plain_epoch_s, size, folder, framework, threads),
        warmups=0,
    )
    where = f"all {num_cores()} cores" if threads is None else num_threads(threads)
    return Ratio(
        f"one worker, char_lm {framework}, {where}",
        Series("job, 1 worker", "s/epoch", job),
        Series("plain loop", "s/epoch", plain),
        BAR,
    )


def _job_epoch_s(size: Size, folder: Path, framework: str, threads: int | None) -> float:
    job = Job(
        folder,
        framework,
        size,
        num_workers="1",
        num_epochs=1 + size.num_epochs,
        envs={} if threads is None else threads_environment(threads),
    )
    with job:
        return steady_epoch_s(job.finish())


def _plain_epoch_s(size: Size, folder: Path, framework: str, threads: int | None) -> float:
    script = BASELINES / f"plain_{framework}.py"
    # A lone worker takes all cores by default.
    result = run_baseline([script], folder, framework, size, threads or num_cores())
    return result["seconds_per_epoch"]
