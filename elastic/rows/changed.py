"""Which ids updates have been about since a cut, so that the next one need not have all rows."""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from elastic.rows.base import Ids
from elastic.rows.ids import distinct
from elastic.rows.store import Change, no_ids

MERGED_FROM: Final = 1 << 16
"""So many ids are noted, and no fewer, before those that came again are looked for."""

Noted: TypeAlias = Mapping[str, Sequence[Ids]]
"""Ids by table, in arrays that may have some of them more than once."""


class ChangedIds:
    """The ids that commits were about, by the cuts that they follow.

    An id is noted once or a few times, however often it comes: 8 to 32 bytes of each.
    """

    def __init__(self, version: int = 0) -> None:
        """Begin behind a version, which a cut may be of."""
        self._since: dict[int, _Interval] = {version: _Interval()}
        self._open = self._since[version]

    def add(self, changes: Mapping[str, Change]) -> None:
        """A commit is about to be made."""
        for name, change in changes.items():
            self._open.add(name, change.ids)
            self._open.add(name, change.removed)

    def since(self, version: int | None, now: int) -> Noted | None:
        """Ids of what has changed since the last cut that was written; None where nobody knows.

        Args:
            version: Of that cut. What came before it is forgotten.
            now: The newest version, of which a cut is about to be written.
        """
        noted: Noted | None = None
        if version is None or version not in self._since:
            self._since = {}
        else:
            self._since = {begun: each for begun, each in self._since.items() if begun >= version}
            noted = _joined([*self._since.values()])
        self._open = self._since.setdefault(now, _Interval())
        return noted


def _joined(intervals: Sequence["_Interval"]) -> Noted:
    names = {name for each in intervals for name in each.tables()}
    return {name: [ids for each in intervals for ids in each.of(name)] for name in names}


class _Interval:
    """What has changed from one cut to the next."""

    def __init__(self) -> None:
        self._tables: dict[str, _Ids] = {}

    def tables(self) -> Sequence[str]:
        return list(self._tables)

    def of(self, table: str) -> Sequence[Ids]:
        return self._tables[table].parts() if table in self._tables else ()

    def add(self, table: str, ids: Ids) -> None:
        if len(ids):
            self._tables.setdefault(table, _Ids()).add(ids)


class _Ids:
    """Ids of a table, of which those that came again are left out now and then."""

    def __init__(self) -> None:
        self._parts: list[Ids] = []
        self._num_ids = 0
        self._num_merged = 0

    def parts(self) -> Sequence[Ids]:
        return tuple(self._parts)

    def add(self, ids: Ids) -> None:
        # A view would keep all of the message that it came in.
        self._parts.append(ids.copy())
        self._num_ids += len(ids)
        if self._num_ids > 2 * self._num_merged + MERGED_FROM:
            self._parts = [merged(self._parts)]
            self._num_ids = self._num_merged = len(self._parts[0])


def merged(parts: Sequence[Ids]) -> Ids:
    """The ids of all parts, each once, ascending."""
    return distinct(np.concatenate([no_ids(), *parts]))
