"""Write the handwritten digits that come with scikit-learn as `train.npz` and `test.npz`."""

import argparse
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

TEST_FRACTION = 0.2


def prepare(output_dir: Path, seed: int = 0) -> None:
    """Write 1438 records to `train.npz` and 359 to `test.npz` below `output_dir`.

    A record is `image` (8, 8) float32 in [0, 1] and `label` int64.
    """
    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)
    labels = digits.target.astype(np.int64)
    order = np.random.default_rng(seed).permutation(len(labels))
    num_test = round(TEST_FRACTION * len(labels))
    output_dir.mkdir(parents=True, exist_ok=True)
    for name, rows in (("test", order[:num_test]), ("train", order[num_test:])):
        np.savez(output_dir / f"{name}.npz", image=images[rows], label=labels[rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output_dir", type=Path, help="folder for train.npz and test.npz")
    parser.add_argument("--seed", type=int, default=0, help="seeds the split")
    arguments = parser.parse_args()
    prepare(arguments.output_dir, arguments.seed)
    sys.stdout.write(f"wrote train.npz and test.npz to {arguments.output_dir}\n")


if __name__ == "__main__":
    main()
