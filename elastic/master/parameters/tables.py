"""Rows of embeddings as the master has them: read for workers, changed by its updates.

Nothing here waits for an event loop: a store that is another process is called from threads.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from elastic.checkpoints.contents import CutRows
from elastic.errors import CheckpointError
from elastic.rows.arithmetic import Kernel, first_rows, numbers_of, put_numbers, repacked, unpacked
from elastic.rows.base import (
    CANDIDATES,
    NOTES,
    Change,
    Gone,
    Ids,
    Life,
    RowGradient,
    RowGradients,
    Rows,
    RowStore,
    Table,
    TableForm,
    Values,
    is_due,
    leaving,
    no_ids,
    note,
    noted,
    notes_after,
    part_rows,
    without,
)
from elastic.rows.ids import NotedIds, distinct, merged
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
    """The tables of a model, over a store.

    Attributes:
        gone: By table, what of it has gone by updates made here.
    """

    def __init__(
        self, store: RowStore, tables: Sequence[Table], kernel: Kernel | None = None
    ) -> None:
        """Take a store that has not been opened.

        Args:
            store: Where rows are kept.
            tables: Of the model.
            kernel: The job's optimizer, for rows; None where nothing is trained.
        """
        self.tables = tuple(tables)
        self.store = store
        self._kernel = kernel
        self._by_name = {table.name: _form(table, kernel) for table in tables}
        self._candidates = {
            table.name: _candidates(table)
            for table in tables
            if kernel is not None and table.life.admit_after > 1
        }
        self.gone = {table.name: Gone() for table in tables}
        self.forms = (*self._by_name.values(), *self._candidates.values())

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
        values = unpacked(table, found.values)
        is_new = ~found.is_there
        if is_new.any():
            values[is_new] = first_rows(table, ids[is_new])
        return values

    def sizes(self) -> tuple[TableStatus, ...]:
        """How large the tables are now."""
        return tuple(map(self._size, self.tables))

    def _size(self, table: Table) -> TableStatus:
        form, counted = self._by_name[table.name], self._candidates.get(table.name)
        gone = self.gone[table.name]
        return TableStatus(
            name=table.name,
            dim=table.dim,
            rows=self.store.num_rows(table.name),
            size_bytes=self._size_bytes(form) + (self._size_bytes(counted) if counted else 0),
            candidates=self.store.num_rows(counted.table.name) if counted else 0,
            expired=gone.expired,
            evicted=gone.evicted,
        )

    def _size_bytes(self, form: TableForm) -> int:
        return self.store.num_rows(form.table.name) * (_ID_BYTES + _NUMBER_BYTES * form.width)

    @property
    def have_life(self) -> bool:
        """Whether rows of any table come or go by what is noted of them."""
        return any(form.notes for form in self.forms)

    def num_worked_on(self, shares: Sequence[Share], step: int) -> int:
        """Rows that an update goes through: all of a table where it may have to look which go.

        Args:
            shares, step: See `changes`; of stores in memory, which know at once what they have.
        """
        num_ids = sum(len(each.ids) for share in shares for each in share.rows.values())
        sizes = [(form, self.store.num_rows(form.table.name)) for form in self.forms if form.notes]
        looked_at = [num for form, num in sizes if is_due(form.table.life, step, num + num_ids)]
        return num_ids + sum(looked_at)

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
        changes: dict[str, Change] = {}
        for table in self.tables:
            mean = means.get(table.name)
            if mean is not None and len(mean.ids):
                changes |= self._changed(table, mean, learning_rate, step)
        for form in self.forms:
            self._end_rows(form, changes, step)
        return {name: each for name, each in changes.items() if len(each.ids) + len(each.removed)}

    def _changed(
        self, table: Table, gradient: RowGradient, learning_rate: float, step: int
    ) -> dict[str, Change]:
        """What a gradient makes of a table's rows, and of ids that have none yet."""
        assert self._kernel is not None, "what is not trained is not updated"
        form, found = self._by_name[table.name], self.store.read(table.name, gradient.ids)
        changes, ids, values = {}, gradient.ids, gradient.values
        if table.name in self._candidates and not found.is_there.all():
            counted, has_row = self._count(table, ids, found.is_there, step)
            changes[self._candidates[table.name].table.name] = counted
            ids, values = ids[has_row], values[has_row]
            found = Rows(found.values[has_row], found.is_there[has_row])
        rows, is_new = found.values, ~found.is_there
        numbers = numbers_of(form, rows)
        if is_new.any():
            first = first_rows(table, ids[is_new])
            numbers[is_new] = np.concatenate([first, self._kernel.begin(*first.shape)], axis=1)
        self._kernel.update(numbers, values, learning_rate, step)
        put_numbers(form, rows, numbers, ids, step)
        if form.notes:
            note(rows, step)
        return changes | {table.name: Change(ids, rows)}

    def _count(
        self, table: Table, ids: Ids, is_there: NDArray[np.bool_], step: int
    ) -> tuple[Change, NDArray[np.bool_]]:
        """Count ids that have no row, and tell which of all have one from now on."""
        new = ids[~is_there]
        counted = self.store.read(self._candidates[table.name].table.name, new).values
        note(counted, step)
        is_admitted = noted(counted)[:, 0] >= table.life.admit_after
        has_row = is_there.copy()
        has_row[~is_there] = is_admitted
        return Change(new[~is_admitted], counted[~is_admitted], new[is_admitted]), has_row

    def _end_rows(self, form: TableForm, changes: dict[str, Change], step: int) -> None:
        """Add to the changes of an update which rows of a table go with it."""
        table = form.table
        if not table.life.ends or not form.notes:
            return
        change = changes.get(table.name, Change(no_ids(), np.empty((0, form.width), np.float32)))
        # A row that this update makes was in no other.
        num_new = int(np.count_nonzero(noted(change.values)[:, 0] == 1))
        if is_due(table.life, step, self.store.num_rows(table.name) + num_new):
            notes = notes_after(self.store.notes(table.name), change)
            going = leaving(table.life, notes, step)
            changes[table.name] = without(change, going.ids)
            if table.name in self.gone:
                self.gone[table.name] += going.num

    def _begun(self, form: TableForm, values: Values, step: int) -> Values:
        """Stored rows of these stored values, whose slots have seen no update."""
        if self._kernel is None:
            return values
        parts = [values, self._kernel.begin(len(values), form.table.dim)]
        if form.notes:
            parts.append(_new_notes(len(values), step))
        return np.concatenate(parts, axis=1)

    # -- cuts ----------------------------------------------------------------------------------

    def of_version(self, version: int, let_go: Callable[[], None]) -> CutRows:
        """Rows of a version that is held, for who writes them down."""
        return CutRows(
            self.forms,
            partial(self.store.scan, version=version),
            let_go=let_go,
        )

    def changed(self, noted: NotedIds, version: int, table: str) -> Iterator[Change]:
        """What is there of some ids in a version that is held, and which of them are not."""
        ids = merged(noted.get(table, ()))
        step = part_rows(_named(table, self.forms).width)
        for start in range(0, len(ids), step):
            part = ids[start : start + step]
            rows = self.store.read(table, part, version)
            yield Change(part[rows.is_there], rows.values[rows.is_there], part[~rows.is_there])

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
            self._load(version, replace(rows, scan=partial(self._kept, rows, version)))

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
            _check_tables(self.tables, rows.forms)
            rows = replace(rows, forms=self.forms, scan=partial(self._anew, rows, version))
        self._load(version, rows)

    def _anew(self, rows: CutRows, version: int, name: str) -> Iterator[Change]:
        form = self._by_name.get(name)
        if form is None:
            # Ids are counted anew.
            return
        was = _named(name, rows.forms).table
        for part in rows.scan(name):
            values = np.ascontiguousarray(repacked(form.table, was, part, version))
            yield Change(part.ids, self._begun(form, values, version))

    def _kept(self, rows: CutRows, version: int, name: str) -> Iterator[Change]:
        """Rows of a cut, whose layers may have asked for another life, or another dtype."""
        form = _named(name, self.forms)
        if name not in [each.table.name for each in rows.forms]:
            return
        was = _named(name, rows.forms)
        for part in rows.scan(name):
            end = was.width - was.num_notes
            kept = [
                repacked(form.table, was.table, part, version),
                part.values[:, was.table.num_words : end],
            ]
            if form.notes == was.notes:
                kept.append(part.values[:, end:])
            elif form.notes:
                kept.append(_new_notes(len(part.ids), version))
            yield Change(part.ids, np.concatenate(kept, axis=1))

    def _load(self, version: int, rows: CutRows | None) -> None:
        names = () if rows is None else [form.table.name for form in self.forms]
        tables: Mapping[str, Iterable[Change]] = {
            name: _Parts(rows.scan, name) for name in names if rows is not None
        }
        self.store.load(version, tables)

    def _check_fits(self, rows: CutRows | None) -> None:
        if rows is None:
            raise CheckpointError("it has no rows of embeddings, and this model has tables")
        _check_tables(self.tables, rows.forms)
        others = {form.table.name: form for form in rows.forms}
        for own in self._by_name.values():
            other = others[own.table.name]
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


