"""A job with two workers on synchronous updates, against DistributedDataParallel over gloo."""

from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.jobs import (
    BASELINES,
    Job,
    prepared,
    run_baseline,
    steady_epoch_s,
    threads_environment,
)
from benchmarks.measure import Bar, Ratio, Series, take_turns
from benchmarks.sizes import Size

BAR: Final = Bar(first=1.0, goal=1.2)
NUM_PROCESSES: Final = 2
TORCHRUN: Final = (
    *("-m", "torch.distributed.run", "--standalone"),
    *("--nproc_per_node", NUM_PROCESSES),
)


def run(size: Size) -> list[Ratio]:
    """Samples a second of two processes that compute with one thread each."""
    with prepared(size.num_records) as folder:
        job, ddp = take_turns(
            size.pair_rounds,
            partial(_job_samples_per_s, size, folder),
            partial(_ddp_samples_per_s, size, folder),
            warmups=0,
        )
    return [
        Ratio(
            "two workers, char_lm torch, 1 thread each",
            Series("job, 2 workers, grads_to_wait 2", "samples/s", job),
            Series("torchrun DDP gloo, 2 processes", "samples/s", ddp),
            BAR,
        )
    ]


def _job_samples_per_s(size: Size, folder: Path) -> float:
    job = Job(
        folder,
        "torch",
        size,
        num_workers=str(NUM_PROCESSES),
        grads_to_wait=NUM_PROCESSES,
        num_epochs=1 + size.num_epochs,
        envs=threads_environment(1),
    )
    with job:
        return size.num_records / steady_epoch_s(job.finish())


def _ddp_samples_per_s(size: Size, folder: Path) -> float:
    command: list[object] = [*TORCHRUN, BASELINES / "ddp_torch.py"]
    return run_baseline(command, folder, "torch", size, threads=1)["samples_per_s"]
