"""A strategy with rows of embeddings beside it: one update changes both, or nothing that counts.

The parameters are wherever the strategy inside has them; rows are the master's to change alone.
"""

import asyncio
import math
import os
import ssl
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Generic, TypeVar

from elastic.checkpoints.contents import CutRows
from elastic.errors import JobSpecError
from elastic.frameworks.base import Array, Model, Tensors, UpdaterState
from elastic.master.parameters.servers import ServerRing
from elastic.master.parameters.servers_with_rows import ServerRows
from elastic.master.parameters.strategy import (
    Directions,
    Incoming,
    ParametersLostError,
    Strategy,
)
from elastic.master.parameters.tables import Share, Tables
from elastic.platforms.registry import MasterEnvironment
from elastic.rows.base import Change, Ids, RowsLostError, RowStore, Values
from elastic.rows.cached import CachedRows, WouldWaitError
from elastic.rows.ids import ChangedIds
from elastic.rows.memory import MemoryRows
from elastic.rpc.layout import PackedModel
from elastic.spec.job import JobSpec
from elastic.spec.platforms import JobKind
from elastic.spec.status import TableStatus
from elastic.spec.values import (
    PASSWORD_VARIABLE,
    RedisAddress,
    own_password,
    parse_redis_url,
    pip_install,
)

MEASURED_EACH_S: Final = 1.0
"""A store that is another process is asked for the size of its tables no more often."""

C = TypeVar("C")
R = TypeVar("R")

INLINE_IDS: Final = 16_384
"""Below this, rows in memory are worked on at once: a thread costs 0.3 ms more, a third of the
work, and the interpreter does little else meanwhile."""


@dataclass(slots=True)
class WithShare(Generic[C]):
    """A gradient of the parameters, and of rows.

    Attributes:
        inner: As the strategy inside has it.
    """

    inner: C
    share: Share
    learning_rate_scale: float = 1.0


