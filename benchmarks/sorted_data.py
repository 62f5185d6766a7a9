"""Data of scikit-learn whose records lie in the order of their labels, and the models of it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from sklearn.datasets import load_diabetes

from benchmarks.processes import ROOT


@dataclass(frozen=True, slots=True)
class SortedSet:
    """Data whose records lie in the order of their labels.

    Attributes:
        name: Of the data.
        prepare: Writes `train.SUFFIX`, sorted, and `test.SUFFIX` to a folder.
        suffix: Of both files.
        model: Module and model by framework, after the zoo that has them.
        metric: What is compared.
        minibatch_size: Records of a gradient.
        num_epochs: Of a job, and of a loop.
    """

    name: str
    prepare: Callable[[Path], None]
    suffix: str
    model: str
    metric: str
    minibatch_size: int
    num_epochs: int
    zoo: Path = field(default=ROOT / "model_zoo")


def _of_zoo(name: str, label: str) -> Callable[[Path], None]:
    """The data of a model of the zoo; its training file is then sorted."""

    def prepare(folder: Path) -> None:
        from support.datasets import zoo_module

        zoo_module(f"{name}.prepare_data").prepare(folder)
        for file in folder.glob("train.*"):
            (_sort_arrays if file.suffix == ".npz" else _sort_rows)(file, label)

    return prepare


def _sort_arrays(file: Path, label: str) -> None:
    with np.load(file) as arrays:
        order = np.argsort(arrays[label], kind="stable")
        in_order = {name: arrays[name][order] for name in arrays.files}
    np.savez(file, **in_order)


def _sort_rows(file: Path, label: str) -> None:
    header, *rows = file.read_text().splitlines()
    column = header.split(",").index(label)
    rows.sort(key=lambda row: row.split(",")[column])
    file.write_text("\n".join([header, *rows]) + "\n")


def _prepare_diabetes(folder: Path) -> None:
    x, y = load_diabetes(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    test, train = order[:88], order[88:]
    x = x / x[train].std(0)
    y = ((y - y[train].mean()) / y[train].std())[:, None]
    train = train[np.argsort(y[train, 0], kind="stable")]
    for name, rows in (("train", train), ("test", test)):
        arrays = {"x": x[rows].astype(np.float32), "y": y[rows].astype(np.float32)}
        np.savez(folder / f"{name}.npz", **arrays)


SETS: Final = (
    SortedSet(
        "digits", _of_zoo("digits", "label"), "npz", "digits.digits_{}", "accuracy",
        minibatch_size=32, num_epochs=6,
    ),
    SortedSet(
        "diabetes", _prepare_diabetes, "npz", "diabetes_{}", "mse",
        minibatch_size=16, num_epochs=15, zoo=ROOT / "benchmarks" / "models",
    ),
    SortedSet(
        "iris", _of_zoo("iris", "species"), "csv", "iris.iris_{}", "accuracy",
        minibatch_size=8, num_epochs=25,
    ),
    SortedSet(
        "breast cancer", _of_zoo("breast_cancer", "diagnosis"), "csv",
        "breast_cancer.breast_cancer_{}", "accuracy",
        minibatch_size=16, num_epochs=10,
    ),
)  # fmt: skip
