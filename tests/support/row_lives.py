"""Which ids have a row, by a plain account of it, and what such accounts are tried with."""

from dataclasses import dataclass, field

import hypothesis.strategies as st

from elastic.rows.base import Life

PARTS = 8


@dataclass
class Account:
    """The same with dicts: of each id the updates in which it has come since it was unknown."""

    life: Life
    step: int = 0
    rows: dict = field(default_factory=dict)
    candidates: dict = field(default_factory=dict)

    def update(self, ids):
        self.step += 1
        for id_ in ids:
            where = self.rows if id_ in self.rows else self.candidates
            count = where.pop(id_, (0, 0))[0] + 1
            if where is self.candidates and count >= self.life.admit_after:
                where, count = self.rows, 1
            where[id_] = (count, self.step)
        for each in (self.rows, self.candidates):
            self.end(each)

    def end(self, rows):
        life = self.life
        is_full = life.max_rows is not None and len(rows) > life.max_rows
        is_time = life.expire_after and self.step % max(1, life.expire_after // PARTS) == 0
        if life.expire_after is not None and (is_full or is_time):
            for id_ in [
                i for i, (_, seen) in rows.items() if seen <= self.step - life.expire_after
            ]:
                del rows[id_]
        if life.max_rows is not None and len(rows) > life.max_rows:
            room = life.max_rows - life.max_rows // PARTS
            for id_ in sorted(rows, key=lambda id_: (*rows[id_], id_))[: len(rows) - room]:
                del rows[id_]


LIVES = st.builds(
    Life, st.integers(1, 3), st.none() | st.integers(1, 20), st.none() | st.integers(1, 12)
).filter(lambda life: life.ends)
UPDATES = st.lists(st.sets(st.integers(-3, 20), max_size=6), min_size=1, max_size=40)
