"""Rows of one part of a job's keys, which are in one Redis (`store`).

```
PREFIX:version              version and writer: what every transaction looks at first, and sets
PREFIX:tables               the tables, as they were when the first row was written
PREFIX:held                 the versions that are held
PREFIX:row:TABLE            id -> row
PREFIX:undo:VERSION:TABLE   id -> row as a held version had it, empty where it had none
```

All keys have one hash tag, so that a cluster of servers has them in one place and a transaction can
be made of them. They, and the versions that are held, outlive the master. Which ids there are is
known in this process as well: a row that is known and not there is an error, and never taken for a
new one.
"""

import json
import logging
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import redis

from elastic.errors import UserError
from elastic.rows.base import (
    Change,
    Ids,
    Notes,
    RowMissingError,
    Rows,
    RowsLostError,
    TableForm,
    part_rows,
)
from elastic.rows.ids import IdIndex, KnownRows
from elastic.rows.redis.link import (
    NUMBER_BYTES,
    FillTransaction,
    RedisLink,
    RedisRefusesError,
    RedoLog,
    are_there,
    chunks,
    fields,
    ids_of,
    items_of,
    joined,
    parts_of,
    read_rows,
    remove_fields,
    set_fields,
    unlink,
    write_rows,
)

log = logging.getLogger(__name__)

KEYS_A_SCAN: Final = 1000
WAS_ABSENT: Final = b""
LOADING: Final = b"loading"


@dataclass(slots=True)
class _HeldVersion:
    """A version that is held.

    Attributes:
        num_holders: One of a version that a process before has held.
        kept: By table, the ids whose rows are kept for it.
    """

    num_holders: int
    kept: dict[str, IdIndex] = field(default_factory=dict)


