"""Rows of embeddings read and updated in each store, against bare commands of redis-py.

The bare side moves the same rows as strings of one Redis, with keys that were made before it is
timed; it checks nothing, and keeps neither a version nor what it overwrites.
"""

import contextlib
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import redis
from numpy.typing import NDArray

from benchmarks import redis_program
from benchmarks.measure import Bar, Ratio, Series, take_turns
from benchmarks.redis_program import BareRows
from benchmarks.served_rows import ServedRows, served_rows
from benchmarks.sizes import Size
from elastic.redis_server.program import configuration, find_server
from elastic.rows.arithmetic import Kernel, RowRule, kernel_of
from elastic.rows.base import Change, Ids, RowGradient, RowStore, Table, TableForm, Values
from elastic.rows.memory import MemoryRows
from elastic.rows.redis.link import RedisLink
from elastic.rows.redis.store import RedisRows
from elastic.spec.values import RedisAddress
from elastic.worker.rows import RowsUsedAgain
from elastic.worker.strategy import NoRows

READ_BARS: Final = {"memory": Bar(first=3.0, goal=10.0), "redis": Bar(first=0.8, goal=1.0)}
UPDATE_BARS: Final = {"memory": Bar(first=3.0, goal=10.0), "redis": Bar(first=0.5, goal=0.8)}
HANDED_OVER: Final = {"one server": False, "one server, in memory": True}
"""By its name in a ratio, whether rows are handed over in memory, as on one machine, or sent."""
SERVED_BAR: Final = Bar(first=3.0, goal=5.0)
KEPT_BAR: Final = Bar(first=1.0, goal=3.0)
DIMS: Final = (16, 64)
IDS_A_STEP: Final = 6_656
"""Of a minibatch of 256 with 26 categories."""

STALENESS: Final = 64
"""Updates for which a worker uses a row again."""

NO_PROGRAM: Final = (
    f"neither {' nor '.join(redis_program.PROGRAMS)} is on the PATH (Debian: redis-tools), so the "
    "figures of one are left out"
)
RULE: Final = RowRule("adam", {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-8})
Reading: TypeAlias = Callable[[Ids], Values]
"""Reads the rows of some ids."""

PASSWORD: Final = "of-a-benchmark"
PATIENCE_S: Final = 30.0
PART_ROWS: Final = 8_192


def run(size: Size) -> list[Ratio]:
    """Rows a second of one reader, by length of rows, store and kind of ids."""
    with (
        tempfile.TemporaryDirectory(prefix="elastic-bench-") as folder,
        _server(Path(folder)) as at,
    ):
        ratios = [
            ratio
            for dim in DIMS
            for ratio in (
                *_measure_reads(size, at, dim),
                *_measure_updates(size, at, dim),
                *_measure_served(size, at, dim),
            )
        ]
    if redis_program.find_program() is None:
        ratios[0] = replace(ratios[0], note=NO_PROGRAM)
    return ratios


@dataclass(slots=True)
class _Bare:
    """Rows as strings of a Redis.

    Attributes:
        rows: Which they are.
        keys: Of all rows, by id.
    """

    client: redis.Redis
    rows: BareRows
    keys: NDArray[np.object_]

    def read(self, ids: Ids) -> Values:
        found: Any = self.client.mget(self.keys[ids].tolist())
        return np.frombuffer(b"".join(found), np.float32).reshape(-1, self.rows.width)

    def write(self, ids: Ids, values: Values) -> None:
        raw, size = values.tobytes(), self.rows.size_bytes
        rows = [raw[start : start + size] for start in range(0, len(raw), size)]
        self.client.mset(dict(zip(self.keys[ids].tolist(), rows, strict=True)))


def _measure_reads(size: Size, at: RedisAddress, dim: int) -> list[Ratio]:
    table = TableForm(Table("bench", dim, "zeros"))
    drawn = _drawn(size)
    with _stores(size, at, table) as stores, _bare(size, at, table) as bare:
        beside = _beside_program(
            f"rows read, {dim} float32, uniform ids, redis, redis-benchmark",
            ("RowStore.read", "redis-benchmark, MGET"),
            size.rounds,
            partial(_rows_s, partial(stores["redis"].read, "bench"), drawn["uniform"]),
            partial(redis_program.rows_read_s, at=at, rows=bare.rows, steps=size.num_reads),
        )
        ratios = [
            _ratio(
                f"rows read, {dim} float32, {kind} ids, {name}",
                ("RowStore.read", "MGET"),
                take_turns(
                    size.rounds,
                    partial(_rows_s, partial(store.read, "bench"), ids),
                    partial(_rows_s, bare.read, ids),
                ),
                READ_BARS[name],
            )
            for kind, ids in drawn.items()
            for name, store in stores.items()
        ]
    return ratios + beside