class WithRows(Generic[C]):
    """See `Strategy`; of each method what it adds for rows."""

    def __init__(self, inner: Strategy[C], tables: Tables, folder: Path | None = None) -> None:
        """Put tables beside a strategy.

        Args:
            inner: Has the parameters.
            tables: Opened, at the version of the parameters once something was loaded.
            folder: For files of older rows; None where they are in memory.
        """
        self._inner = inner
        self.tables = tables
        self._folder = folder
        self._group: list[WithShare[C]] = []
        self._changed = ChangedIds()
        self._held: dict[Hashable, list[int]] = {}
        self._old: dict[int, Tables] = {}
        self._to_let_go: list[int] = []
        self._is_lost = asyncio.Event()
        self._why_lost = ""
        self._is_torn = False
        self._sizes: tuple[TableStatus, ...] = ()
        self._measured_s = -math.inf

    # -- what the strategy inside has ----------------------------------------------------------

    @property
    def version(self) -> int:
        return self._inner.version

    @property
    def lock(self) -> asyncio.Lock:
        return self._inner.lock

    @property
    def model(self) -> Model:
        return self._inner.model

    @property
    def learning_rate(self) -> float:
        return self._inner.learning_rate

    @property
    def applied_learning_rate(self) -> float:
        return self._inner.applied_learning_rate

    async def whole(self) -> Model:
        """See `Strategy`."""
        return await self._inner.whole()

    async def start(self) -> None:
        """See `Strategy`."""
        await self._inner.start()

    async def lost(self) -> str:
        """Return when parameters or rows are lost."""
        inner = asyncio.ensure_future(self._inner.lost())
        own = asyncio.ensure_future(self._is_lost.wait())
        try:
            await asyncio.wait([inner, own], return_when=asyncio.FIRST_COMPLETED)
            return inner.result() if inner.done() else self._why_lost
        finally:
            inner.cancel()
            own.cancel()

    def directions(self) -> Directions:
        """See `Strategy`."""
        return self._inner.directions()

    async def close(self) -> None:
        """See `Strategy`."""
        await self._inner.close()

    def end_epoch(self) -> None:
        """See `Strategy`."""
        self._inner.end_epoch()

    async def packed(self, reader: Hashable, version: int | None = None) -> PackedModel | None:
        """See `Strategy`."""
        return await self._inner.packed(reader, version)

    def kept(self, version: int) -> tuple[Tensors, Tensors] | None:
        """See `Strategy`."""
        return self._inner.kept(version)

    async def copy(self) -> tuple[Tensors, Tensors, UpdaterState]:
        """See `Strategy`: without rows, for which there is `hold_rows`."""
        self._check_whole()
        return await self._inner.copy()

    # -- updates -------------------------------------------------------------------------------

    async def receive(self, incoming: Incoming) -> WithShare[C]:
        """Take in rows as well.

        Raises:
            ValueError: They are not rows of this model's tables.
        """
        self.tables.check(incoming.rows)
        inner = await self._inner.receive(replace(incoming, rows={}))
        return WithShare(inner, Share(incoming.rows, incoming.num_records))

    def give_back(self, contribution: WithShare[C]) -> None:
        """See `Strategy`."""
        self._inner.give_back(contribution.inner)

    def left(self, session: str) -> None:
        """See `Strategy`."""
        self._inner.left(session)

    def stage(self, contribution: WithShare[C], learning_rate_scale: float) -> None:
        """See `Strategy`."""
        self._inner.stage(contribution.inner, learning_rate_scale)
        contribution.learning_rate_scale = learning_rate_scale
        self._group.append(contribution)

    def own_staged(self) -> None:
        """See `Strategy`: rows that have come are ours."""
        self._inner.own_staged()

    def drop_staged(self) -> None:
        """See `Strategy`."""
        self._inner.drop_staged()
        self._group = []

    async def commit(self, state_share: float = 1.0, rate_scale: float = 1.0) -> int:
        """Update the parameters, then rows by the same rate, which is known by then.

        Where the parameters fail, no row has changed. Where rows do, both are of two versions: the
        job ends, or goes back to a cut.
        """
        # One that succeeds would hide that the one before is of records that have not counted.
        self._check_whole()
        group, self._group = self._group, []
        version = await self._inner.commit(state_share, rate_scale)
        # Whoever has the lock after a failure finds parameters of which no cut can be made.
        self._is_torn = True
        rate = self._inner.applied_learning_rate * group[0].learning_rate_scale * rate_scale
        shares = [each.share for each in group]
        let_go, self._to_let_go = self._to_let_go, []
        num_rows = self._num_worked_on(shares, version)
        with self._losing():
            changes = await self._run(partial(self.tables.changes, shares, rate, version), num_rows)
            await self._run(partial(self._commit_rows, version, changes), num_rows)
            if let_go or self._is_measured_anew():
                await self._run(partial(self._look_after, let_go))
        self._is_torn = False
        return version

    # -- reading versions ----------------------------------------------------------------------

    async def rows(self, table: str, ids: Ids, version: int | None = None) -> Values | None:
        """See `Strategy`."""
        old = None if version is None else self._old.get(version)
        if old is not None:
            return await self._run(partial(old.read, table, ids), len(ids))
        if version is None:
            # Who has pulled the parameters of an update must not get rows from before it.
            async with self.lock:
                pass
        try:
            with self._losing():
                return await self._run(partial(self.tables.read, table, ids, version), len(ids))
        except KeyError:
            return None

    async def keep(self, reader: Hashable) -> None:
        """Keep rows as well."""
        await self._inner.keep(reader)
        await self._hold(reader)

    async def keep_values(
        self,
        reader: Hashable,
        version: int,
        parameters: Tensors,
        state: Tensors,
        rows: CutRows | None = None,
    ) -> None:
        """Keep rows of an older version, which the store has not."""
        await self._inner.keep_values(reader, version, parameters, state)
        old = Tables(MemoryRows(self._folder), self.tables.tables)
        await asyncio.to_thread(_begin, old, version, rows)
        self._old[version] = old
        self._held.setdefault(reader, []).append(version)

    def release(self, reader: Hashable) -> None:
        """Let rows go as well."""
        self._inner.release(reader)
        for version in self._held.pop(reader, ()):
            if self._old.pop(version, None) is None:
                self._let_go(version)

    async def hold_rows(self) -> CutRows:
        """See `Strategy`."""
        reader = object()
        await self._hold(reader)
        version = self.tables.store.version
        return self.tables.of_version(version, partial(self._release_rows, reader))

    async def hold_rows_since(self, version: int | None) -> CutRows:
        """See `Strategy`."""
        now = self.tables.store.version
        noted = self._changed.since(version, now)
        # The first one is of no row, or of those that another job's cut has: it is loaded as fast.
        is_held = self.tables.store.is_durable and version is not None
        rows = replace(await self.hold_rows(), is_held=is_held)
        if noted is None:
            return rows
        return replace(rows, changed=partial(self.tables.changed, noted, now))

    def held_at(self, version: int) -> CutRows:
        """Rows of a version that the store holds since a life before."""
        let_go = partial(self._let_go, version)
        return replace(self.tables.of_version(version, let_go), is_held=True)

    def load(
        self,
        version: int,
        parameters: Mapping[str, Array],
        state: Mapping[str, Array],
        optimizer: UpdaterState | None,
    ) -> None:
        """See `Strategy`: rows go back by `Tables.go_back`."""
        self._inner.load(version, parameters, state, optimizer)
        self._changed = ChangedIds(version)

    def sizes(self) -> tuple[TableStatus, ...]:
        """How large the tables are, or were a moment ago."""
        if not self.tables.store.is_durable:
            return self.tables.sizes()
        return self._sizes

    # -- inside --------------------------------------------------------------------------------

    def _check_whole(self) -> None:
        if self._is_torn:
            raise ParametersLostError(
                f"the rows of version {self.version} were not stored"
                + (f": {self._why_lost}" if self._why_lost else "")
            )

    async def _hold(self, reader: Hashable) -> None:
        version = self.tables.store.version
        with self._losing():
            await self._run(partial(self._hold_and_measure, version))
        self._held.setdefault(reader, []).append(version)

    def _hold_and_measure(self, version: int) -> None:
        self.tables.store.hold(version)
        if self.tables.store.is_durable:
            # The last checkpoint holds too, so that the sizes of a job that has ended are its last.
            self._measure()

    def _measure(self) -> None:
        self._sizes, self._measured_s = self.tables.sizes(), time.monotonic()

    def _release_rows(self, reader: Hashable) -> None:
        for version in self._held.pop(reader, ()):
            self._let_go(version)

    def _let_go(self, version: int) -> None:
        if self.tables.store.is_durable:
            # A call of another process: made with the next commit, which makes some as well.
            self._to_let_go.append(version)
        else:
            self.tables.store.let_go(version)

    def _num_worked_on(self, shares: Sequence[Share], version: int) -> int:
        """Rows that an update goes through; many where it would have to ask another process."""
        if self.tables.store.is_durable and self.tables.have_life:
            return INLINE_IDS
        return self.tables.num_worked_on(shares, version)

    def _commit_rows(self, version: int, changes: Mapping[str, Change]) -> None:
        # First, since it may have to be done anew: see `_run`.
        self.tables.store.commit(version, changes)
        self._changed.add(changes)

    def _is_measured_anew(self) -> bool:
        is_due = time.monotonic() > self._measured_s + MEASURED_EACH_S
        return self.tables.store.is_durable and is_due

    def _look_after(self, let_go: Sequence[int]) -> None:
        for each in let_go:
            self.tables.store.let_go(each)
        if self._is_measured_anew():
            self._measure()

    @contextmanager
    def _losing(self) -> Iterator[None]:
        try:
            yield
        except RowsLostError as error:
            self._why_lost = str(error)
            self._is_lost.set()
            raise ParametersLostError(str(error)) from error

    async def _run(self, work: Callable[[], R], num_rows: int = 0) -> R:
        """Work on rows: at once where that is short and waits for nothing, else in a thread.

        What turns out to wait is done anew there, so it changes nothing before it does.
        """
        store = self.tables.store
        if num_rows < INLINE_IDS and _is_in_memory(store):
            return work()
        if num_rows < INLINE_IDS and isinstance(store, CachedRows):
            with suppress(WouldWaitError), store.at_once():
                return work()
        return await asyncio.to_thread(work)


