"""What the layers of both frameworks share: where rows come from, and what a step has read."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import numpy as np

from elastic.errors import ModelDefError
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
from elastic.rows.initializers import first_rows, parse

COMBINERS: Final = ("sum", "mean", "sqrtn")
UNNAMED: Final = "embedding"


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
