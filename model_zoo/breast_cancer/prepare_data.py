"""Write the breast cancer records that come with scikit-learn as `train.csv` and `test.csv`."""

import argparse
import csv
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer

TEST_FRACTION = 0.2


def prepare(output_dir: Path, seed: int = 0) -> None:
    """Write 455 records to `train.csv` and 114 to `test.csv` below `output_dir`.

    A record is 30 measurements, such as `mean_radius`, and `diagnosis`, `M` or `B`.
    """
    tumours = load_breast_cancer()
    columns = [*(name.replace(" ", "_") for name in tumours.feature_names), "diagnosis"]
    order = np.random.default_rng(seed).permutation(len(tumours.target))
    num_test = round(TEST_FRACTION * len(order))
    output_dir.mkdir(parents=True, exist_ok=True)
    for name, rows in (("test", order[:num_test]), ("train", order[num_test:])):
        with (output_dir / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            for row in rows:
                writer.writerow([*tumours.data[row], "MB"[tumours.target[row]]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output_dir", type=Path, help="folder for train.csv and test.csv")
    parser.add_argument("--seed", type=int, default=0, help="seeds the split")
    arguments = parser.parse_args()
    prepare(arguments.output_dir, arguments.seed)
    sys.stdout.write(f"wrote train.csv and test.csv to {arguments.output_dir}\n")


if __name__ == "__main__":
    main()
