"""Rows that were read or changed lately, in front of a store that is another process.

The master alone changes rows, so what it remembers of one is what the store has, or will have: a
commit is made here at once, and in the store by a thread that makes one after the other. Who asks
for a version to be held waits for it; until then nothing in the books rests on it, and where the
store fails meanwhile the job goes back to a cut, as it does when the store fails in a commit.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Queue
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from elastic.rows.base import Change, Ids, Notes, Rows, RowsLostError, RowStore, TableForm, Values
from elastic.rows.ids import IdIndex, Positions, put_rows, with_room

CACHE_BYTES: Final = 64 << 20
"""Of rows of all tables that are remembered."""

MAX_PENDING: Final = 4
"""Commits that the store may be behind: it catches up while a worker computes, or sets the pace."""

PENDING_BYTES: Final = 64 << 20
"""Of rows of all commits that the store is behind, or one commit that has more: to have it work
beside the workers takes no second one."""

NUMBER_BYTES: Final = 4


class WouldWaitError(Exception):
    """What was asked for takes a while, and nothing of it was done: see `CachedRows.at_once`."""


class OutsideStore(RowStore, Protocol):
    """A store in another process."""

    def commit(
        self,
        version: int,
        changes: Mapping[str, Change],
        before: Mapping[str, Rows] | None = None,
    ) -> None:
        """See `RowStore`.

        Args:
            version: The next one.
            changes: What it makes of rows.
            before: What of a table was there before for the ids of its change, where the caller
                knows and the change removes nothing; else the store reads what it needs of that.
        """


@dataclass(frozen=True, slots=True)
class _Commit:
    """One that the store has not made yet."""

    version: int
    changes: Mapping[str, Change]
    before: Mapping[str, Rows]
    size_bytes: int


class CachedRows:
    """A `RowStore` over one that is outside."""

    def __init__(self, store: OutsideStore) -> None:
        """Take a store that has not been opened, which nobody else uses from now on."""
        self._store = store
        self.is_durable = store.is_durable
        self._lock = threading.Lock()
        self._version = 0
        self._caches: dict[str, _Cache] = {}
        self._num_losses = 0
        self._forms: tuple[TableForm, ...] = ()
        # Held by who has the store write.
        self._writing = threading.Lock()
        self._pending: Queue[_Commit | None] = Queue(MAX_PENDING)
        self._room = threading.Condition()
        self._pending_bytes = 0
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None
        self._hurries = _Hurries()

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Have this thread wait for nothing within: a commit or a reading that had to, for the
        store or for other threads, raises `WouldWaitError` and changes nothing; so does all else.
        """
        self._hurries.here = True
        try:
            yield
        finally:
            self._hurries.here = False

    @property
    def version(self) -> int:
        """See `RowStore`."""
        return self._version

    def open(self, forms: Sequence[TableForm]) -> None:
        """See `RowStore`."""
        self._store.open(forms)
        self._forms = tuple(forms)
        self._thread = threading.Thread(target=self._write_behind, name="rows", daemon=True)
        self._thread.start()
        self._begin_anew()

    def close(self) -> None:
        """See `RowStore`: what is pending is left out, since nothing rests on it."""
        self._store.close()
        with self._lock:
            # Before who waits goes on: what was closed has nothing more to tell.
            self._failure = RowsLostError("its rows were closed while they were asked for")
        if self._thread is not None:
            self._pending.put(None)
            self._thread.join()
            self._thread = None

    def erase(self) -> None:
        """See `RowStore`."""
        self._pending.join()
        self._store.erase()

    def read(self, table: str, ids: Ids, version: int | None = None) -> Rows:
        """See `RowStore`."""
        while version in (None, self._version):
            with self._locked():
                self._check()
                cache, num_losses = self._caches[table], self._num_losses
                rows, is_missing = cache.read(ids)
                is_newest = version in (None, self._version)
            if is_newest and not is_missing.any():
                return rows
            self._allow_waiting()
            self._fetch(table, ids, is_missing, num_losses)
        self._allow_waiting()
        if version not in self._store.held:
            raise KeyError(f"version {version} is not held, and {self._version} is the newest")
        return self._store.read(table, ids, version)

    def commit(self, version: int, changes: Mapping[str, Change]) -> None:
        """See `RowStore`: what the store itself refuses is told to who asks next."""
        size_bytes = _size_bytes(changes)
        # Before the lock: who reads what is remembered need not wait as well.
        self._wait_for_room(size_bytes)
        with self._locked():
            self._check()
            if self._hurries.here and not self._has_room(changes):
                raise WouldWaitError
            if version != self._version + 1:
                raise RowsLostError(
                    f"rows of version {version} do not follow version {self._version}, which the "
                    "store has"
                )
            before: dict[str, Rows] = {}
            for name, change in changes.items():
                rows, is_missing = self._caches[name].read(change.ids)
                if not is_missing.any() and not len(change.removed):
                    before[name] = rows
                self._remember(name, *_left_by(change))
            self._version = version
            # Still locked, so that no row is forgotten before the store is about to have it.
            self._put(_Commit(version, changes, before, size_bytes))

    def hold(self, version: int) -> None:
        """See `RowStore`."""
        with self._settled():
            self._store.hold(version)

    def let_go(self, version: int) -> None:
        """See `RowStore`."""
        with self._settled():
            self._store.let_go(version)

    def scan(self, table: str, version: int) -> Iterator[Change]:
        """See `RowStore`."""
        return self._store.scan(table, version)

    def notes(self, table: str) -> Notes:
        """See `RowStore`."""
        with self._settled():
            return self._store.notes(table)

    def load(self, version: int, tables: Mapping[str, Iterable[Change]]) -> None:
        """See `RowStore`."""
        self._pending.join()
        with self._writing:
            self._store.load(version, tables)
        self._begin_anew()

    def go_back(self, version: int) -> bool:
        """See `RowStore`."""
        self._pending.join()
        with self._writing:
            has_gone = self._store.go_back(version)
        self._begin_anew()
        return has_gone

    @property
    def held(self) -> Sequence[int]:
        """See `RowStore`."""
        return self._store.held

    def num_rows(self, table: str) -> int:
        """See `RowStore`."""
        with self._settled():
            return self._store.num_rows(table)

    def size_bytes(self) -> int:
        """See `RowStore`."""
        with self._settled():
            return self._store.size_bytes()

    # -- what is remembered --------------------------------------------------------------------

    def _fetch(self, table: str, ids: Ids, is_missing: NDArray[np.bool_], num_losses: int) -> None:
        """Remember rows of the store, unless what has been forgotten meanwhile may be newer.

        Where others are forgotten for it, all that were asked for are remembered anew: who forgets
        those that it had would never have all of them at once.
        """
        rows = self._store.read(table, ids[is_missing])
        with self._lock:
            if num_losses != self._num_losses:
                return
            cache = self._caches[table]
            known, is_unknown = cache.read(ids)
            fetched = _some(rows, is_unknown[is_missing])
            if cache.has_room(len(fetched.is_there)):
                self._remember(table, ids[is_unknown], fetched)
                return
            known.values[is_unknown] = fetched.values
            known.is_there[is_unknown] = fetched.is_there
            self._remember(table, ids, known)

    def _remember(self, table: str, ids: Ids, rows: Rows) -> None:
        cache = self._caches[table]
        if not cache.has_room(len(ids)):
            # What is forgotten is read from the store again.
            self._pending.join()
            self._check()
            cache.forget()
            self._num_losses += 1
        cache.put(ids, rows)

    def _begin_anew(self) -> None:
        room = CACHE_BYTES // max(len(self._forms), 1)
        with self._lock:
            self._caches = {
                form.table.name: _Cache(form.width, room // (NUMBER_BYTES * form.width))
                for form in self._forms
            }
            self._num_losses += 1
            self._version, self._failure = self._store.version, None

    # -- what is pending -----------------------------------------------------------------------

    def _wait_for_room(self, size_bytes: int) -> None:
        def has_room() -> bool:
            return not self._pending_bytes or self._pending_bytes + size_bytes <= PENDING_BYTES

        with self._room:
            if self._hurries.here and not has_room():
                raise WouldWaitError
            self._room.wait_for(has_room)

    def _has_room(self, changes: Mapping[str, Change]) -> bool:
        """Whether a commit of these can be pending, and what it leaves be remembered, now."""
        # Twice: what was known of them before comes to those of late first.
        return not self._pending.full() and all(
            self._caches[name].has_room(2 * (len(each.ids) + len(each.removed)))
            for name, each in changes.items()
        )

    def _put(self, commit: _Commit) -> None:
        with self._room:
            self._pending_bytes += commit.size_bytes
        self._pending.put(commit)

    def _write_behind(self) -> None:
        # In a call of its own, so that the rows of a commit are not kept until there is another.
        while self._make_next():
            pass

    def _make_next(self) -> bool:
        commit = self._pending.get()
        if commit is not None:
            if self._failure is None:
                self._make(commit)
            with self._room:
                self._pending_bytes -= commit.size_bytes
                self._room.notify_all()
        self._pending.task_done()
        return commit is not None

    def _make(self, commit: _Commit) -> None:
        try:
            with self._writing:
                self._store.commit(commit.version, commit.changes, commit.before)
        except Exception as error:  # noqa: BLE001 - who asks next raises it; else all would wait
            if self._failure is None:
                self._failure = error

    @contextmanager
    def _settled(self) -> Iterator[None]:
        """Have the store write something else, once it has all commits."""
        self._allow_waiting()
        self._pending.join()
        with self._writing:
            self._check()
            yield

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if not self._lock.acquire(blocking=not self._hurries.here):
            raise WouldWaitError
        try:
            yield
        finally:
            self._lock.release()

    def _allow_waiting(self) -> None:
        """Before whatever waits.

        Raises:
            WouldWaitError: This thread is not to.
        """
        if self._hurries.here:
            raise WouldWaitError

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure


class _Hurries(threading.local):
    """Whether this thread is not to wait."""

    here = False


class _Cache:
    """Rows of one table: those of late, and those of before."""

    def __init__(self, width: int, max_rows: int) -> None:
        """Begin with none.

        Args:
            width: Of a row.
            max_rows: About so many are remembered, of late and of before together.
        """
        self._width = width
        self._max_late = max(max_rows // 2, 1)
        self._late, self._before = self._none(), self._none()

    def has_room(self, num_rows: int) -> bool:
        """Whether so many may be put without forgetting those of before; as many as it likes to
        one that has none of late.
        """
        return not len(self._late) or len(self._late) + num_rows <= self._max_late

    def read(self, ids: Ids) -> tuple[Rows, NDArray[np.bool_]]:
        """Rows, and which of them are not known here, whose values mean nothing."""
        rows, is_missing = self._late.read(ids)
        if is_missing.any() and len(self._before):
            asked = np.flatnonzero(is_missing)
            older, is_unknown = self._before.read(ids[asked])
            found, known = asked[~is_unknown], _some(older, ~is_unknown)
            if self.has_room(len(found)):
                self._late.put(ids[found], known)
            rows.values[found], rows.is_there[found] = known.values, known.is_there
            is_missing[found] = False
        return rows, is_missing

    def put(self, ids: Ids, rows: Rows) -> None:
        """Remember what rows are now."""
        self._late.put(ids, rows)

    def forget(self) -> None:
        """Forget what has not been asked for of late."""
        self._late, self._before = self._none(), self._late

    def _none(self) -> "_Remembered":
        return _Remembered(self._width, self._max_late)


class _Remembered:
    """Rows by their ids, and of each whether it is in the store, or known not to be."""

    def __init__(self, width: int, room: int) -> None:
        self._index = IdIndex()
        # All of it at once: memory that is never written takes none, and arrays that grow take half
        # as much again as they hold, and thrice while they do.
        self._values: Values = np.empty((room, width), np.float32)
        self._is_there: NDArray[np.bool_] = np.zeros(room, np.bool_)

    def __len__(self) -> int:
        return len(self._index)

    def read(self, ids: Ids) -> tuple[Rows, NDArray[np.bool_]]:
        positions = self._index.find(ids)
        values = self._values.take(positions, axis=0, mode="clip")
        return Rows(values, self._is_there.take(positions, mode="clip")), positions < 0

    def put(self, ids: Ids, rows: Rows) -> None:
        positions = self._index.find(ids)
        is_new = positions < 0
        if is_new.any():
            positions[is_new] = self._places(ids[is_new])
        put_rows(self._values, positions, rows.values)
        self._is_there[positions] = rows.is_there

    def _places(self, ids: Ids) -> Positions:
        """Room for ids that have none yet."""
        start = len(self._index)
        self._index.add(ids)
        self._values = with_room(self._values, start + len(ids))
        self._is_there = with_room(self._is_there, start + len(ids))
        return np.arange(start, start + len(ids))


def _left_by(change: Change) -> tuple[Ids, Rows]:
    """What a commit leaves of the ids that it is about; those that it removes come last."""
    num_rows, num_removed = len(change.ids), len(change.removed)
    if not num_removed:
        return change.ids, Rows(change.values, np.ones(num_rows, np.bool_))
    gone = np.zeros((num_removed, change.values.shape[1]), np.float32)
    is_there = np.arange(num_rows + num_removed) < num_rows
    ids = np.concatenate([change.ids, change.removed])
    return ids, Rows(np.concatenate([change.values, gone]), is_there)


def _size_bytes(changes: Mapping[str, Change]) -> int:
    """Memory of a commit that is pending, which has its rows twice: as they will be, and were."""
    return sum(2 * change.values.nbytes for change in changes.values())


def _some(rows: Rows, which: NDArray[np.bool_]) -> Rows:
    return Rows(rows.values[which], rows.is_there[which])
