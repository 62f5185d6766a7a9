"""The strategy in which parameter servers have the parameters, and the master commits.

Which process has which place, and whether it still has, the `ServerRing` knows.

The master keeps a model of its own, its *mirror*: what a cut, an evaluation or an export reads is
copied there from the servers. It takes the same update to have been made by all servers, or by none
that counts: where one of them is lost, everything goes back to a cut.
"""

import asyncio
import math
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from elastic.checkpoints.contents import CutRows
from elastic.errors import ModelDefError, RpcError, TrainingError
from elastic.frameworks.base import Array, Model, Tensors, UpdaterState
from elastic.master.parameters.store import ParameterStore
from elastic.master.parameters.strategy import (
    Directions,
    Incoming,
    ParametersLostError,
    ServerPlace,
    cut_out,
    described,
    joined,
    joined_optimizer,
    share_of_optimizer,
    sized,
)
from elastic.platforms.base import NO_FENCE, Fence, FencedError
from elastic.policy.fleet import HEARTBEAT_LIMIT_S, STALL_S
from elastic.policy.replicas import ReplicaId
from elastic.policy.updates.server_shares import Share, spread
from elastic.rows.base import Ids, Values
from elastic.rpc.client import BULK_TIMEOUT_S
from elastic.rpc.layout import PackedModel, SharedHandle
from elastic.rpc.server_client import (
    AsyncServerClient,
    Commit,
    CommitId,
    Committed,
    CopiedShare,
    LoadedShare,
    OtherEraError,
    ServerAwayError,
)
from elastic.spec.values import Certificate

K = TypeVar("K")

MAX_HANGS: Final = 3
"""So often the servers may fail to bring one version about, and the job fails."""


@dataclass(frozen=True, slots=True)
class ServerLife:
    """One process that serves.

    Attributes:
        life: Of this process alone: one launch may come again with an empty memory.
        address: `host:port`.
    """

    replica: ReplicaId
    life: str
    address: str


