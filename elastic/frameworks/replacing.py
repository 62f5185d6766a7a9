"""Ordinary embedding layers above a size, which become tables of rows: what both frameworks share.

How rows begin is read off the values with which a layer has begun, since frameworks do not say, or
let users overwrite it. A layer whose values are of no distribution that rows begin with is left.
"""

from collections.abc import Callable, Sequence
from math import ceil, erf, floor, log10, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from elastic.errors import ModelDefError
from elastic.frameworks.base import Array, Replacement

SAMPLE: Final = 100_000
"""Numbers by which a distribution is told."""

FITS: Final = 2.5
"""Below this, times the root of their number, numbers stay with their distribution: all but seven
in a million times (Kolmogorov and Smirnov)."""

BETWEEN_KURTOSES: Final = 2.4
"""That of a uniform distribution is 1.8, of a normal one 3."""

NO_DISTRIBUTION: Final = (
    "its first values are neither uniform or normal around 0 nor all the same, which is how rows "
    "can begin"
)


def told_of(replacement: Replacement) -> Sequence[tuple[str, str]]:
    """Events for the user: their kinds and messages."""
    replaced = [
        f"the layer {name} is a table of rows, which begin by {initializer}"
        for name, initializer in replacement.replaced.items()
    ]
    left = [
        f"the layer {name} is as large as --embedding_threshold and stays as it is: {reason}"
        for name, reason in replacement.left.items()
    ]
    if not replaced and not left:
        left = ["no embedding layer of the model is as large as --embedding_threshold"]
    return [
        *(("EmbeddingReplaced", message) for message in replaced),
        *(("EmbeddingLeft", message) for message in left),
    ]


def initializer_of(values: Array) -> str | None:
    """How rows like these begin, in the words of `elastic.rows.initializers`.

    The number in it is the roundest that the values bear out: `uniform(0.05)` and not `0.0499`.

    Args:
        values: Of a whole table, (rows, dim).

    Returns:
        None where they are of no such distribution.
    """
    least, most = float(values.min()), float(values.max())
    if least == most:
        return f"constant({least!r})"
    if not np.isfinite([least, most]).all() or not _are_columns_alike(values):
        return None
    sample = np.sort(values.reshape(-1)[:: max(1, values.size // SAMPLE)].astype(np.float64))
    deviation = float(np.sqrt(np.mean(sample**2)))
    if np.mean(sample**4) / deviation**4 < BETWEEN_KURTOSES:
        return _roundest(sample, "uniform", max(-least, most), ceil, _below_uniform)
    return _roundest(sample, "normal", deviation, round, _below_normal)


def refused_reading(name: str, what: str) -> ModelDefError:
    """The model uses the values of a layer that has none any more."""
    return ModelDefError(
        f"the model reads {what} of the layer {name}, whose rows --embedding_threshold has put "
        "into a table: give a threshold above the size of that layer, or only call it"
    )


_Below = Callable[[NDArray[np.float64], float], NDArray[np.float64]]
"""Which part of all numbers is below each of some."""


def _roundest(
    ordered: NDArray[np.float64],
    kind: str,
    scale: float,
    rounded: Callable[[float], int],
    below: _Below,
) -> str | None:
    for digits in (1, 2, 3):
        unit = 10.0 ** (floor(log10(scale)) + 1 - digits)
        # As text and back: 5 * 0.01 is 0.05 with a tail.
        number = float(f"{rounded(scale / unit) * unit:.{digits}g}")
        if _distance(ordered, below(ordered, number)) * sqrt(len(ordered)) < FITS:
            return f"{kind}({number!r})"
    return None


def _distance(ordered: NDArray[np.float64], below: NDArray[np.float64]) -> float:
    """The largest between which part of the numbers is below one, and which would be."""
    counted = np.arange(len(ordered) + 1) / len(ordered)
    return float(max(np.max(counted[1:] - below), np.max(below - counted[:-1])))


def _below_uniform(numbers: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    return np.clip((numbers / scale + 1) / 2, 0.0, 1.0)


def _below_normal(numbers: NDArray[np.float64], deviation: float) -> NDArray[np.float64]:
    scaled = numbers / (deviation * sqrt(2))
    return np.array([(1 + erf(each)) / 2 for each in scaled.tolist()])


def _are_columns_alike(values: Array) -> bool:
    """Whether the mean of each is as near to 0 as chance leaves it; trained ones' are not."""
    means = values.mean(axis=0, dtype=np.float64)
    return bool(np.abs(means).max() <= 6 * float(values.std()) / sqrt(len(values)))
