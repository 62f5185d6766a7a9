"""Rows of embeddings as the master has them: read for workers, changed by its updates.

Nothing here waits for an event loop: a store that is another process is called from threads.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from elastic.checkpoints.rows import CutRows
from elastic.errors import CheckpointError
from elastic.rows.base import Ids, RowGradient, RowGradients, Table, Values
from elastic.rows.initializers import first_rows
from elastic.rows.kernels import Kernel
from elastic.rows.store import Change, Rows, RowStore, TableForm
from elastic.spec.status import TableStatus

_ID_BYTES: Final = 8
_NUMBER_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Share:
    """What one gradient brings to an update.

    Attributes:
        num_records: Behind it.
    """

    rows: RowGradients
    num_records: int


class Tables:
    """The tables of a model, over a store."""

    def __init__(
        self, store: RowStore, tables: Sequence[Table], kernel: Kernel | None = None
    ) -> None:
        """Take a store that has not been opened.

        Args:
            store: Where rows are kept.
            tables: Of the model.
            kernel: The job's optimizer, for rows; None where nothing is trained.
        """
        slots = () if kernel is None else kernel.slots
        self.forms = tuple(TableForm(table, slots) for table in tables)
        self.store = store
        self._kernel = kernel
        self._by_name = {form.table.name: form for form in self.forms}

    def open(self) -> None:
        """Name the tables to the store.

        Raises:
            RowsLostError, UserError: See `RowStore.open`.
        """
        self.store.open(self.forms)

    def table(self, name: str) -> Table:
        """A table of the model.

        Raises:
            ValueError: There is none of this name.
        """
        if name not in self._by_name:
            raise ValueError(f"the model has no table {name!r}")
        return self._by_name[name].table

    def check(self, rows: RowGradients) -> None:
        """See that gradients are of rows that there can be.

        Raises:
            ValueError: They are of an unknown table, or of rows of another size.
        """
        for name, gradient in rows.items():
            dim = self.table(name).dim
            if len(gradient.ids) and gradient.values.shape[1] != dim:
                raise ValueError(
                    f"a gradient of {gradient.values.shape[1]} numbers a row of table {name!r}, "
                    f"which has {dim}"
                )

    def read(self, name: str, ids: Ids, version: int | None = None) -> Values:
        """Values of rows, of shape (ids, dim); of those that nobody has changed the first ones.

        Raises:
            ValueError: There is no such table.
            KeyError, RowMissingError, RowsLostError: See `RowStore.read`.
        """
        self.table(name)
        return self.begun(name, ids, self.store.read(name, ids, version))

    def begun(self, name: str, ids: Ids, found: Rows) -> Values:
        """Values of rows that a store was asked for, first ones where it has none.

        Args:
            name: Of the table.
            ids: That were asked for.
            found: Their rows, the slots of which may be left out; may be changed.
        """
        table = self.table(name)
        values = np.ascontiguousarray(found.values[:, : table.dim])
        is_new = ~found.is_there
        if is_new.any():
            values[is_new] = first_rows(table, ids[is_new])
        return values

    def sizes(self) -> tuple[TableStatus, ...]:
        """How large the tables are now."""
        return tuple(map(self._size, self.forms))

    def _size(self, form: TableForm) -> TableStatus:
        num_rows = self.store.num_rows(form.table.name)
        size_bytes = num_rows * (_ID_BYTES + _NUMBER_BYTES * form.width)
        return TableStatus(
            name=form.table.name, dim=form.table.dim, rows=num_rows, size_bytes=size_bytes
        )

    def changes(
        self, shares: Sequence[Share], learning_rate: float, step: int
    ) -> dict[str, Change]:
        """What an update makes of the rows that its gradients are of.

        Args:
            shares: The gradients of the group, averaged by their records.
            learning_rate: Of this update.
            step: Which update of the model it is, from 1.

        Raises:
            RowMissingError, RowsLostError: See `RowStore.read`.
        """
        names = dict.fromkeys(name for share in shares for name in share.rows)
        means = {name: _mean(name, shares) for name in names}
        return {
            name: self._changed(self._by_name[name].table, mean, learning_rate, step)
            for name, mean in means.items()
            if len(mean.ids)
        }

    def _changed(
        self, table: Table, gradient: RowGradient, learning_rate: float, step: int
    ) -> Change:
        assert self._kernel is not None, "what is not trained is not updated"
        found = self.store.read(table.name, gradient.ids)
        rows, is_new = found.values, ~found.is_there
        if is_new.any():
            rows[is_new] = self._with_slots(first_rows(table, gradient.ids[is_new]))
        self._kernel.update(rows, gradient.values, learning_rate, step)
        return Change(gradient.ids, rows)

    def _with_slots(self, values: Values) -> Values:
        """Rows of shape (n, width) of these values, whose slots have seen no update."""
        if self._kernel is None:
            return values
        return np.concatenate([values, self._kernel.begin(*values.shape)], axis=1)

    # -- cuts ----------------------------------------------------------------------------------

    def of_version(self, version: int, let_go: Callable[[], None]) -> CutRows:
        """Rows of a version that is held, for who writes them down."""
        return CutRows(
            self.forms,
            partial(self.store.scan, version=version),
            is_durable=self.store.is_durable,
            let_go=let_go,
        )

    def let_go_but(self, versions: Sequence[int]) -> None:
        """Let go of what a process before has held for readers that went with it.

        Args:
            versions: Which somebody still needs.

        Raises:
            RowsLostError: The store does not answer.
        """
        for version in set(self.store.held).difference(versions):
            self.store.let_go(version)

    def go_back(self, version: int, rows: CutRows | None) -> None:
        """Have the rows of a cut, unless the store has gone back to them already.

        Raises:
            CheckpointError: They are those of other tables.
            RowsLostError, TrainingError: See `RowStore.load`.
        """
        self._check_fits(rows)
        if rows is not None and not rows.is_held:
            self._load(version, rows)

    def begin(self, version: int, rows: CutRows | None) -> None:
        """Have the values of a checkpoint at `version`, with slots that have seen no update.

        Args:
            version: Of the job that begins.
            rows: Of the checkpoint; None where no row has been changed yet.

        Raises:
            CheckpointError: They are those of other tables.
            RowsLostError, TrainingError: See `RowStore.load`.
        """
        if rows is not None:
            _check_tables(self.forms, rows.forms)
            rows = replace(rows, forms=self.forms, scan=partial(self._anew, rows.scan))
        self._load(version, rows)

    def _anew(self, scan: Callable[[str], Iterable[Change]], table: str) -> Iterator[Change]:
        dim = self.table(table).dim
        for part in scan(table):
            values = np.ascontiguousarray(part.values[:, :dim])
            yield Change(part.ids, self._with_slots(values))

    def _load(self, version: int, rows: CutRows | None) -> None:
        names = () if rows is None else self._by_name
        tables: Mapping[str, Iterable[Change]] = {
            name: _Parts(rows.scan, name) for name in names if rows is not None
        }
        self.store.load(version, tables)

    def _check_fits(self, rows: CutRows | None) -> None:
        if rows is None:
            raise CheckpointError("it has no rows of embeddings, and this model has tables")
        _check_tables(self.forms, rows.forms)
        for own, other in zip(self.forms, rows.forms, strict=True):
            if own.slots != other.slots:
                raise CheckpointError(
                    f"its rows of {own.table.name!r} are of an optimizer with "
                    f"{_listed(other.slots)}, this job's has {_listed(own.slots)}"
                )


@dataclass(frozen=True, slots=True)
class _Parts:
    """All rows of a table, read from their beginning each time that somebody goes through them."""

    scan: Callable[[str], Iterable[Change]]
    table: str

    def __iter__(self) -> Iterator[Change]:
        return iter(self.scan(self.table))


class NewestRows:
    """A `RowReader` for the master's own model, which callbacks may look at."""

    def __init__(self, tables: Tables) -> None:
        """Take tables that are open."""
        self._tables = tables

    def read(self, table: Table, ids: Ids) -> Values:
        """See `RowReader`."""
        return self._tables.read(table.name, ids)


