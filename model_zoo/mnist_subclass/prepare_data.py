"""Write scikit-learn's handwritten digits, scaled to 28x28, as `train.npz` and `test.npz`.

They stand in for MNIST where nothing can be downloaded. MNIST itself, saved with the same array
names and types, works as well.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

TEST_FRACTION = 0.2
SIZE = 28


def interpolation_matrix(size: int, new_size: int) -> NDArray[Any]:
    """Return the (new_size, size) matrix that interpolates linearly between pixel centres."""
    centres = (np.arange(new_size) + 0.5) * size / new_size - 0.5
    distances = np.abs(np.clip(centres, 0, size - 1)[:, None] - np.arange(size)[None, :])
    return np.maximum(0.0, 1.0 - distances)


def resize(images: NDArray[Any], new_size: int) -> NDArray[Any]:
    """Scale square images (n, size, size) bilinearly to (n, new_size, new_size)."""
    matrix = interpolation_matrix(images.shape[-1], new_size)
    resized: NDArray[Any] = matrix @ images @ matrix.T
    return resized


def prepare(output_dir: Path, seed: int = 0) -> None:
    """Write 1438 records to `train.npz` and 359 to `test.npz` below `output_dir`.

    A record is `image` (28, 28) uint8 in [0, 255] and `label` int64.
    """
    digits = load_digits()
    images = np.rint(resize(digits.images / 16.0, SIZE) * 255).astype(np.uint8)
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
