"""Who submits what, and when: read from the published files, or made of the same shape."""

import csv
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True)
class Request:
    """One submitted job, with the size and the global batch that its user asks for."""

    name: str
    submitted_s: int
    application: str
    replicas: int
    batch: int


def read_workload(path: Path) -> list[Request]:
    """Read one of the published files.

    Raises:
        OSError: The file is not there.
        ValueError: A cell is not a number.
    """
    with path.open(newline="") as file:
        return [
            Request(
                row["name"],
                int(row["time"]),
                row["application"],
                int(row["num_replicas"]),
                int(row["batch_size"]),
            )
            for row in csv.DictReader(file)
        ]


MIX: Final = {
    "cifar10": 0.40,
    "ncf": 0.41,
    "deepspeech2": 0.09,
    "bert": 0.05,
    "yolov3": 0.03,
    "imagenet": 0.02,
}
"""About how the published workloads are mixed."""

TUNED: Final = {
    "cifar10": ((6, 2048), (8, 2048), (12, 4096), (16, 4096)),
    "ncf": ((1, 32768),),
    "deepspeech2": ((6, 320), (8, 320), (12, 640)),
    "bert": ((6, 384), (8, 384), (12, 384), (16, 384)),
    "yolov3": ((4, 64),),
    "imagenet": ((24, 3200), (32, 6400), (48, 6400)),
}
"""Sizes and batches that tuned jobs ask for."""

HOURS: Final = (0.12, 0.10, 0.05, 0.11, 0.18, 0.24, 0.11, 0.09)
"""Of eight hours: the part of the jobs that come in each."""


def make_workload(jobs: int, seed: int) -> list[Request]:
    """A workload of the published shape: eight hours with a peak in the sixth."""
    rng = random.Random(seed)
    drawn = []
    for _ in range(jobs):
        application = rng.choices(list(MIX), list(MIX.values()))[0]
        hour = rng.choices(range(len(HOURS)), HOURS)[0]
        drawn.append(
            (hour * 3600 + rng.randrange(3600), application, *rng.choice(TUNED[application]))
        )
    return [
        Request(f"{application}-{number}", at, application, replicas, batch)
        for number, (at, application, replicas, batch) in enumerate(sorted(drawn))
    ]
