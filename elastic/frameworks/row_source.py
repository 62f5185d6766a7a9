"""What the layers of both frameworks share: where rows come from, and what a step has read."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import numpy as np

from elastic.errors import ModelDefError
from elastic.rows.base import Ids, RowGradient, RowReader, Table, Values
from elastic.rows.initializers import first_rows, parse

COMBINERS: Final = ("sum", "mean", "sqrtn")
UNNAMED: Final = "embedding"


class RowSource:
    """Where one layer gets its rows from.

    Attributes:
        table: The layer's; its name may be given when the model is built.
        calls: What the layer has read since a step began, in the framework's own tensors; None
            while nobody asks for gradients.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.calls: list[Any] | None = None
        self._reader: RowReader | None = None
        self._fault: Exception | None = None

    def name(self, name: str) -> None:
        """Give the table its name."""
        self.table = replace(self.table, name=name)

    def read_from(self, reader: RowReader) -> None:
        """Have rows come from there."""
        self._reader = reader

    def read(self, ids: Ids) -> Values:
        """Rows of these ids, which are strictly ascending; without a reader their first values."""
        if self._reader is None or not len(ids):
            return first_rows(self.table, ids)
        try:
            return self._reader.read(self.table, ids)
        except Exception as error:
            self._fault = error
            raise

    def keep_fault(self, fault: Exception) -> None:
        """Have an exception come out of `reading` as it is."""
        self._fault = fault

    def take_fault(self) -> Exception | None:
        """What has failed since the last time it was asked for."""
        fault, self._fault = self._fault, None
        return fault


@contextmanager
def reading(sources: Sequence[RowSource]) -> Iterator[None]:
    """Let what a reader raises come out as it is, whatever the framework has made of it."""
    try:
        yield
    except Exception:
        faults = [fault for source in sources if (fault := source.take_fault()) is not None]
        if faults:
            # Frameworks tell of it in many lines of their own.
            raise faults[0] from None
        raise
    finally:
        for source in sources:
            source.calls = None


def checked_table(dim: int, combiner: str | None, initializer: str, name: str | None) -> Table:
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
    return Table(name or UNNAMED, dim, initializer)


def check_names(tables: Sequence[Table]) -> None:
    """Each table needs a name of its own.

    Raises:
        ModelDefError: Two layers have one name.
    """
    seen: set[str] = set()
    for table in tables:
        if table.name in seen:
            raise ModelDefError(
                f"two embeddings of the model are named {table.name!r}: give each its own name, or "
                "call one layer twice to share its rows"
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


def merged_by_table(
    parts: Mapping[str, Sequence[tuple[Ids, Values]]],
) -> dict[str, RowGradient]:
    """`merged` for each table that was read."""
    return {name: merged(each) for name, each in parts.items() if each}
