"""Write points on three spirals as `train.csv` and `test.csv`; yours may come from anywhere."""

import argparse
import csv
import math
import sys
from pathlib import Path

import numpy as np

COLUMNS = ("x", "y", "spiral")
SPIRALS = ("red", "green", "blue")
NOISE = 0.1


def points(count: int, rng: np.random.Generator) -> list[tuple[str, str, str]]:
    """Points near three spirals that wind around each other."""
    rows = []
    for index in rng.permutation(count):
        number = index % len(SPIRALS)
        radius = rng.random()
        angle = 4 * radius + 2 * math.pi * number / len(SPIRALS) + rng.normal(0, NOISE)
        x, y = radius * math.cos(angle), radius * math.sin(angle)
        rows.append((f"{x:.4f}", f"{y:.4f}", SPIRALS[number]))
    return rows


def prepare(output_dir: Path, seed: int = 0) -> None:
    """Write 1200 records to `train.csv` and 300 to `test.csv` below `output_dir`."""
    rng = np.random.default_rng(seed)
    output_dir.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", 1200), ("test", 300)):
        with (output_dir / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([COLUMNS, *points(count, rng)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output_dir", type=Path, help="folder for train.csv and test.csv")
    parser.add_argument("--seed", type=int, default=0, help="seeds the points")
    arguments = parser.parse_args()
    prepare(arguments.output_dir, arguments.seed)
    sys.stdout.write(f"wrote train.csv and test.csv to {arguments.output_dir}\n")


if __name__ == "__main__":
    main()