def _is_in_memory(store: RowStore) -> bool:
    """Whether nothing is waited for: a disk, or another process."""
    return isinstance(store, MemoryRows) and store.folder is None


def _begin(tables: Tables, version: int, rows: CutRows | None) -> None:
    tables.open()
    tables.begin(version, rows)


# Which store of rows a job has.


OF_REDIS: Final = "redis"
"""The package, and all that it is made of."""


def row_store(spec: JobSpec, env: MasterEnvironment, ring: ServerRing | None) -> RowStore:
    """The store that a job names, not opened yet.

    Args:
        spec: Of the job.
        env: Of its master.
        ring: Of the Redis that the job brings along; None where it brings none.

    Raises:
        JobSpecError: What it needs is not installed here.
    """
    if spec.kind is not JobKind.TRAIN:
        # They are read alone, so that they need no more memory than there is.
        return MemoryRows(env.recovery_dir.parent)
    if spec.embedding_store == "memory":
        return MemoryRows()
    if spec.embedding_store == "ps":
        return ServerRows()
    try:
        # Only jobs with a Redis need its package.
        from elastic.rows.redis.link import RedisLink
        from elastic.rows.redis.store import RedisRows
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != OF_REDIS:
            raise
        raise JobSpecError(
            "--embedding_store redis needs the package redis, which is not installed where the "
            f"master runs: {pip_install(OF_REDIS)}; in a cluster, the model_zoo's requirements.txt "
            "names it"
        ) from error
    link = RedisLink(_where(spec, env, ring), spec.embedding_redis_patience)
    return CachedRows(RedisRows(link, spec.job_name, env.run_id))