class ServerRing:
    """The places of a job's servers of one role. On the event loop.

    A server says every two seconds that it is there, as a worker does, and is given as long.

    Attributes:
        changed: Set when a server comes or goes; whoever waits clears it first.
    """

    def __init__(
        self,
        num_servers: int,
        set_up_s: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without any server.

        Args:
            num_servers: How many places there are.
            set_up_s: What a server that runs may take until it says so.
            clock: Tells the time.
        """
        self.num_servers = num_servers
        self.changed = asyncio.Event()
        self._set_up_s = set_up_s
        self._clock = clock
        self._running_s: dict[ReplicaId, float] = {}
        self._lives: dict[int, ServerLife] = {}
        self._heard_s: dict[int, float] = {}
        self._hangs: Counter[int] = Counter()
        self._hung: set[ReplicaId] = set()
        self._fenced: set[ReplicaId] = set()
        self._last_look_s: float | None = None

    def announced(self, life: ServerLife) -> None:
        """A server is there, or says so before it ends."""
        index = life.replica.index
        if life.replica in self._fenced:
            return
        self._heard_s[index] = self._clock()
        if self._lives.get(index) != life:
            self._lives[index] = life
            self.changed.set()

    def gone(self, replica: ReplicaId) -> None:
        """A launch of a server has ended, be it one that has a place or not."""
        there = self._lives.get(replica.index)
        self._hung.discard(replica)
        if there is not None and there.replica == replica:
            del self._lives[replica.index]
            del self._heard_s[replica.index]
            self.changed.set()

    def fence(self, replica: ReplicaId) -> None:
        """This launch is about to be ended, and serves no more whatever it says."""
        self._fenced.add(replica)
        self.gone(replica)

    def has(self, lives: Sequence[ServerLife]) -> bool:
        """Whether all of these processes still have their places."""
        return all(self._lives.get(each.replica.index) == each for each in lives)

    def lives(self) -> list[ServerLife]:
        """The servers that are there."""
        return list(self._lives.values())

    def missing(self) -> list[int]:
        """Indices of the servers that are not there."""
        return [index for index in range(self.num_servers) if index not in self._lives]

    async def complete(self) -> list[ServerLife]:
        """Wait until all servers are there."""
        while self.missing():
            self.changed.clear()
            await self.changed.wait()
        return [self._lives[index] for index in range(self.num_servers)]

    async def change_of(self, lives: Sequence[ServerLife]) -> None:
        """Wait until one of these has lost its place."""
        while self.has(lives):
            self.changed.clear()
            await self.changed.wait()

    def hangs(self, life: ServerLife, version: int) -> bool:
        """A server does not bring a version about, and is to be replaced.

        Returns:
            Whether that has happened too often for the servers to be at fault.
        """
        self._hung.add(life.replica)
        self._hangs[version] += 1
        return self._hangs[version] >= MAX_HANGS

    def to_replace(self, running: Collection[ReplicaId] = ()) -> list[tuple[ReplicaId, str]]:
        """The servers that hang, and how that shows; to be asked at least every second.

        Args:
            running: The launches that run, as their platform sees them.
        """
        now_s = self._clock()
        self._forgive_stall(now_s)
        known = {life.replica for life in self._lives.values()} | self._fenced
        self._running_s = {
            each: self._running_s.get(each, now_s) for each in running if each not in known
        }
        found = [
            (each, f"hung in set-up: no word of it within start_timeout={self._set_up_s:g} s")
            for each, since_s in self._running_s.items()
            if now_s - since_s > self._set_up_s
        ]
        for index, life in self._lives.items():
            silent_s = now_s - self._heard_s[index]
            if life.replica in self._hung:
                found.append((life.replica, "did not answer in time"))
            elif silent_s > HEARTBEAT_LIMIT_S:
                found.append((life.replica, f"gave no sign of life for {silent_s:.1f} s"))
        return found

    def _forgive_stall(self, now_s: float) -> None:
        """Not count the time in which the master could not have heard anybody."""
        if self._last_look_s is not None and (stalled_s := now_s - self._last_look_s) > STALL_S:
            self._heard_s = _later(self._heard_s, stalled_s, now_s)
            self._running_s = _later(self._running_s, stalled_s, now_s)
        self._last_look_s = now_s


def _later(times_s: Mapping[K, float], by_s: float, now_s: float) -> dict[K, float]:
    return {key: min(now_s, at_s + by_s) for key, at_s in times_s.items()}


T = TypeVar("T")

LEAVE_S: Final = 2.0
"""How long a server may take to hear that it is not needed."""

PAUSE_S: Final = 0.05
"""Between two calls of a server that does not answer; it may have ended, which is told soon."""


@dataclass(slots=True)
class Staged:
    """A gradient that lies on the servers.

    Attributes:
        is_staged: Whether it does; else a server has found it too old.
    """

    session: str
    sequence: int
    num_records: int
    is_staged: bool
    learning_rate_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class ServerRules:
    """What servers are told, and how long they may take.

    Attributes:
        is_synchronous: A gradient of an older version never counts.
        first_s: What the first update of an era may take, which may compile.
        limit_s: What any other may take.
        certificate: The job's; None where its calls go in clear.
    """

    token: str
    total_steps: int
    is_synchronous: bool
    first_s: float
    limit_s: float
    certificate: Certificate | None = None


@dataclass(slots=True)
class LoadedServer:
    """One server of this era."""

    life: ServerLife
    share: Share
    client: AsyncServerClient
    proof: SharedHandle | None = None


class ServerParameters:
    """The master's half, for one era: from one load of the servers until one of them is lost."""

    def __init__(
        self,
        mirror: ParameterStore,
        ring: ServerRing,
        rules: ServerRules,
        on_progress: Callable[[ServerLife], None],
        fence: Fence = NO_FENCE,
    ) -> None:
        """Take what `start` brings to the servers.

        Args:
            mirror: The model and its optimizer, which the master does not update.
            ring: The servers.
            rules: What they are told.
            on_progress: Told of each server when the first update is made.
            fence: Asked before each call of a server.

        Raises:
            ModelDefError: This model's parameters cannot be spread over so many servers.
        """
        self.version = mirror.version
        self.era = secrets.token_hex(8)
        self._mirror = mirror
        self._ring = ring
        self._rules = rules
        self._on_progress = on_progress
        self._fence = fence
        self._whole = described(mirror.parameter_layout)
        self._shares = _spread(mirror, ring.num_servers)
        self._servers: list[LoadedServer] = []
        self._group: list[Staged] = []
        self._ended: set[str] = set()
        self._num_epochs = 0
        self._num_made = 0
        self._rate = self.applied_learning_rate = mirror.learning_rate
        self._mirrors_rate = self._rate
        self._closed = asyncio.Event()

    # -- what it has ---------------------------------------------------------------------------

    @property
    def lock(self) -> asyncio.Lock:
        return self._mirror.lock

    @property
    def model(self) -> Model:
        return self._mirror.model

    @property
    def learning_rate(self) -> float:
        return self._rate

    async def whole(self) -> Model:
        """See `Strategy`."""
        await self._refresh()
        return self._mirror.model

    # -- where they are ------------------------------------------------------------------------

    async def start(self) -> None:
        """See `Strategy`: waits for all servers, and loads them."""
        lives = await self._ring.complete()
        self._servers = [
            LoadedServer(life, share, self._client_of(life))
            for life, share in zip(lives, self._shares, strict=True)
        ]
        optimizer = self._mirror.updater.state()
        await self._all(lambda server: self._load(server, optimizer))

    def _client_of(self, life: ServerLife) -> AsyncServerClient:
        return AsyncServerClient(life.address, self._rules.token, self._rules.certificate)

    async def lost(self) -> str:
        """Return when one of the servers that were loaded is there no more."""
        await self._ring.change_of([each.life for each in self._servers])
        return "a parameter server was lost"

    def directions(self) -> Directions:
        """See `Strategy`."""
        return Directions(
            self.era,
            [ServerPlace(each.life.address, each.share, each.proof) for each in self._servers],
        )

    async def close(self) -> None:
        """See `Strategy`."""
        self._closed.set()
        await asyncio.gather(*(each.client.close() for each in self._servers))

    # -- updates -------------------------------------------------------------------------------

    async def receive(self, incoming: Incoming) -> Staged:
        """See `Strategy`: nothing comes but the word that it is staged."""
        incoming.check_no_rows()
        return Staged(incoming.session, incoming.sequence, incoming.num_records, incoming.is_staged)

    def give_back(self, contribution: Staged) -> None:
        """See `Strategy`: the worker has what was refused dropped with its next gradient."""

    def left(self, session: str) -> None:
        """See `Strategy`: the servers are told with the next commit."""
        self._ended.add(session)
        self._mirror.release(session)

    def stage(self, contribution: Staged, learning_rate_scale: float) -> None:
        """See `Strategy`."""
        if not contribution.is_staged:
            raise ValueError(
                f"report {contribution.sequence} is of the newest version, and is not staged"
            )
        contribution.learning_rate_scale = learning_rate_scale
        self._group.append(contribution)

    def own_staged(self) -> None:
        """See `Strategy`: the servers have it."""

    def drop_staged(self) -> None:
        """See `Strategy`."""
        self._group = []

    async def commit(self, state_share: float = 1.0, rate_scale: float = 1.0) -> int:
        """See `Strategy`: returns when all servers have made the update."""
        self._check_rate()
        group, self._group = self._group, []
        # Of those who have left, only what is in this group still counts.
        ended, self._ended = self._ended, set()
        commit = Commit(
            self.era,
            self.version + 1,
            [
                CommitId(
                    each.session,
                    each.sequence,
                    each.num_records,
                    each.learning_rate_scale * rate_scale,
                )
                for each in group
            ],
            state_share,
            self._num_epochs,
            sorted(ended),
        )
        answers = await self._all(lambda server: self._commit(server, commit))
        failure = next((each.failure for each in answers if each.failure), "")
        if failure:
            raise TrainingError(failure)
        self.version += 1
        self._rate = answers[0].learning_rate
        self.applied_learning_rate = answers[0].applied_learning_rate
        if not self._num_made:
            for server in self._servers:
                self._on_progress(server.life)
        self._num_made += 1
        return self.version

    def end_epoch(self) -> None:
        """See `Strategy`: the servers are told with the next commit or copy."""
        self._num_epochs += 1

    # -- reading versions ----------------------------------------------------------------------

    async def packed(self, reader: Hashable, version: int | None = None) -> PackedModel | None:
        """See `Strategy`."""
        if version in (None, self.version):
            async with self.lock:
                await self._refresh()
        return await self._mirror.packed(reader, version)

    async def keep(self, reader: Hashable) -> None:
        """See `Strategy`."""
        await self._refresh()
        await self._mirror.keep(reader)

    async def keep_values(
        self,
        reader: Hashable,
        version: int,
        parameters: Tensors,
        state: Tensors,
        rows: CutRows | None = None,  # noqa: ARG002
    ) -> None:
        """See `Strategy`."""
        await self._mirror.keep_values(reader, version, parameters, state)

    def kept(self, version: int) -> tuple[Tensors, Tensors] | None:
        """See `Strategy`."""
        return self._mirror.kept(version)

    def release(self, reader: Hashable) -> None:
        """See `Strategy`."""
        self._mirror.release(reader)

    async def rows(self, table: str, ids: Ids, version: int | None = None) -> Values | None:  # noqa: ARG002
        """See `Strategy`: there are none."""
        raise ValueError(f"the model has no table {table!r}")

    async def hold_rows(self) -> CutRows | None:
        """See `Strategy`: there are none."""
        return None

    async def hold_rows_since(self, version: int | None) -> CutRows | None:  # noqa: ARG002
        """See `Strategy`: there are none."""
        return None

    async def copy(self) -> tuple[Tensors, Tensors, UpdaterState]:
        """See `Strategy`: every server copies at one version, which the mirror has then too."""
        if not self._servers:
            return await self._mirror.copy()
        parts = await self._copies(with_optimizer=True)
        parameters, state = self._joined(parts)
        optimizer = joined_optimizer(
            self._whole, self._shares, [UpdaterState(each.slots, each.values) for each in parts]
        )
        await self._mirror_values(parameters, state)
        return parameters, state | self.model.frozen(), optimizer

    def load(
        self,
        version: int,
        parameters: Mapping[str, Array],
        state: Mapping[str, Array],
        optimizer: UpdaterState | None,
    ) -> None:
        """See `Strategy`: into the mirror, from which `start` loads the servers."""
        assert not self._servers, "an era begins with one load"
        self._mirror.load(version, parameters, state, optimizer)
        self.version = version
        self._rate = self._mirrors_rate = self._mirror.learning_rate

    # -- inside --------------------------------------------------------------------------------

    def _check_rate(self) -> None:
        """Refuse what a callback has done to the master's optimizer, and no server would hear of.

        Raises:
            TrainingError: It has set the learning rate.
        """
        rate = self._mirror.learning_rate
        if rate != self._mirrors_rate:
            raise TrainingError(
                f"a callback has set the learning rate from {self._mirrors_rate:g} to {rate:g}, "
                "and with --strategy ps the servers have the optimizer: give it a schedule"
            )

    async def _refresh(self) -> None:
        """Have the newest version in the mirror; the caller holds the lock."""
        if self._mirror.version != self.version:
            parts = await self._copies(with_optimizer=False)
            await self._mirror_values(*self._joined(parts))

    async def _mirror_values(self, parameters: Tensors, state: Tensors) -> None:
        await asyncio.to_thread(self._mirror.take, self.version, parameters, state, None)

    def _joined(self, parts: list[CopiedShare]) -> tuple[Tensors, Tensors]:
        mirror, shares = self._mirror, self._shares
        return (
            joined(
                [spec.name for spec in mirror.parameter_layout.specs],
                [share.parameters for share in shares],
                [part.parameters for part in parts],
            ),
            joined(
                [spec.name for spec in mirror.state_layout.specs],
                [share.state for share in shares],
                [part.state for part in parts],
            ),
        )

    async def _load(self, server: LoadedServer, optimizer: UpdaterState) -> None:
        what = f"taken its share of version {self.version}"
        share = self._share_of(server, optimizer)
        server.proof, failure = await self._ask(
            server, lambda _: server.client.load(share), what, self._rules.first_s
        )
        if failure:
            raise ModelDefError(f"{server.life.replica.name}: {failure}")

    def _share_of(self, server: LoadedServer, optimizer: UpdaterState) -> LoadedShare:
        """What a server begins with."""
        model, rules = self._mirror.model, self._rules
        own = share_of_optimizer(server.share, self._whole, optimizer)
        return LoadedShare(
            self.era,
            self.version,
            self._whole,
            cut_out(server.share.parameters, model.parameters()),
            cut_out(server.share.state, model.state()),
            own.tensors,
            own.values,
            rules.total_steps,
            rules.is_synchronous,
        )

    async def _commit(self, server: LoadedServer, commit: Commit) -> Committed:
        """Have one server make the update, however often it has to be asked."""
        rules = self._rules
        return await self._ask(
            server,
            lambda left_s: server.client.commit(commit, left_s),
            f"made update {commit.version}",
            rules.limit_s if self._num_made else max(rules.first_s, rules.limit_s),
        )

    def _hangs(self, server: LoadedServer, what: str, limit_s: float) -> Exception:
        name = server.life.replica.name
        told = f"{name} has not {what} within {limit_s:g} s"
        if self._ring.hangs(server.life, self.version):
            return TrainingError(f"{told}, nor has another in its place: see `elastic logs {name}`")
        return ParametersLostError(told)

    async def _copies(self, *, with_optimizer: bool) -> list[CopiedShare]:
        return await self._all(
            lambda server: self._ask(
                server,
                lambda _: server.client.copy(
                    self.era, self.version, self._num_epochs, with_optimizer=with_optimizer
                ),
                f"given its share of version {self.version}",
                max(BULK_TIMEOUT_S, self._rules.limit_s),
            )
        )

    async def _all(self, each: Callable[[LoadedServer], Awaitable[T]]) -> list[T]:
        """What all servers answer; the first that fails ends the others' calls."""
        tasks = [asyncio.ensure_future(each(server)) for server in self._servers]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _ask(
        self, server: LoadedServer, call: Callable[[float], Awaitable[T]], what: str, limit_s: float
    ) -> T:
        """A server's answer, as long as it can come and is worth anything.

        Args:
            server: Whom to ask, however often it takes.
            call: Asks once; told the seconds that are left.
            what: What a server has not done that never answers.
            limit_s: After which it counts as such.

        Raises:
            ParametersLostError: The server has lost its share, or this era is over.
        """
        until_s = time.monotonic() + limit_s
        while True:
            self._check_there(server)
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                raise self._hangs(server, what, limit_s)
            calling = asyncio.ensure_future(self._fenced(partial(call, left_s)))
            leaving = [
                asyncio.ensure_future(self._ring.change_of([server.life])),
                asyncio.ensure_future(self._closed.wait()),
            ]
            try:
                # A server may take a call, go on telling of itself, and never answer.
                await asyncio.wait(
                    {calling, *leaving}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED
                )
                self._check_there(server)
                if calling.done():
                    return await calling
            except (ServerAwayError, FencedError):
                # Whoever has ended is told of by its platform.
                await asyncio.sleep(PAUSE_S)
            except OtherEraError as error:
                raise ParametersLostError(
                    f"{server.life.replica.name} has lost it: {error}"
                ) from error
            except RpcError as error:
                raise TrainingError(f"{server.life.replica.name}: {error}") from error
            finally:
                for each in (calling, *leaving):
                    each.cancel()
                    each.add_done_callback(_retrieve)

    async def _fenced(self, call: Callable[[], Awaitable[T]]) -> T:
        self._fence.check()
        return await call()

    def _check_there(self, server: LoadedServer) -> None:
        if self._closed.is_set():
            raise ParametersLostError("the job has gone back to a cut")
        if not self._ring.has([server.life]):
            raise ParametersLostError(f"{server.life.replica.name} was lost")


async def dismiss(ring: ServerRing, token: str, certificate: Certificate | None = None) -> None:
    """Tell all servers that the job has its end; whoever does not hear it is ended otherwise."""
    clients = [AsyncServerClient(life.address, token, certificate) for life in ring.lives()]
    await asyncio.gather(*(each.leave(LEAVE_S) for each in clients), return_exceptions=True)
    await asyncio.gather(*(each.close() for each in clients))


def _retrieve(task: "asyncio.Future[Any]") -> None:
    """Whatever has come of it is for nobody any more."""
    if not task.cancelled():
        task.exception()


def _spread(mirror: ParameterStore, num_servers: int) -> list[Share]:
    may_cut = mirror.updater.may_cut(num_servers)
    parameters, state = sized(mirror.parameter_layout), sized(mirror.state_layout)
    shares = spread(parameters, state, num_servers, may_cut=may_cut)
    if not all(share.parameters for share in shares):
        raise ModelDefError(
            f"num_ps={num_servers} are more servers than the model's {len(parameters)} parameters "
            "can be spread over: give fewer"
        )
    return shares
