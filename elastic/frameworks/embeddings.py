"""What the layers of embeddings of both frameworks share.

Where their rows come from, and what a step has read; and ordinary layers above a size, which become
such layers. How rows begin is then read off the values with which a layer has begun, since
frameworks do not say, or let users overwrite it. A layer whose values are of no distribution that
rows begin with is left.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import ceil, erf, floor, log10, sqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from elastic.errors import ModelDefError
from elastic.frameworks.base import Array, Replacement
from elastic.rows.arithmetic import first_rows, parse
from elastic.rows.base import (
    CANDIDATES,
    ROW_DTYPES,
    Ids,
    Life,
    RowDtype,
    RowGradient,
    RowReader,
    Table,
    Values,
)

COMBINERS: Final = ("sum", "mean", "sqrtn")
UNNAMED: Final = "embedding"

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


class Reads:
    """What the layers read in a step whose gradients are asked for.

    Attributes:
        by_table: Ids and rows of each read, in the framework's own tensors, by table.
    """

    def __init__(self, tables: Sequence[Table], watch: Callable[[Any], Any]) -> None:
        """Begin.

        Args:
            tables: Of the model.
            watch: Has the framework derive by such rows.
        """
        self.by_table: dict[str, list[tuple[Any, Any]]] = {table.name: [] for table in tables}
        self._watch = watch

    @property
    def rows(self) -> list[Any]:
        """Of all reads, table by table."""
        return [rows for reads in self.by_table.values() for _, rows in reads]

    def add(self, table: Table, ids: Any, rows: Any) -> None:
        """Note what was read, before anything is computed of it."""
        self._watch(rows)
        self.by_table[table.name].append((ids, rows))


class RowSource:
    """Where one layer gets its rows from.

    Attributes:
        table: The layer's; its name may be given when the model is built.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self._reads: Reads | None = None
        self._reader: RowReader | None = None
        self._fault: Exception | None = None
        self._is_guarded = False
        self._num_ids: int | None = None

    def take_ids_below(self, num_ids: int) -> None:
        """Refuse ids that are not from 0 to below this."""
        self._num_ids = num_ids

    def name(self, name: str) -> None:
        """Give the table its name."""
        self.table = replace(self.table, name=name)

    def read_from(self, reader: RowReader) -> None:
        """Have rows come from there."""
        self._reader = reader

    def read(self, ids: Ids) -> Values:
        """Rows of these ids, which are strictly ascending; without a reader their first values.

        Raises:
            ModelDefError: The layer has no such ids.
        """
        self._check_range(ids)
        if self._reader is None or not len(ids):
            return first_rows(self.table, ids)
        try:
            return self._reader.read(self.table, ids)
        except Exception as error:
            self._fault = error
            raise

    def _check_range(self, ids: Ids) -> None:
        if self._num_ids is None or not len(ids):
            return
        for row_id in (int(ids[0]), int(ids[-1])):
            if not 0 <= row_id < self._num_ids:
                raise ModelDefError(
                    f"the embedding {self.table.name!r} is given the id {row_id}, and has ids from "
                    f"0 to {self._num_ids - 1}: give it more, or look what makes this id"
                )

    def tell_to(self, reads: Reads | None) -> None:
        """Have reads noted there, or no more."""
        self._reads = reads

    def tell(self, ids: Any, rows: Any) -> None:
        """Tell of a read to who asks for gradients, if anybody does."""
        if self._reads is not None:
            self._reads.add(self.table, ids, rows)

    def keep_fault(self, fault: Exception) -> bool:
        """Have an exception come out of `reading` as it is; whether anything is run within that."""
        self._fault = fault
        return self._is_guarded

    def guard(self, is_guarded: bool) -> None:
        """Say whether `reading` is around what is run now."""
        self._is_guarded = is_guarded
        self._fault = None

    @property
    def fault(self) -> Exception | None:
        """What has failed since `guard`."""
        return self._fault


@contextmanager
def reading(sources: Sequence[RowSource]) -> Iterator[None]:
    """Let what a reader raises come out as it is, whatever the framework has made of it."""
    for source in sources:
        source.guard(True)
    try:
        try:
            yield
        finally:
            _raise_fault(sources)
    finally:
        for source in sources:
            source.guard(False)


def _raise_fault(sources: Sequence[RowSource]) -> None:
    for source in sources:
        if source.fault is not None:
            # Frameworks tell of it in many lines of their own.
            raise source.fault from None


@contextmanager
def recording(sources: Sequence[RowSource], watch: Callable[[Any], Any]) -> Iterator[Reads]:
    """Note what is read meanwhile, to derive by it."""
    reads = Reads([source.table for source in sources], watch)
    for source in sources:
        source.tell_to(reads)
    try:
        yield reads
    finally:
        for source in sources:
            source.tell_to(None)


def checked_table(
    dim: int,
    combiner: str | None,
    initializer: str,
    name: str | None,
    life: Life,
    row_dtype: RowDtype = "float32",
) -> Table:
    """The table that a layer's arguments ask for.

    Raises:
        ModelDefError: One of them has no such value.
    """
    if isinstance(dim, bool) or not isinstance(dim, int) or dim < 1:
        raise ModelDefError(f"an embedding has dim {dim!r}: give how many numbers a row has")
    if combiner is not None and combiner not in COMBINERS:
        raise ModelDefError(
            f"an embedding has the combiner {combiner!r}: take sum, mean or sqrtn, or leave it "
            "out to have a row for each id"
        )
    parse(str(initializer))
    _check_number("admit_after", life.admit_after)
    for argument in ("expire_after", "max_rows"):
        if getattr(life, argument) is not None:
            _check_number(argument, getattr(life, argument))
    if row_dtype not in ROW_DTYPES:
        raise ModelDefError(
            f"an embedding has row_dtype={row_dtype!r}: take {', '.join(ROW_DTYPES)}"
        )
    return Table(name or UNNAMED, dim, initializer, life, row_dtype)


def _check_number(argument: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ModelDefError(
            f"an embedding has {argument}={value!r}: give a number from 1 on, or leave it out"
        )


def check_names(tables: Sequence[Table]) -> None:
    """Each table needs a name of its own.

    Raises:
        ModelDefError: Two layers have one name, or one has a name of ours.
    """
    seen: set[str] = set()
    for table in tables:
        if table.name in seen:
            raise ModelDefError(
                f"two embeddings of the model are named {table.name!r}: give each its own name, or "
                "call one layer twice to share its rows"
            )
        if table.name.endswith(CANDIDATES):
            raise ModelDefError(
                f"an embedding is named {table.name!r}, as what is kept beside a table: give it "
                "another name"
            )
        seen.add(table.name)


def merged(parts: Sequence[tuple[Ids, Values]]) -> RowGradient:
    """The gradient of all reads of one table in a step, of ids strictly ascending in each."""
    if len(parts) == 1:
        return RowGradient(*parts[0])
    ids = np.concatenate([part[0] for part in parts])
    values = np.concatenate([part[1] for part in parts])
    order = np.argsort(ids, kind="stable")
    ids = ids[order]
    if not len(ids):
        return RowGradient(ids, values)
    is_first = np.concatenate([[True], ids[1:] != ids[:-1]])
    return RowGradient(ids[is_first], np.add.reduceat(values[order], np.flatnonzero(is_first)))


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
    """How rows like these begin, in the words of `elastic.rows.arithmetic`.

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