def never_reached(error: RowsLostError) -> JobSpecError:
    """What is told of a Redis of the user's that no master of the job has met."""
    return JobSpecError(
        f"{error}: see that it runs there and lets this machine in, and that --embedding_redis_url "
        "names it; --embedding_redis_patience is how long it is waited for"
    )


def _where(
    spec: JobSpec, env: MasterEnvironment, ring: ServerRing | None
) -> Callable[[], RedisAddress | None]:
    if ring is None:
        address = parse_redis_url(spec.embedding_redis_url, os.environ.get(PASSWORD_VARIABLE, ""))
        address = replace(address, authorities=_authorities(spec.embedding_redis_ca))
        return lambda: address
    chain = "" if env.certificate is None else env.certificate.chain
    return partial(_announced, ring, own_password(env.token), chain)


def _authorities(path: str) -> str:
    """The certificates of a file.

    Raises:
        JobSpecError: It cannot be read, or has none.
    """
    if not path:
        return ""
    try:
        text = Path(path).read_text("ascii")
        # Whoever connects would say it of the Redis.
        ssl.create_default_context(cadata=text)
    except (OSError, UnicodeDecodeError, ssl.SSLError) as error:
        raise JobSpecError(
            f"--embedding_redis_ca={path} cannot be read where the master runs ({error}): name a "
            "file with certificates as PEM"
        ) from error
    return text


def _announced(ring: ServerRing, password: str, certificate: str) -> RedisAddress | None:
    """Where the job's own Redis says that it is."""
    for life in ring.lives():
        address = parse_redis_url(f"redis://{life.address}", password)
        return replace(address, certificate=certificate)
    return None
