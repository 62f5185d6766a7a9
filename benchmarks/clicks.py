"""DeepFM with tables that no worker holds, against the same model whole in one plain process."""

import tempfile
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.jobs import BASELINES, MODEL_ZOO, Job, steady_epoch_s, threads_environment
from benchmarks.measure import Bar, Ratio, Series, take_turns
from benchmarks.processes import ROOT, run_json
from benchmarks.sizes import Size
from model_zoo.clicks.prepare_data import prepare

BAR: Final = Bar(first=0.6, goal=0.8)
MODELS: Final = ROOT / "benchmarks" / "models"
MINIBATCH_SIZE: Final = 512
LARGE_MINIBATCH_SIZE: Final = 4_096
"""Usual for models of clicks; one has four times the different ids of one of 512."""
STORES: Final = ("memory", "redis", "ps")
WORKERS: Final = (1, 2)


def run(size: Size) -> list[Ratio]:
    """Records a second in steady epochs; one thread for each process that computes."""
    with tempfile.TemporaryDirectory(prefix="elastic-bench-") as folder:
        prepare(Path(folder), size.num_clicks, num_test_records=1)
        return [
            measure_job(size, Path(folder), store, num_workers, minibatch_size)
            for minibatch_size in (MINIBATCH_SIZE, LARGE_MINIBATCH_SIZE)
            for store in STORES
            for num_workers in WORKERS
        ]


def measure_job(
    size: Size, folder: Path, store: str, num_workers: int, minibatch_size: int
) -> Ratio:
    """One store with so many workers on synchronous updates."""
    is_large = minibatch_size == LARGE_MINIBATCH_SIZE
    job, plain = take_turns(
        # The larger size is for comparison, and doubles the time of a run otherwise.
        max(1, size.job_rounds - 1) if is_large else size.job_rounds,
        partial(_job_records_s, size, folder, store, num_workers, minibatch_size),
        partial(_plain_records_s, size, folder, minibatch_size),
        warmups=0,
    )
    many = "1 worker" if num_workers == 1 else f"{num_workers} workers"
    which = f"minibatches of {minibatch_size:,}, {many}" if is_large else many
    return Ratio(
        f"DeepFM torch, {which}, rows in {store}",
        Series(f"job, {many}, --embedding_store {store}", "records/s", job),
        Series("plain loop, table in memory", "records/s", plain),
        BAR if num_workers == 1 else None,
    )


def _job_records_s(
    size: Size, folder: Path, store: str, num_workers: int, minibatch_size: int
) -> float:
    job = Job(
        folder,
        "torch",
        size,
        model_zoo=MODEL_ZOO,
        model_def="clicks.deepfm_torch.CustomModel",
        model_params={},
        training_data_dir=str(folder / "train.parquet"),
        minibatch_size=minibatch_size,
        records_per_task=None,
        num_workers=str(num_workers),
        num_epochs=1 + size.num_epochs,
        embedding_store=store,
        num_ps=1 if store == "ps" else 0,
        envs=threads_environment(1),
    )
    with job:
        return size.num_clicks / steady_epoch_s(job.finish())


def _plain_records_s(size: Size, folder: Path, minibatch_size: int) -> float:
    result = run_json(
        [
            BASELINES / "plain_table.py",
            *("--model_zoo", MODELS, "--model_def", "deepfm_plain_torch.CustomModel"),
            *("--data", folder / "train.parquet", "--minibatch_size", minibatch_size),
            *("--epochs", size.num_epochs, "--threads", 1),
        ],
        threads_environment(1),
    )
    return size.num_clicks / result["seconds_per_epoch"]
