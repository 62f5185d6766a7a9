"""Cut parts of Python's standard library into labelled passages: `train.csv` and `test.csv`.

The text is that of the Python that runs this, so other versions give other records.
"""

import argparse
import csv
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

AREAS = {
    "asyncio": ("asyncio",),
    "email": ("email",),
    "import": ("importlib",),
    "processes": ("multiprocessing",),
    "testing": ("unittest",),
    "web": ("http", "urllib"),
    "xml": ("xml",),
}
"""Label → packages of the standard library."""
LINES = 8
TEST_FRACTION = 0.2


def passages(packages: tuple[str, ...]) -> Iterator[str]:
    """Every run of `LINES` lines that are not blank, in a stable order."""
    root = Path(os.__file__).parent
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            # The tests of a package are installed with some Pythons and not with others.
            if "test" in path.parts:
                continue
            lines = [line for line in path.read_text("utf-8").splitlines() if line.strip()]
            for start in range(0, len(lines) - LINES + 1, LINES):
                yield "\n".join(lines[start : start + LINES])


def prepare(output_dir: Path, per_area: int = 300, seed: int = 0) -> None:
    """Write four fifths of `per_area` passages of each area to `train.csv`, the rest to `test.csv`.

    A record is `text` and `area`.

    Raises:
        ValueError: An area has fewer passages.
    """
    rng = np.random.default_rng(seed)
    parts: dict[str, list[tuple[str, str]]] = {"test": [], "train": []}
    num_test = round(TEST_FRACTION * per_area)
    for area, packages in AREAS.items():
        # Some passages, such as lists of names, stand in several files.
        found = list(dict.fromkeys(passages(packages)))
        if len(found) < per_area:
            raise ValueError(
                f"{area} has {len(found)} passages, fewer than the {per_area} asked for: "
                "ask for fewer with --per_area"
            )
        chosen = [found[i] for i in rng.choice(len(found), per_area, replace=False)]
        parts["test"] += [(text, area) for text in chosen[:num_test]]
        parts["train"] += [(text, area) for text in chosen[num_test:]]
    output_dir.mkdir(parents=True, exist_ok=True)
    for name, rows in parts.items():
        shuffled = [rows[i] for i in rng.permutation(len(rows))]
        with (output_dir / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("text", "area"), *shuffled])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output_dir", type=Path, help="folder for train.csv and test.csv")
    parser.add_argument("--per_area", type=int, default=300, help="passages of each area")
    parser.add_argument("--seed", type=int, default=0, help="seeds the choice and the split")
    arguments = parser.parse_args()
    prepare(**vars(arguments))
    sys.stdout.write(f"wrote train.csv and test.csv to {arguments.output_dir}\n")


if __name__ == "__main__":
    main()