class RedisPart:
    """Does what a `RowStore` does, with the ids that it is given."""

    def __init__(self, link: RedisLink, tag: str, writer: bytes, redo: RedoLog) -> None:
        """Keep how to get there; see `open`.

        Args:
            link: To the server that has it.
            tag: What all of its keys have in common.
            writer: Who changes it, and all other parts with it.
            redo: For a server that comes back older.
        """
        self._link = link
        self._prefix = f"elastic:{{{tag}}}"
        self._writer = writer
        self._lock = threading.Lock()
        self._forms: dict[str, TableForm] = {}
        self._known: dict[str, KnownRows] = {}
        self._held: dict[int, _HeldVersion] = {}
        self._stamp: bytes | None = None
        self._version = 0
        self._is_committing = False
        self._redo = redo
        # Held by who makes transactions again.
        self._catching_up = threading.Lock()
        self._loaded: dict[str, KnownRows] = {}

    # -- what is there -------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """See `RowStore`."""
        return self._version

    def open(self, forms: Sequence[TableForm]) -> None:
        """See `RowStore`."""
        self._forms = {form.table.name: form for form in forms}
        self._link.call(self._check_tables)
        self._link.call(self._check_keys)
        self.look()

    def erase(self) -> None:
        """See `RowStore`."""
        self._link.call(lambda client: unlink(client, self._all_keys(client)))

    @property
    def held(self) -> Sequence[int]:
        """See `RowStore`."""
        with self._lock:
            return sorted(self._held)

    def num_rows(self, table: str) -> int:
        """See `RowStore`."""
        return len(self._known[table])

    def size_bytes(self) -> int:
        """See `RowStore`: of the numbers alone, for a server tells what it takes for all users."""
        return sum(
            len(self._known[name]) * form.width * NUMBER_BYTES for name, form in self._forms.items()
        )

    def _check_tables(self, client: redis.Redis) -> None:
        told = json.dumps([asdict(form) for form in self._forms.values()], sort_keys=True)
        key = self._key("tables")
        client.execute_command("SET", key, told, "NX")
        if (there := client.execute_command("GET", key)) != told.encode():
            raise UserError(
                f"the Redis at {self._link} has rows of other tables for this job (key {key}: "
                f"{there.decode(errors='replace')}), which are now {told}: submit the job anew, "
                "or give the layers back their names and sizes"
            )

    def _check_keys(self, client: redis.Redis) -> None:
        keys = list(client.scan_iter(match=f"{self._prefix}:*", count=KEYS_A_SCAN))
        for key in keys:
            wanted = self._type_of(key.decode(errors="replace"))
            found = client.execute_command("TYPE", key).decode()
            if found not in {wanted, "none"}:
                raise UserError(
                    f"the Redis at {self._link} has a key {key.decode(errors='replace')} (a "
                    f"{found}) among those of the job, which the job has not made: remove it, or "
                    "name another database in --embedding_redis_url"
                )

    def _type_of(self, key: str) -> str | None:
        """What a key of the job holds; None for one that the job does not make."""
        kind, _, rest = key.removeprefix(f"{self._prefix}:").partition(":")
        if kind == "undo":
            kind, _, rest = rest.partition(":")
            return "hash" if kind.isdigit() and rest in self._forms else None
        if kind == "row":
            return "hash" if rest in self._forms else None
        return {"version": "string", "tables": "string", "held": "set"}.get(kind)

    def look(self) -> None:
        """Learn from the server what it has."""
        stamp = self._link.call(lambda client: client.execute_command("GET", self._key("version")))
        if stamp is not None and stamp.startswith(LOADING):
            # Who loaded it has ended before it was whole.
            self.begin_load()
            self.end_load(0)
            return
        held = self._link.call(self._held_there)
        known = {
            name: self._link.call(partial(self._known_there, form=form))
            for name, form in self._forms.items()
        }
        with self._lock:
            before, self._held = self._held, held
            for version, each in held.items():
                each.num_holders = before[version].num_holders if version in before else 1
            self._known, self._stamp, self._version = known, stamp, _version_of(stamp)

    def _held_there(self, client: redis.Redis) -> dict[int, _HeldVersion]:
        versions = sorted(map(int, client.execute_command("SMEMBERS", self._key("held"))))
        return {
            version: _HeldVersion(
                1, {name: self._indexed(self._undo_key(version, name)) for name in self._forms}
            )
            for version in versions
        }

    def _known_there(self, client: redis.Redis, form: TableForm) -> KnownRows:
        name, known = form.table.name, KnownRows(form.num_notes)
        key = self._rows_key(name)
        if not form.notes:
            known.add(ids_of(client, key))
            return known
        for ids, rows in parts_of(client, key):
            known.write(ids, self._rows_of(name, rows).values)
        return known

    def _indexed(self, key: str) -> IdIndex:
        index = IdIndex()
        index.add(self._link.call(partial(ids_of, key=key)))
        return index

    # -- reading -------------------------------------------------------------------------------

    def read(self, table: str, ids: Ids, version: int | None = None) -> Rows:
        """See `RowStore`."""
        rows = None
        while rows is None:
            rows = self._try_to_read(table, ids, version)
        return rows

    def _try_to_read(self, table: str, ids: Ids, version: int | None) -> Rows | None:
        """Rows; None where a commit has been made meanwhile that may have removed some."""
        with self._lock:
            oldest, known = self._version, self._known[table].has(ids)
            is_held, was_written = version in self._held, self._stamp is not None
        if version is not None and not is_held and version != oldest:
            raise KeyError(f"version {version} is not held, and {oldest} is the newest")
        held = version if is_held else None
        replies = self._link.call(partial(self._replies, table=table, ids=ids, held=held))
        seen = self._version_seen(replies[0], oldest, was_written)
        if version is not None and (not replies[1] if is_held else seen != version):
            raise KeyError(f"version {version} is not held any more")
        rows = joined(replies[2])
        if _missed(known, rows).any() and (self._is_committing or self._version != oldest):
            return None
        self._check_known(table, ids, known, rows)
        if is_held:
            kept = joined(replies[3])
            rows = [
                now if was is None else was or None for now, was in zip(rows, kept, strict=True)
            ]
        return self._rows_of(table, rows)

    def scan(self, table: str, version: int) -> Iterator[Change]:
        """See `RowStore`."""
        with self._lock:
            if version not in self._held:
                raise KeyError(f"version {version} is not held")
            kept = self._held[version].kept[table]
            ids = self._known[table].ids()
            ids = np.concatenate([ids[kept.find(ids) < 0], kept.ids])
        step = part_rows(self._forms[table].width)
        for start in range(0, len(ids), step):
            some = np.sort(ids[start : start + step])
            rows = self.read(table, some, version)
            if rows.is_there.any():
                yield Change(some[rows.is_there], rows.values[rows.is_there])

    def notes(self, table: str) -> Notes:
        """See `RowStore`: of what this process knows, without a call."""
        return self._known[table].notes()

    def _replies(self, client: redis.Redis, table: str, ids: Ids, held: int | None) -> list[Any]:
        """Stamp, whether the version is held, rows, and what is kept for it: of one moment."""
        stamp = self._stamp
        replies = self._try_replies(client, table, ids, held)
        if self._is_older(replies[0], stamp):
            self._catch_up(client)
            replies = self._try_replies(client, table, ids, held)
        return replies

    def _try_replies(
        self, client: redis.Redis, table: str, ids: Ids, held: int | None
    ) -> list[Any]:
        with client.pipeline(transaction=True) as pipe:
            pipe.execute_command("GET", self._key("version"))
            pipe.execute_command("SISMEMBER", self._key("held"), held if held is not None else "")
            count = read_rows(pipe, self._rows_key(table), ids)
            if held is not None:
                read_rows(pipe, self._undo_key(held, table), ids)
            stamp, is_held, *lists = pipe.execute()
        return [stamp, is_held, lists[:count], lists[count:]]

    def _version_seen(self, stamp: bytes | None, oldest: int, was_written: bool) -> int:
        """The version of what was read, which a commit may have made meanwhile.

        Args:
            stamp: That was read.
            oldest: The version before it was asked for.
            was_written: Whether there was a stamp before it was asked for.
        """
        if stamp is None and was_written:
            raise RowsLostError(f"the Redis at {self._link} has nothing of the job any more")
        seen = -1 if stamp is not None and stamp.startswith(LOADING) else _version_of(stamp)
        if not oldest <= seen <= self._version + 1:
            raise RowsLostError(
                f"the Redis at {self._link} has rows of {_told(stamp)}, and the job those of "
                f"version {oldest}"
            )
        return seen

    def _check_known(
        self, table: str, ids: Ids, known: np.ndarray[Any, Any], rows: Sequence[bytes | None]
    ) -> None:
        is_gone = _missed(known, rows)
        if is_gone.any():
            id_ = ids[np.argmax(is_gone)]
            raise RowMissingError(
                f"the row of id {id_} of table {table!r} is gone from the Redis at {self._link} "
                f"({is_gone.sum()} of {len(ids)} rows of one call; key {self._rows_key(table)}), "
                "which the job did not do: see who else writes to that server, and submit the job "
                "again with --resume",
                "EmbeddingStore",
            )

    def _rows_of(self, table: str, rows: Sequence[bytes | None]) -> Rows:
        width = self._forms[table].width
        is_there = are_there(rows)
        raw = b"".join([row for row in rows if row is not None])
        if len(raw) != is_there.sum() * width * NUMBER_BYTES:
            raise RedisRefusesError(
                f"the Redis at {self._link} has rows of table {table!r} that are not {width} "
                f"numbers (key {self._rows_key(table)}), which the job did not write: see who else "
                "writes to that server, and submit the job again with --resume"
            )
        values = np.zeros((len(rows), width), np.float32)
        values[is_there] = np.frombuffer(raw, np.float32).reshape(-1, width)
        return Rows(values, is_there)

    # -- writing -------------------------------------------------------------------------------

    def commit(
        self,
        version: int,
        changes: Mapping[str, Change],
        before: Mapping[str, Rows] | None = None,
    ) -> None:
        """See `OutsideStore`."""
        if version != self._version + 1:
            raise RowsLostError(
                f"rows of version {version} do not follow version {self._version}, which the Redis "
                f"at {self._link} has"
            )
        unkept = {
            (held, name): self._unkept(held, name, _all_ids(change))
            for held in self._held
            for name, change in changes.items()
        }
        kept = {
            (held, name): _of_ids(before[name], changes[name].ids, ids)
            if before and name in before
            else self._present(name, ids)
            for (held, name), ids in unkept.items()
        }
        with self._committing():
            self._commit(version, changes, unkept, kept)

    @contextmanager
    def _committing(self) -> Iterator[None]:
        """Rows may be gone that are known still."""
        self._is_committing = True
        try:
            yield
        finally:
            self._is_committing = False

    def _commit(
        self,
        version: int,
        changes: Mapping[str, Change],
        unkept: Mapping[tuple[int, str], Ids],
        kept: Mapping[tuple[int, str], Rows],
    ) -> None:
        def fill(pipe: Any) -> None:
            for (held, name), ids in unkept.items():
                self._keep(pipe, self._undo_key(held, name), ids, kept[held, name])
            for name, change in changes.items():
                write_rows(pipe, self._rows_key(name), change.ids, change.values)
                remove_fields(pipe, self._rows_key(name), fields(change.removed))

        size_bytes = sum(change.values.nbytes for change in changes.values())
        size_bytes += sum(rows.values.nbytes for rows in kept.values())
        self._write(self._stamp_of(version), fill, size_bytes)
        with self._lock:
            self._version = version
            for name, change in changes.items():
                self._known[name].change(change)
            for (held, name), ids in unkept.items():
                self._held[held].kept[name].add(ids)

    def _unkept(self, held: int, table: str, ids: Ids) -> Ids:
        return ids[self._held[held].kept[table].find(ids) < 0]

    def _present(self, table: str, ids: Ids) -> Rows:
        """Rows as they are now."""
        is_known = self._known[table].has(ids)
        values = np.zeros((len(ids), self._forms[table].width), np.float32)
        known = ids[is_known]
        if len(known):
            replies = self._link.call(partial(self._replies, table=table, ids=known, held=None))
            self._version_seen(replies[0], self._version, self._stamp is not None)
            rows = joined(replies[2])
            self._check_known(table, known, np.ones(len(known), np.bool_), rows)
            values[is_known] = self._rows_of(table, rows).values
        return Rows(values, is_known)

    def _keep(self, pipe: Any, key: str, ids: Ids, rows: Rows) -> None:
        is_there = rows.is_there
        write_rows(pipe, key, ids[is_there], rows.values[is_there])
        absent = ids[~is_there]
        write_rows(pipe, key, absent, np.empty((len(absent), 0), np.float32))

    def hold(self, version: int) -> None:
        """See `RowStore`."""
        held = self._held.get(version)
        if held is not None:
            held.num_holders += 1
            return
        if version != self._version:
            raise KeyError(f"version {version} is not held, and {self._version} is the newest")
        self._write(
            self._stamp, lambda pipe: pipe.execute_command("SADD", self._key("held"), version)
        )
        with self._lock:
            self._held[version] = _HeldVersion(1, {name: IdIndex() for name in self._forms})

    def let_go(self, version: int) -> None:
        """See `RowStore`."""
        held = self._held.get(version)
        if held is None:
            return
        held.num_holders -= 1
        if held.num_holders:
            return
        with self._lock:
            del self._held[version]
        self._write(self._stamp, partial(self._forget, versions=[version]))

    def go_back(self, version: int) -> None:
        """Go back to a version that was held when the server was looked at."""
        kept = {
            name: self._link.call(partial(items_of, key=self._undo_key(version, name)))
            for name in self._forms
        }
        newer = [held for held in self._held if held > version]

        def fill(pipe: Any) -> None:
            for name, rows in kept.items():
                key = self._rows_key(name)
                there = {id_: row for id_, row in rows.items() if row != WAS_ABSENT}
                set_fields(pipe, key, list(there), list(there.values()))
                remove_fields(pipe, key, [id_ for id_, row in rows.items() if row == WAS_ABSENT])
                pipe.execute_command("UNLINK", self._undo_key(version, name))
            self._forget(pipe, newer)

        self._write(self._stamp_of(version), fill)
        self._redo.clear()
        self.look()

    def begin_load(self) -> None:
        """Forget everything, held versions included; until `end_load` no other process uses it."""
        marker = b" ".join([LOADING, self._writer, secrets.token_hex(4).encode()])
        self._link.call(partial(self._begin_load, marker=marker))
        self._redo.clear()
        self._loaded = {name: KnownRows(form.num_notes) for name, form in self._forms.items()}
        self._stamp = marker

    def load(self, table: str, change: Change) -> None:
        """Have these rows as well."""
        self._link.call(partial(self._load, name=table, change=change))
        self._loaded[table].change(change)

    def end_load(self, version: int) -> None:
        """Be at a version, with what was loaded."""
        self._link.call(partial(self._check_load, known=self._loaded))
        with self._lock:
            self._known, self._held = self._loaded, {}
        self._write(self._stamp_of(version), lambda _: None)
        # The rows themselves are not in it.
        self._redo.clear()
        self._version = version

    def _begin_load(self, client: redis.Redis, marker: bytes) -> None:
        keys = [key for key in self._all_keys(client) if key != self._key("tables").encode()]
        with client.pipeline(transaction=True) as pipe:
            pipe.execute_command("SET", self._key("version"), marker)
            for chunk in chunks([key for key in keys if key != self._key("version").encode()]):
                pipe.execute_command("UNLINK", *chunk)
            pipe.execute()

    def _load(self, client: redis.Redis, name: str, change: Change) -> None:
        with client.pipeline(transaction=False) as pipe:
            write_rows(pipe, self._rows_key(name), change.ids, change.values)
            pipe.execute()

    def _check_load(self, client: redis.Redis, known: Mapping[str, KnownRows]) -> None:
        """See that nothing of it was lost with a server that has been away meanwhile."""
        for name, rows in known.items():
            if client.execute_command("HLEN", self._rows_key(name)) != len(rows):
                raise RowsLostError(
                    f"the Redis at {self._link} has lost rows while they were loaded"
                )

    def _write(self, after: bytes | None, fill: FillTransaction, size_bytes: int = 0) -> None:
        """One transaction, made once, that leaves this stamp."""
        before = self._stamp
        self._link.call(partial(self._try_to_write, after=after, fill=fill))
        self._stamp = after
        self._redo.add(before, after, fill, size_bytes)

    def _try_to_write(
        self, client: redis.Redis, after: bytes | None, fill: FillTransaction
    ) -> None:
        seen = self._try_once(client, self._stamp, after, fill)
        if self._is_older(seen, self._stamp):
            self._catch_up(client)
            seen = self._try_once(client, self._stamp, after, fill)
        # What is there already was made by a call whose answer was lost.
        if seen not in (self._stamp, after):
            raise self._other(seen)

    def _try_once(
        self, client: redis.Redis, before: bytes | None, after: bytes | None, fill: FillTransaction
    ) -> bytes | None:
        """Make a transaction where this stamp is there; returns what was."""
        key = self._key("version")
        with client.pipeline(transaction=True) as pipe:
            pipe.watch(key)
            seen: bytes | None = pipe.execute_command("GET", key)
            if seen != before:
                return seen
            pipe.multi()
            fill(pipe)
            if after is not None and after != seen:
                pipe.execute_command("SET", key, after)
            pipe.execute()
        return seen

    def _other(self, seen: bytes | None) -> RowsLostError:
        return RowsLostError(
            f"the Redis at {self._link} has rows of {_told(seen)}, and the job has left those of "
            f"{_told(self._stamp)} there"
        )

    # -- a server that has come back older -----------------------------------------------------

    def _is_older(self, seen: bytes | None, known: bytes | None) -> bool:
        """Whether a stamp is one from before another, and what was written since is kept."""
        if seen == known or not self._redo.since(seen):
            return False
        return _version_of(seen) < _version_of(known)

    def _catch_up(self, client: redis.Redis) -> None:
        """Have a server make again what it has lost.

        Raises:
            RowsLostError: It has lost more than is kept, or somebody else has written to it.
        """
        with self._catching_up:
            seen = client.execute_command("GET", self._key("version"))
            if seen == self._stamp:
                # Another thread has done it.
                return
            lost = self._redo.since(seen)
            for written in lost:
                found = self._try_once(client, written.before, written.after, written.fill)
                if found not in (written.before, written.after):
                    raise self._other(found)
        log.warning(
            "the Redis at %s came back with rows of %s: what was written since is made again",
            self._link,
            _told(seen),
        )

    def _forget(self, pipe: Any, versions: Sequence[int]) -> None:
        for version in versions:
            pipe.execute_command("SREM", self._key("held"), version)
            for name in self._forms:
                pipe.execute_command("UNLINK", self._undo_key(version, name))

    # -- keys ----------------------------------------------------------------------------------

    def _stamp_of(self, version: int) -> bytes:
        return b"%d %s" % (version, self._writer)

    def _key(self, name: str) -> str:
        return f"{self._prefix}:{name}"

    def _rows_key(self, table: str) -> str:
        return self._key(f"row:{table}")

    def _undo_key(self, version: int, table: str) -> str:
        return self._key(f"undo:{version}:{table}")

    def _all_keys(self, client: redis.Redis) -> list[bytes]:
        return list(client.scan_iter(match=f"{self._prefix}:*", count=KEYS_A_SCAN))


def _missed(
    known: np.ndarray[Any, Any], rows: Sequence[bytes | None]
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which rows are known, and were not found."""
    return known & ~are_there(rows)


def _all_ids(change: Change) -> Ids:
    """All ids that a change is about, ascending."""
    if not len(change.removed):
        return change.ids
    return np.sort(np.concatenate([change.ids, change.removed]))


def _of_ids(rows: Rows, all_ids: Ids, ids: Ids) -> Rows:
    """Those of some of the ids that rows are of, both ascending."""
    places = np.searchsorted(all_ids, ids)
    return Rows(rows.values[places], rows.is_there[places])


def _version_of(stamp: bytes | None) -> int:
    return 0 if stamp is None else int(stamp.split()[0])


def _told(stamp: bytes | None) -> str:
    if stamp is None:
        return "no version"
    if stamp.startswith(LOADING):
        return "a version that another process loads"
    return f"version {_version_of(stamp)}, by process {stamp.split()[-1].decode()}"
