"""Write an npz file of indices: the records of the counting models."""

import argparse
import sys
from pathlib import Path

import numpy as np


def prepare(output_dir: Path, num_records: int = 1000) -> None:
    """Write `train.npz`, whose record i is `index` int64 = i, and the same as `test.npz`."""
    output_dir.mkdir(parents=True, exist_ok=True)
    for name in ("train", "test"):
        np.savez(output_dir / f"{name}.npz", index=np.arange(num_records, dtype=np.int64))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output_dir", type=Path, help="folder for train.npz and test.npz")
    parser.add_argument("--num_records", type=int, default=1000, help="records to write")
    arguments = parser.parse_args()
    prepare(arguments.output_dir, arguments.num_records)
    sys.stdout.write(f"wrote train.npz and test.npz to {arguments.output_dir}\n")


if __name__ == "__main__":
    main()
