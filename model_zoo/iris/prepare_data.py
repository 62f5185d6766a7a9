"""Write the iris flowers that come with scikit-learn as `train.csv` and `test.csv`."""

import argparse
import csv
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_iris

COLUMNS = ("sepal_length", "sepal_width", "petal_length", "petal_width", "species")
TEST_FRACTION = 0.2


def prepare(output_dir: Path, seed: int = 0) -> None:
    """Write 120 records to `train.csv` and 30 to `test.csv` below `output_dir`.

    A record is four lengths in centimetres and the name of the species.
    """
    iris = load_iris()
    order = np.random.default_rng(seed).permutation(len(iris.target))
    num_test = round(TEST_FRACTION * len(order))
    output_dir.mkdir(parents=True, exist_ok=True)
    for name, rows in (("test", order[:num_test]), ("train", order[num_test:])):
        with (output_dir / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            for row in rows:
                writer.writerow([*iris.data[row], iris.target_names[iris.target[row]]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output_dir", type=Path, help="folder for train.csv and test.csv")
    parser.add_argument("--seed", type=int, default=0, help="seeds the split")
    arguments = parser.parse_args()
    prepare(arguments.output_dir, arguments.seed)
    sys.stdout.write(f"wrote train.csv and test.csv to {arguments.output_dir}\n")


if __name__ == "__main__":
    main()
