"""A small model of a table: a job by columns and by records, against a plain loop in memory.

What of a job's time is its input is told by the same loop over a worker's minibatches.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.jobs import BASELINES, Job, steady_epoch_s, threads_environment
from benchmarks.measure import Bar, Ratio, Series, take_turns
from benchmarks.processes import ROOT, run_json
from benchmarks.sizes import Size

BAR: Final = Bar(first=0.7, goal=0.9)
MODELS: Final = ROOT / "benchmarks" / "models"
MINIBATCH_SIZE: Final = 1024
NUM_COLUMNS: Final = 10
FORMATS: Final = ("npz", "parquet", "csv")
COLUMNS, RECORDS = "tabular_torch", "tabular_records_torch"

_RECORDS_PER_RECORD: Final = 200
"""Of the table for one of the language model, which takes as much longer."""

_GROUP_ROWS: Final = 1 << 16


def run(size: Size) -> list[Ratio]:
    """Records a second in steady epochs; one thread for each process that computes, Adam."""
    with tempfile.TemporaryDirectory(prefix="elastic-bench-") as folder:
        return [
            ratio for form in FORMATS for ratio in _measure(size, _write(Path(folder), form, size))
        ]


def _measure(size: Size, origin: Path) -> list[Ratio]:
    form = origin.suffix.removeprefix(".")
    jobs = [
        _Side(
            f"job by columns{also}",
            f"job, {many}, batch_fn",
            partial(_job_records_s, size, origin, COLUMNS, num_workers),
            bar,
        )
        for num_workers, many, also, bar in (
            (1, "1 worker", "", BAR),
            (2, "2 workers", ", 2 workers", None),
        )
    ]
    if form == FORMATS[0]:
        by_records = partial(_job_records_s, size, origin, RECORDS, 1)
        jobs.append(_Side("job by records", "job, 1 worker, dataset_fn", by_records, None))
    sides = [
        _Side(
            "reading by columns",
            "the same loop over a worker's minibatches",
            partial(_read_records_s, size, origin),
            BAR,
        ),
        *jobs,
    ]
    plain, *found = take_turns(
        size.job_rounds,
        partial(_plain_records_s, size, origin),
        *(side.measure for side in sides),
        warmups=0,
    )
    loop = Series("plain loop, table in memory", "records/s", plain)
    return [
        Ratio(
            f"table from {form}, {side.name}",
            Series(side.what, "records/s", values),
            loop,
            side.bar,
        )
        for side, values in zip(sides, found, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Side:
    """What is measured beside the plain loop.

    Attributes:
        measure: Records a second.
    """

    name: str
    what: str
    measure: Callable[[], float]
    bar: Bar | None


def _num_records(size: Size) -> int:
    return size.num_records * _RECORDS_PER_RECORD


def _job_records_s(size: Size, origin: Path, module: str, num_workers: int) -> float:
    job = Job(
        origin.parent,
        "torch",
        size,
        model_zoo=MODELS,
        model_def=f"{module}.custom_model",
        model_params={},
        training_data_dir=str(origin),
        minibatch_size=MINIBATCH_SIZE,
        records_per_task=None,
        num_workers=str(num_workers),
        num_epochs=1 + size.num_epochs,
        envs=threads_environment(1),
    )
    with job:
        return _num_records(size) / steady_epoch_s(job.finish())


def _read_records_s(size: Size, origin: Path) -> float:
    command = [
        *("-m", "benchmarks.table_process", "--model_def", f"{COLUMNS}.custom_model"),
        *("--data", origin, "--minibatch_size", MINIBATCH_SIZE, "--epochs", size.num_epochs),
    ]
    result = run_json(command, threads_environment(1))
    return _num_records(size) / result["seconds_per_epoch"]


def _plain_records_s(size: Size, origin: Path) -> float:
    result = run_json(
        [
            BASELINES / "plain_table.py",
            *("--model_zoo", MODELS, "--model_def", f"{COLUMNS}.custom_model"),
            *("--data", origin, "--minibatch_size", MINIBATCH_SIZE),
            *("--epochs", size.num_epochs, "--threads", 1),
        ],
        threads_environment(1),
    )
    return _num_records(size) / result["seconds_per_epoch"]


def _write(folder: Path, form: str, size: Size) -> Path:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(_num_records(size), NUM_COLUMNS)).astype(np.float32)
    table: dict[str, Any] = {f"x{index}": values[:, index] for index in range(NUM_COLUMNS)}
    table["label"] = (values[:, :2].sum(axis=1) > 0).astype(np.int64)
    path = folder / f"table.{form}"
    if form == "npz":
        np.savez(path, **table)
        return path
    import pyarrow as pa
    from pyarrow import csv, parquet

    if form == "parquet":
        parquet.write_table(pa.table(table), path, row_group_size=_GROUP_ROWS)
    else:
        csv.write_csv(pa.table(table), path)
    return path
