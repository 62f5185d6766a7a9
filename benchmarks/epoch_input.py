"""Epochs whose input is decoded, against those of the same job with their records in memory."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.jobs import Job, epoch_spans_s, threads_environment
from benchmarks.measure import Bar, Ratio, Series
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
    read, kept = _epochs_s(size, folder, origin, source)
    return Ratio(
        f"epoch from {source.name}, torch, 1 thread",
        Series("epochs that read", "s/epoch", read),
        Series("epochs with their records in memory", "s/epoch", kept),
        BAR,
    )


def _epochs_s(
    size: Size, folder: Path, origin: Path, source: Input
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Seconds of the epochs of one job that read, and of those between that do not.

    In one job, since an epoch takes two seconds, and two jobs half a minute apart differ by more
    than what is looked for.
    """
    job = Job(
        folder,
        "torch",
        size,
        model_zoo=ROOT / "benchmarks" / "models",
        model_def="pictures_torch.CustomModel",
        model_params={},
        custom_data_reader="read_in_turns",
        training_data_dir=str(origin),
        data_reader_params=source.params,
        num_workers="1",
        # The first two have the start in them, and the filling of the memory.
        num_epochs=2 + 2 * size.rounds,
        envs=threads_environment(1),
    )
    with job:
        _, *spans_s = epoch_spans_s(job.finish())
    return tuple(spans_s[0::2]), tuple(spans_s[1::2])