def _beside_program(
    name: str,
    sides: tuple[str, str],
    rounds: int,
    ours: Callable[[], float],
    theirs: Callable[[str], float],
) -> list[Ratio]:
    """The same beside a client in C, where there is one; nothing where there is none."""
    program = redis_program.find_program()
    if program is None:
        return []
    return [_ratio(name, sides, take_turns(rounds, ours, partial(theirs, program)), None)]


def _measure_updates(size: Size, at: RedisAddress, dim: int) -> list[Ratio]:
    kernel = kernel_of(RULE)
    table = TableForm(Table("bench", dim, "zeros"), kernel.slots)
    drawn = _drawn(size)
    with _stores(size, at, table) as stores, _bare(size, at, table) as bare:
        beside = _beside_program(
            f"rows updated by Adam, {dim} float32, uniform ids, redis, redis-benchmark",
            ("read, apply, write, version, undo", "redis-benchmark, MGET and MSET"),
            size.rounds,
            partial(_updates_s, stores["redis"], kernel, dim, drawn["uniform"]),
            partial(redis_program.rows_moved_s, at=at, rows=bare.rows, steps=size.num_reads),
        )
        ratios = [
            _ratio(
                f"rows updated by Adam, {dim} float32, {kind} ids, {name}",
                ("read, apply, write, version, undo", "MGET and MSET of rows and slots"),
                take_turns(
                    size.rounds,
                    partial(_updates_s, store, kernel, dim, ids),
                    partial(_rows_s, partial(_move, bare), ids),
                ),
                UPDATE_BARS[name],
            )
            for kind, ids in drawn.items()
            for name, store in stores.items()
        ]
    return ratios + beside


def _measure_served(size: Size, at: RedisAddress, dim: int) -> list[Ratio]:
    """A parameter server beside the same rows in Redis; each is another process than who asks."""
    kernel = kernel_of(RULE)
    form = TableForm(Table("bench", dim, "zeros"), kernel.slots)
    drawn, everything = _drawn(size), partial(_all_rows, size, form)
    ratios = []
    with (
        _stores(size, at, form) as stores,
        _bare(size, at, TableForm(form.table)) as bare,
        served_rows(form, RULE, everything) as served,
    ):
        redis_rows = stores["redis"]
        for (kind, ids), (how, is_shared) in product(drawn.items(), HANDED_OVER.items()):
            read = take_turns(
                size.rounds,
                partial(_rows_s, partial(served.read, is_shared=is_shared), ids),
                partial(_rows_s, partial(redis_rows.read, "bench"), ids),
            )
            update = take_turns(
                size.rounds,
                partial(_rows_s, partial(_update_served, served, dim, is_shared), ids),
                partial(_updates_s, redis_rows, kernel, dim, ids),
            )
            for what, values in (("read", read), ("updated by Adam", update)):
                name = f"rows {what}, {dim} float32, {kind} ids, {how}"
                ratios.append(_ratio(name, ("a parameter server", "redis"), values, SERVED_BAR))
        ratios += _measure_kept(size, served, bare, form.table)
    return ratios


def _measure_kept(size: Size, served: ServedRows, bare: _Bare, table: Table) -> list[Ratio]:
    """A worker that uses rows again, and reads the others from a parameter server."""
    return [
        _ratio(
            f"rows read, {table.dim} float32, {kind} ids, used again for {STALENESS} updates",
            ("RowsUsedAgain.read", "MGET"),
            _turns_of_new_ids(size, _Updated(served, table).read, bare.read, kind),
            KEPT_BAR,
        )
        for kind in _drawn(size)
    ]


def _turns_of_new_ids(
    size: Size, ours: Reading, theirs: Reading, kind: str
) -> list[tuple[float, ...]]:
    """Rows a second of both, of other minibatches each round: an id comes again by chance."""
    of_all = replace(size, num_reads=size.num_reads * (1 + size.rounds))
    steps = _drawn(of_all)[kind]
    rounds = [steps[at : at + size.num_reads] for at in range(0, len(steps), size.num_reads)]
    mine, others = iter(rounds), iter(rounds)
    return take_turns(
        size.rounds, lambda: _rows_s(ours, next(mine)), lambda: _rows_s(theirs, next(others))
    )


class _Updated:
    """Reads as a worker does whose model has another version each time."""

    def __init__(self, served: ServedRows, table: Table) -> None:
        self._table = table
        self._version = 0
        self._rows = RowsUsedAgain(_OfServer(served), [table], STALENESS)

    def read(self, ids: Ids) -> Values:
        self._version += 1
        self._rows.read_at(None, self._version)
        return self._rows.read(self._table, ids)


