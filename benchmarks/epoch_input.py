"""An epoch whose input is decoded, against the same job with its records in memory."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.jobs import Job, steady_epoch_s, threads_environment
from benchmarks.measure import Bar, Ratio, Series, take_turns
from benchmarks.processes import ROOT
from benchmarks.sizes import Size

BAR: Final = Bar(first=1.1, goal=1.03, is_ceiling=True)
SIDE: Final = 64
NUM_CLASSES: Final = 4


@dataclass(frozen=True, slots=True)
class Input:
    """One kind of source with pictures and labels.

    Attributes:
        name: For people.
        write: Writes pictures (n, SIDE, SIDE, 3) and labels below a folder, and names the source.
        params: `--data_reader_params`.
    """

    name: str
    write: Callable[[Path, Any, Any], Path]
    params: dict[str, Any]


def _write_jpegs(folder: Path, pictures: Any, labels: Any) -> Path:
    from PIL import Image

    for index, (picture, label) in enumerate(zip(pictures, labels, strict=True)):
        path = folder / "jpegs" / f"class{label}" / f"{index}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(path)
    return folder / "jpegs"


def _write_parquet(folder: Path, pictures: Any, labels: Any) -> Path:
    from elastic.data.writers import WRITERS

    records = [
        {"image": picture, "label": label} for picture, label in zip(pictures, labels, strict=True)
    ]
    WRITERS["parquet"].write(records, folder / "pictures.parquet")
    return folder / "pictures.parquet"


INPUTS: Final = (
    Input("a folder of JPEGs", _write_jpegs, {"size": SIDE}),
    Input("parquet", _write_parquet, {}),
)


def run(size: Size) -> list[Ratio]:
    """Seconds of an epoch in steady state; one worker that computes with one thread."""
    with tempfile.TemporaryDirectory(prefix="elastic-bench-") as folder:
        return [_measure(size, Path(folder), source) for source in INPUTS]


def _measure(size: Size, folder: Path, source: Input) -> Ratio:
    rng = np.random.default_rng(0)
    # Smooth, as photos are: noise takes several times as long to decode.
    coarse = rng.integers(0, 256, (size.num_records, 8, 8, 3), np.uint8)
    pictures = coarse.repeat(SIDE // 8, axis=1).repeat(SIDE // 8, axis=2)
    origin = source.write(folder, pictures, rng.integers(0, NUM_CLASSES, size.num_records))
    read, kept = take_turns(
        size.job_rounds,
        partial(_epoch_s, size, folder, origin, source, {}),
        partial(_epoch_s, size, folder, origin, source, {"custom_data_reader": "read_from_memory"}),
        warmups=0,
    )
    return Ratio(
        f"epoch from {source.name}, torch, 1 thread",
        Series("job that reads", "s/epoch", read),
        Series("job with its records in memory", "s/epoch", kept),
        BAR,
    )


def _epoch_s(
    size: Size, folder: Path, origin: Path, source: Input, settings: dict[str, Any]
) -> float:
    job = Job(
        folder,
        "torch",
        size,
        model_zoo=ROOT / "benchmarks" / "models",
        model_def="pictures_torch.CustomModel",
        model_params={},
        training_data_dir=str(origin),
        data_reader_params=source.params,
        num_workers="1",
        # An epoch takes two seconds, in which a machine's other work is a large part.
        num_epochs=1 + 3 * size.num_epochs,
        envs=threads_environment(1),
        **settings,
    )
    with job:
        return steady_epoch_s(job.finish())