def _named(name: str, forms: Iterable[TableForm]) -> TableForm:
    return next(form for form in forms if form.table.name == name)


def _new_notes(num_rows: int, step: int) -> Values:
    """The notes of rows that were in one update, as words."""
    return np.tile(np.array([1, step], np.int32), (num_rows, 1)).view(np.float32)


def _form(table: Table, kernel: Kernel | None) -> TableForm:
    if kernel is None:
        return TableForm(table)
    return TableForm(table, kernel.slots, NOTES if table.life.ends else ())


def _candidates(table: Table) -> TableForm:
    """What is stored of a table's ids that have no row yet: notes alone."""
    return TableForm(Table(table.name + CANDIDATES, 0, "zeros", table.life), notes=NOTES)


def _check_tables(own: Sequence[Table], others: Sequence[TableForm]) -> None:
    # How rows live and are stored may change; ids that are only counted are no table of the model.
    wanted = [replace(table, life=Life(), row_dtype="float32") for table in own]
    given = [
        replace(form.table, life=Life(), row_dtype="float32") for form in others if form.table.dim
    ]
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
    ids = distinct(np.concatenate([gradient.ids for gradient, _ in parts]))
    dim = max(gradient.values.shape[1] for gradient, _ in parts)
    total = np.zeros((len(ids), dim), np.float32)
    for gradient, weight in parts:
        if len(gradient.ids):
            total[np.searchsorted(ids, gradient.ids)] += gradient.values * np.float32(weight)
    total /= np.float32(num_records)
    return RowGradient(ids, total)