def _check_tables(own: Sequence[TableForm], others: Sequence[TableForm]) -> None:
    wanted, given = [form.table for form in own], [form.table for form in others]
    if wanted != given:
        raise CheckpointError(
            f"its tables of embeddings are {_told(given)}, this model's are {_told(wanted)}"
        )


def _told(tables: Sequence[Table]) -> str:
    return ", ".join(f"{each.name}[{each.dim}] {each.initializer}" for each in tables) or "none"


def _listed(slots: Sequence[str]) -> str:
    return f"the slots {', '.join(slots)}" if slots else "no slots"


def _mean(name: str, shares: Sequence[Share]) -> RowGradient:
    """The average by records; a gradient without an id counts as 0 for it."""
    parts = [(share.rows[name], share.num_records) for share in shares if name in share.rows]
    if len(shares) == 1:
        return parts[0][0]
    num_records = sum(share.num_records for share in shares)
    ids = np.unique(np.concatenate([gradient.ids for gradient, _ in parts]))
    dim = max(gradient.values.shape[1] for gradient, _ in parts)
    total = np.zeros((len(ids), dim), np.float32)
    for gradient, weight in parts:
        if len(gradient.ids):
            total[np.searchsorted(ids, gradient.ids)] += gradient.values * np.float32(weight)
    total /= np.float32(num_records)
    return RowGradient(ids, total)