class _OfServer(NoRows):
    """Rows of the newest version, and no session."""

    def __init__(self, served: ServedRows) -> None:
        self._served = served

    def read(self, table: Table, ids: Ids) -> Values:  # noqa: ARG002 - there is but one
        return self._served.read(ids)


def _update_served(served: ServedRows, dim: int, is_shared: bool, ids: Ids) -> None:
    gradient = RowGradient(ids, np.full((len(ids), dim), 0.01, np.float32))
    served.update(gradient, is_shared=is_shared)


def _ratio(
    name: str, sides: tuple[str, str], values: Sequence[tuple[float, ...]], bar: Bar | None
) -> Ratio:
    ours, theirs = (
        Series(what, "rows/s", column) for what, column in zip(sides, values, strict=True)
    )
    return Ratio(name, ours, theirs, bar)


def _rows_s(work: Any, steps: Sequence[Ids]) -> float:
    """Rows a second of something done with the ids of each step."""
    begin_s = time.perf_counter()
    for ids in steps:
        work(ids)
    return sum(map(len, steps)) / (time.perf_counter() - begin_s)


def _move(bare: _Bare, ids: Ids) -> None:
    bare.write(ids, bare.read(ids))


def _updates_s(store: RowStore, kernel: Kernel, dim: int, steps: Sequence[Ids]) -> float:
    """The same of updates, all rows of each of which are kept for a version that is held."""
    total_s = 0.0
    for ids in steps:
        gradient = np.full((len(ids), dim), 0.01, np.float32)
        held = store.version
        store.hold(held)
        begin_s = time.perf_counter()
        values = store.read("bench", ids).values
        kernel.update(values, gradient, 0.001, held + 1)
        store.commit(held + 1, {"bench": Change(ids, values)})
        total_s += time.perf_counter() - begin_s
        store.let_go(held)
    return sum(map(len, steps)) / total_s


def _drawn(size: Size) -> dict[str, list[Ids]]:
    """The ids of some steps, each once in a step, as they come to a store."""
    rng = np.random.default_rng(0)
    uniform = rng.random((size.num_reads, IDS_A_STEP)) * size.num_rows
    # As often as the law of Zipf says; which id is the most frequent does not matter.
    zipf = (size.num_rows + 1.0) ** rng.random((size.num_reads, IDS_A_STEP)) - 1
    return {
        kind: [np.unique(step.astype(np.int64)) for step in drawn]
        for kind, drawn in (("uniform", uniform), ("Zipf", zipf))
    }


def _all_rows(size: Size, form: TableForm) -> Iterator[Change]:
    rng = np.random.default_rng(1)
    for start in range(0, size.num_rows, PART_ROWS):
        ids = np.arange(start, min(start + PART_ROWS, size.num_rows))
        yield Change(ids, rng.random((len(ids), form.width), np.float32))


@contextlib.contextmanager
def _stores(size: Size, at: RedisAddress, form: TableForm) -> Iterator[dict[str, RowStore]]:
    """All stores, each with all rows."""
    job = f"bench-{form.width}"
    stores: dict[str, RowStore] = {
        "memory": MemoryRows(),
        "redis": RedisRows(RedisLink(lambda: at, PATIENCE_S), job, "0"),
    }
    for store in stores.values():
        store.open([form])
        store.load(0, {form.table.name: _all_rows(size, form)})
    try:
        yield stores
    finally:
        for store in stores.values():
            store.close()


@contextlib.contextmanager
def _bare(size: Size, at: RedisAddress, form: TableForm) -> Iterator[_Bare]:
    rows = BareRows(f"bare:{form.width}", size.num_rows, form.width)
    names = np.array([rows.key(id_).encode() for id_ in range(size.num_rows)], object)
    with redis.Redis(at.host, at.port, password=at.password) as client:
        bare = _Bare(client, rows, names)
        for change in _all_rows(size, form):
            bare.write(change.ids, change.values)
        yield bare
        client.flushdb()


@contextlib.contextmanager
def _server(folder: Path) -> Iterator[RedisAddress]:
    """A Redis as a job starts it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        at = RedisAddress("127.0.0.1", free.getsockname()[1], password=PASSWORD)
    told = configuration(at.host, at.port, PASSWORD, folder)
    process = subprocess.Popen(
        [find_server(), "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    assert process.stdin is not None
    with process.stdin as file:
        file.write(told)
    try:
        _wait_for(at)
        yield at
    finally:
        process.kill()
        process.wait()


def _wait_for(at: RedisAddress) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            with redis.Redis(at.host, at.port, password=at.password) as client:
                client.ping()
                return
        except redis.ConnectionError:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.05)
