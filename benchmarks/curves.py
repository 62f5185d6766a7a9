"""Draws `docs/loss_curves.svg`: `python -m benchmarks.curves`, which trains DeepFM in each way.

The records are made by a seed, so that all see the same ones; an update is of `UPDATE_RECORDS`
whoever computes it. What remains is the order of records, how the parameters begin, and chance.
"""

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from pyarrow import parquet

from benchmarks.jobs import MODEL_ZOO, Job, threads_environment
from benchmarks.models import deepfm_plain_torch as plain
from benchmarks.processes import ROOT
from benchmarks.sizes import FULL
from model_zoo.clicks.prepare_data import prepare

RESULT: Final = ROOT / "docs" / "loss_curves.json"
NUM_RECORDS: Final = 20_480
NUM_TEST_RECORDS: Final = 4_096
NUM_EPOCHS: Final = 3
UPDATE_RECORDS: Final = 512
STEPS_A_POINT: Final = 8
"""Updates from one loss of the test records to the next."""
STALENESS: Final = 8
"""Updates for which workers that keep rows use them again."""
SEEDS: Final = (0, 1, 2)
"""Of the plain loop, by which one sees what chance alone does."""

Curve: TypeAlias = Sequence[tuple[int, float]]
"""Records trained, and the mean loss of the test records then."""
Columns: TypeAlias = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Way:
    """One way to train.

    Attributes:
        settings: Of the job.
        model_params: Of the model.
    """

    settings: Mapping[str, Any]
    model_params: Mapping[str, str] = field(default_factory=dict)


_TWO: Final[Mapping[str, Any]] = {
    "num_workers": "2",
    "minibatch_size": UPDATE_RECORDS // 2,
    "grads_to_wait": 2,
}
WAYS: Final[Mapping[str, Way]] = {
    "2 workers, synchronous": Way(_TWO),
    "2 workers, asynchronous": Way(
        {"num_workers": "2", "minibatch_size": UPDATE_RECORDS, "use_async": True}
    ),
    "2 workers, rows in bfloat16": Way(_TWO, {"row_dtype": "bfloat16"}),
    "2 workers, rows in int8": Way(_TWO, {"row_dtype": "int8"}),
    "2 workers, rows used again": Way({**_TWO, "embedding_staleness": STALENESS}),
}


def main() -> int:
    """Train in each way, keep the curves and draw them."""
    with tempfile.TemporaryDirectory(prefix="elastic-curves-") as name:
        folder = Path(name)
        prepare(folder, NUM_RECORDS, NUM_TEST_RECORDS)
        # Nothing is timed.
        with ThreadPoolExecutor(len(WAYS)) as pool:
            jobs = {name: pool.submit(job_curve, folder, way) for name, way in WAYS.items()}
            curves: dict[str, Curve] = {
                f"plain loop, seed {seed}": list(plain_curve(folder, seed)) for seed in SEEDS
            }
            curves |= {name: job.result() for name, job in jobs.items()}
    RESULT.write_text(json.dumps(curves, indent=1) + "\n")
    draw(curves, RESULT.with_suffix(".svg"))
    return 0


def job_curve(folder: Path, way: Way) -> Curve:
    """A job's evaluations of the test records."""
    job = Job(
        folder,
        "torch",
        FULL,
        model_zoo=MODEL_ZOO,
        model_def="clicks.deepfm_torch.CustomModel",
        model_params=dict(way.model_params),
        training_data_dir=str(folder / "train.parquet"),
        evaluation_data_dir=str(folder / "test.parquet"),
        evaluation_steps=STEPS_A_POINT,
        evaluation_throttle_secs=0,
        evaluation_start_delay_secs=0,
        records_per_task=None,
        num_epochs=NUM_EPOCHS,
        envs=threads_environment(1),
        **way.settings,
    )
    with job:
        evaluations = job.finish().evaluations
    points = {each.version: each.metrics["loss"] for each in evaluations}
    return [(version * UPDATE_RECORDS, float(loss or 0.0)) for version, loss in points.items()]


def plain_curve(folder: Path, seed: int) -> Iterator[tuple[int, float]]:
    """The same of the model whole in this process."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    train, test = _read(folder / "train.parquet"), _read(folder / "test.parquet")
    model = plain.CustomModel()
    optimizer = plain.optimizer(model.parameters())
    step = 0
    for epoch in range(NUM_EPOCHS):
        order = np.random.default_rng((seed, epoch)).permutation(NUM_RECORDS)
        for start in range(0, NUM_RECORDS, UPDATE_RECORDS):
            optimizer.zero_grad()
            _loss(model, train, order[start : start + UPDATE_RECORDS]).backward()
            optimizer.step()
            step += 1
            if step % STEPS_A_POINT == 0:
                with torch.no_grad():
                    loss = _loss(model, test, np.arange(NUM_TEST_RECORDS))
                yield step * UPDATE_RECORDS, float(loss)


def _loss(model: plain.CustomModel, columns: Columns, rows: NDArray[np.int64]) -> torch.Tensor:
    some = {name: column[rows] for name, column in columns.items()}
    (ids, numbers), labels = plain.batch_fn(some, "training")
    features = torch.from_numpy(ids), torch.from_numpy(numbers)
    return plain.loss(torch.from_numpy(labels), model(features))


def _read(path: Path) -> Columns:
    table = parquet.read_table(path)
    return {name: table.column(name).to_numpy() for name in table.column_names}


def draw(curves: Mapping[str, Curve], path: Path) -> None:
    """One plot of all curves; those of the plain loop grey, for they are what chance does."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # The same bytes for the same curves.
    mpl.rcParams["svg.hashsalt"] = "elastic"
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for name, curve in curves.items():
        records, losses = zip(*curve, strict=True)
        is_plain = name.startswith("plain")
        axes.plot(records, losses, label=name, linewidth=1.2, color="0.6" if is_plain else None)
    axes.set_xlabel("records trained")
    axes.set_ylabel("loss of the test records")
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    sys.exit(main())
