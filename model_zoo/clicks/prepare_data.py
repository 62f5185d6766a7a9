"""Write made-up clicks as `train.parquet`, `test.parquet` and the same as CSV, like Criteo's.

What decides about a click is a hidden factorization machine over 26 categories, and 13 numbers.
Few values of a category are in most records, and many in one or none.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv, parquet

NUMBERS = tuple(f"I{index}" for index in range(1, 14))
CATEGORIES = tuple(f"C{index}" for index in range(1, 27))
SMALLEST, LARGEST = 4, 100_000
"""Values of the smallest and of the largest category."""
HIDDEN_DIM = 4
MISSING = 0.1
"""The fraction of numbers that are not known."""
CLICKS_LOGIT = -1.2
"""Of a record of which nothing is known: about every fourth is a click."""
GROUP_ROWS = 1 << 16

_ODD = 2_654_435_761
"""2^32 by the golden ratio."""


def sizes() -> NDArray[np.int64]:
    """How many values each category can have."""
    return np.geomspace(SMALLEST, LARGEST, len(CATEGORIES)).astype(np.int64)


def ranks(num_records: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Values of the categories by their frequency, 0 the most frequent, of shape (n, 26).

    The one of rank r is drawn about 1/(r + 1) as often as the first: Zipf's law.
    """
    drawn = rng.random((num_records, len(CATEGORIES)))
    return ((sizes() + 1.0) ** drawn).astype(np.int64) - 1


def ids(rank: NDArray[np.int64]) -> NDArray[np.int64]:
    """What stands in the records for these values: 32 bits without an order."""
    category = np.arange(len(CATEGORIES)) << 24
    # Multiplied by an odd number, no two of them become equal.
    return (rank + category + 1) * _ODD % 2**32


def logits(
    rank: NDArray[np.int64], numbers: NDArray[np.float32], rng: np.random.Generator
) -> NDArray[np.float64]:
    """The hidden model: a weight and a vector for each value, and a weight for each number."""
    linear = np.log1p(numbers) @ rng.normal(0, 0.25, len(NUMBERS))
    total = np.zeros((len(rank), HIDDEN_DIM))
    squares = np.zeros(len(rank))
    for column, size in zip(rank.T, sizes(), strict=True):
        linear += rng.normal(0, 0.25, size)[column]
        vectors = rng.normal(0, 0.14, (size, HIDDEN_DIM))[column]
        total += vectors
        squares += (vectors**2).sum(axis=1)
    paired = ((total**2).sum(axis=1) - squares) / 2
    return linear - linear.mean() + paired + CLICKS_LOGIT


def clicks(num_records: int, seed: int = 0) -> dict[str, NDArray[Any]]:
    """Records as columns: `label`, 13 numbers, some of them NaN, and 26 int64.

    The hidden model is that of the seed, and so the same for any number of records.
    """
    rng = np.random.default_rng([seed, num_records])
    rank = ranks(num_records, rng)
    numbers = np.floor(rng.lognormal(1.0, 1.0, (num_records, len(NUMBERS)))).astype(np.float32)
    chance = 1 / (1 + np.exp(-logits(rank, numbers, np.random.default_rng(seed))))
    numbers[rng.random(numbers.shape) < MISSING] = np.nan
    return {
        "label": (rng.random(num_records) < chance).astype(np.int64),
        **dict(zip(NUMBERS, numbers.T, strict=True)),
        **dict(zip(CATEGORIES, ids(rank).T, strict=True)),
    }


def as_text(columns: dict[str, NDArray[Any]]) -> pa.Table:
    """The records as Criteo has theirs: categories in hexadecimal, missing numbers left out."""
    texts = {name: pa.array([f"{value:08x}" for value in columns[name]]) for name in CATEGORIES}
    numbers = {name: pa.array(columns[name], from_pandas=True).cast(pa.int64()) for name in NUMBERS}
    return pa.table({"label": columns["label"], **numbers, **texts})


def prepare(
    output_dir: Path, num_records: int = 30_000, num_test_records: int = 6_000, seed: int = 0
) -> None:
    """Write `train` and `test`, each as `.parquet` and as `.csv`, below `output_dir`.

    Categories are int64 in Parquet, and the same numbers in hexadecimal in CSV.
    """
    output_dir.mkdir(parents=True, exist_ok=True)
    plain = csv.WriteOptions(quoting_style="none")
    columns = clicks(num_records + num_test_records, seed)
    for name, start, end in (
        ("train", 0, num_records),
        ("test", num_records, num_records + num_test_records),
    ):
        part = {column: values[start:end] for column, values in columns.items()}
        path = output_dir / f"{name}.parquet"
        parquet.write_table(pa.table(part), path, row_group_size=GROUP_ROWS)
        csv.write_csv(as_text(part), output_dir / f"{name}.csv", plain)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output_dir", type=Path, help="folder for the four files")
    parser.add_argument("--num_records", type=int, default=30_000, help="records to train on")
    parser.add_argument("--num_test_records", type=int, default=6_000, help="records to test on")
    parser.add_argument("--seed", type=int, default=0, help="seeds the hidden model and records")
    arguments = parser.parse_args()
    prepare(arguments.output_dir, arguments.num_records, arguments.num_test_records, arguments.seed)
    sys.stdout.write(f"wrote train and test, as Parquet and CSV, to {arguments.output_dir}\n")


if __name__ == "__main__":
    main()
