"""Cut the sources of Python's standard library into windows of bytes, as npz files.

The text is that of the Python that runs this, so other versions give other records.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

TEST_FRACTION = 0.1
# Installed packages and test data vary from machine to machine.
SKIPPED_DIRS = frozenset({"site-packages", "dist-packages", "test", "tests", "idle_test"})


def source_files() -> list[Path]:
    """List the standard library's modules in a stable order."""
    root = Path(os.__file__).parent
    return sorted(
        path for path in root.rglob("*.py") if SKIPPED_DIRS.isdisjoint(path.relative_to(root).parts)
    )


def cut_windows(
    files: list[Path], length: int, num_windows: int, rng: np.random.Generator
) -> NDArray[Any]:
    """Choose `num_windows` of the non-overlapping windows in the joined files.

    Returns:
        (num_windows, length) uint8.

    Raises:
        ValueError: The files hold fewer windows.
    """
    text = np.frombuffer(b"".join(path.read_bytes() for path in files), dtype=np.uint8)
    windows = text[: len(text) // length * length].reshape(-1, length)
    if num_windows > len(windows):
        raise ValueError(
            f"the sources hold {len(windows)} windows of {length} bytes, "
            f"fewer than the {num_windows} asked for: ask for fewer, or a shorter --context"
        )
    return windows[rng.choice(len(windows), num_windows, replace=False)]


def prepare(
    output_dir: Path,
    context: int = 64,
    num_windows: int = 8000,
    num_test_windows: int = 500,
    seed: int = 0,
) -> None:
    """Write `train.npz` and `test.npz`, cut from different files, below `output_dir`.

    A record is `window` (context + 1,) uint8.
    """
    rng = np.random.default_rng(seed)
    files = source_files()
    order = [files[i] for i in rng.permutation(len(files))]
    num_test_files = round(TEST_FRACTION * len(order))
    output_dir.mkdir(parents=True, exist_ok=True)
    for name, part, count in (
        ("test", order[:num_test_files], num_test_windows),
        ("train", order[num_test_files:], num_windows),
    ):
        np.savez(output_dir / f"{name}.npz", window=cut_windows(part, context + 1, count, rng))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output_dir", type=Path, help="folder for train.npz and test.npz")
    parser.add_argument("--context", type=int, default=64, help="bytes the model is given")
    parser.add_argument("--num_windows", type=int, default=8000, help="records in train.npz")
    parser.add_argument("--num_test_windows", type=int, default=500, help="records in test.npz")
    parser.add_argument("--seed", type=int, default=0, help="seeds the split and the choice")
    arguments = parser.parse_args()
    prepare(**vars(arguments))
    sys.stdout.write(f"wrote train.npz and test.npz to {arguments.output_dir}\n")


if __name__ == "__main__":
    main()
