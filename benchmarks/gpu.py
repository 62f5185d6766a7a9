"""A job with one worker on a GPU, against the plain loop of the same model there.

Gradients and parameters go by way of the host and the master: the larger model is the harder one.
"""

import importlib.util
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.jobs import BASELINES, Job, num_cores, prepared, run_baseline, steady_epoch_s
from benchmarks.measure import Ratio, Series, take_turns
from benchmarks.sizes import Size

NUM_RECORDS: Final = 4096
MODELS: Final = {
    "0.9 million parameters": {},
    "25 million parameters": {"d_model": 512, "n_layers": 8, "n_heads": 8},
}


def run(size: Size) -> list[Ratio]:
    """Seconds of an epoch in steady state; nothing where torch sees no GPU."""
    if not _sees_gpu():
        print("gpu is left out: torch sees none here", file=sys.stderr)
        return []
    with prepared(NUM_RECORDS) as folder:
        return [
            measure_job(replace(size, model_params=params), folder, name)
            for name, params in MODELS.items()
        ]


def measure_job(size: Size, folder: Path, name: str) -> Ratio:
    """One model, of which the size has the arguments."""
    job, plain = take_turns(
        size.job_rounds,
        partial(_job_epoch_s, size, folder),
        partial(_plain_epoch_s, size, folder),
        warmups=0,
    )
    return Ratio(
        f"one worker on a GPU, char_lm torch of {name}",
        Series("job, 1 worker", "s/epoch", job),
        Series("plain loop", "s/epoch", plain),
        None,
    )


def _job_epoch_s(size: Size, folder: Path) -> float:
    with Job(folder, "torch", size, num_workers="1", num_epochs=1 + size.num_epochs) as job:
        return steady_epoch_s(job.finish())


def _plain_epoch_s(size: Size, folder: Path) -> float:
    script = BASELINES / "plain_torch.py"
    return run_baseline([script], folder, "torch", size, num_cores())["seconds_per_epoch"]


def _sees_gpu() -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()
