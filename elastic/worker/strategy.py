"""Where parameters live, for a worker: what fills its model, and what becomes of its gradients.

The loop and the step ask a `Strategy` and nobody else for parameters, and give gradients to nobody
else. Leases, sessions and the results of evaluations go by the client, whatever the strategy. Who
has the parameters, the master or servers, an `Exchange` knows.

What is measured of steps goes to a `StepMeter`: nothing, until somebody wants to know.
"""

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

from elastic.errors import JobSpecError
from elastic.frameworks.base import Array, Model, StepResult, Tensors, Updater
from elastic.policy.minibatches import Oddity
from elastic.policy.tasks.records import Task
from elastic.rows.base import RowGradients
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.client import NO_ROOM, MasterClient, PulledModel, Session, VersionGoneError
from elastic.rpc.layout import SharedMemory
from elastic.rpc.rows import RowsAhead, RowsMemory, WantedIds, ahead_to_proto, rows_laid, size_of
from elastic.rpc.wire import metrics_to_proto
from elastic.spec.job import JobSpec

log = logging.getLogger(__name__)


class StepMeter(Protocol):
    """Told as it happens, on the thread that computes."""

    def computed(self, step_s: float) -> None:
        """A minibatch's gradient was computed."""

    def pulled(self, pull_s: float) -> None:
        """The model was asked for and has come, or is here already."""

    def pushed(self, push_s: float, size_bytes: int) -> None:
        """A gradient was sent and answered."""

    def received(self, size_bytes: int) -> None:
        """A version of the model has come."""


class NoMeter:
    """Measures nothing."""

    def computed(self, step_s: float) -> None:
        """Ignored."""

    def pulled(self, pull_s: float) -> None:
        """Ignored."""

    def pushed(self, push_s: float, size_bytes: int) -> None:
        """Ignored."""

    def received(self, size_bytes: int) -> None:
        """Ignored."""


def open_meter(spec: JobSpec, index: int) -> StepMeter:
    """Serve what a worker measures; a port in use costs the job nothing but that.

    Args:
        spec: Of the job.
        index: Of the worker: on a shared machine its port follows the master's by so much and one.
    """
    port = spec.served_metrics_port
    if not port:
        return NoMeter()
    traits = spec.platform.traits
    if traits.shares_ports:
        port += 1 + index
    # Nobody else pays for the import.
    from elastic.telemetry.prometheus import WorkerExporter, serve

    exporter = WorkerExporter(spec.job_name, index)
    try:
        serve(exporter.registry, traits.metrics_host, port)
    except (JobSpecError, OverflowError) as error:
        log.warning("worker %d serves no metrics: %s", index, error)
        return NoMeter()
    return exporter


NO_ROWS: Final[RowGradients] = MappingProxyType({})


class LeaseLostError(Exception):
    """The task is no longer this worker's."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """What was computed of the records `[start, end)` of a leased task, on the strategy's version.

    Attributes:
        result: Gradients, the state that is not trained, loss and metrics.
        step_s: What it took, reading included.
        oddity: What is odd about the worker's first minibatches, told once.
        ahead: Rows that the next minibatch will ask for, as far as that is known.
    """

    task: Task
    start: int
    end: int
    result: StepResult
    step_s: float
    oddity: Oddity | None = None
    ahead: Sequence[WantedIds] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a contribution.

    Attributes:
        is_accepted: Whether it counts; if not, its records are to be computed again.
        version: That now is, as far as whoever decided knows.
    """

    is_accepted: bool
    version: int


class Strategy(Protocol):
    """Keeps a worker's model at the version that is computed on. Not thread-safe."""

    @property
    def version(self) -> int:
        """What the model was filled with last."""

    def begin(self, session: Session) -> None:
        """Take the session that all calls are of from now on, with the first or a later master.

        What a version meant in the session before, it may not mean in this one.
        """

    def doubt_version(self) -> None:
        """Others may have gone on since the last step, as during a wait for a task."""

    def fill(self) -> None:
        """Have in the model what the next gradient is to be computed on."""

    def fill_version(self, version: int | None) -> None:
        """Have in the model one version as it is kept, the newest for None; until the next `fill`.

        Raises:
            LeaseLostError: It is gone, since what it was kept for is over.
        """

    def contribute(self, contribution: Contribution) -> Outcome:
        """Give a gradient away; may wait for the update that it becomes a part of.

        The contribution counts at most once, and is the strategy's until this returns or raises.

        Raises:
            LeaseLostError: Its records were given to another worker.
            TrainingError: It has more rows of embeddings than can travel.
        """

    def idle(self, seconds: float, stopping: threading.Event) -> None:
        """Let the time pass until a task is asked for again, or until this worker is to stop.

        Here and not in the loop, for others may need who has no records of its own.
        """


class RowsOfVersions(Protocol):
    """Where rows of embeddings come from while the model computes."""

    def begin(self, session: Session) -> None:
        """Take the session that all calls are of from now on."""

    def read_at(self, version: int | None, beside: int) -> None:
        """Say what the model is filled with, and which rows go with it.

        Args:
            version: Of which rows are read from now on, the newest for None.
            beside: Of the parameters.
        """


class NoRows:
    """The model has no tables."""

    def begin(self, session: Session) -> None:
        """See `RowsOfVersions`."""

    def read_at(self, version: int | None, beside: int) -> None:
        """See `RowsOfVersions`."""


class Exchange(Protocol):
    """Carries versions and gradients. Not thread-safe."""

    def begin(self, session: Session) -> None:
        """Take the session that all calls are of from now on."""

    def get_model(self, have_version: int | None, version: int | None = None) -> PulledModel | None:
        """A version, the newest for None; None where it is the one that is here.

        The arrays are valid until the next call.

        Raises:
            VersionGoneError: That version is not kept any more.
        """

    def get_frozen(self) -> Mapping[str, Array]:
        """What is the same in all versions, by name, in arrays of the caller's own."""

    def report_gradient(
        self,
        header: pb.GradientHeader,
        gradients: Mapping[str, Array],
        state: Mapping[str, Array],
        rows: RowGradients = NO_ROWS,
        wanted: Sequence[WantedIds] = (),
    ) -> pb.ReportGradientReply:
        """Give a gradient away; the reply may wait for the update.

        Args:
            header: Of the report.
            gradients: By name.
            state: Not trained, by name.
            rows: Gradients of rows of embeddings.
            wanted: Rows that are wanted with the version that is made, see `RowsAhead`.

        Raises:
            TrainingError: There are more rows of embeddings than can travel; it was reported
                nowhere.
        """

    def model_of(self, reply: pb.ReportGradientReply) -> PulledModel | None:
        """The version that came with a reply, if one did; valid until the next call."""

    @property
    def ahead(self) -> RowsAhead | None:
        """The rows that came with the last reply, where they were wanted."""

    @property
    def room(self) -> Mapping[str, Array]:
        """Memory of the session from which gradients are handed over, by name.

        What is written there once a report has been answered need not be copied for the next one.
        Empty where there is none (yet).
        """


class MasterExchange:
    """The master has everything."""

    def __init__(self, client: MasterClient, *, narrows: bool = False) -> None:
        """Take the connection to it.

        Args:
            client: The connection.
            narrows: Round float32 gradients to bfloat16 where they are not handed over in memory.
        """
        self._client = client
        self._narrows = narrows
        self._session: Session | None = None
        self._memory = RowsMemory()
        self._memory_ahead = RowsMemory()
        self._ahead: RowsAhead | None = None

    def begin(self, session: Session) -> None:
        """See `Exchange`."""
        self._session, self._memory = session, RowsMemory()
        self._memory_ahead, self._ahead = RowsMemory(), None

    def get_model(self, have_version: int | None, version: int | None = None) -> PulledModel | None:
        """See `Exchange`."""
        return self._client.get_model(self._current, have_version, version)

    def get_frozen(self) -> Mapping[str, Array]:
        """See `Exchange`."""
        return self._client.get_frozen(self._current)

    def report_gradient(
        self,
        header: pb.GradientHeader,
        gradients: Mapping[str, Array],
        state: Mapping[str, Array],
        rows: RowGradients = NO_ROWS,
        wanted: Sequence[WantedIds] = (),
    ) -> pb.ReportGradientReply:
        """See `Exchange`."""
        narrows = self._narrows and not self._current.shares_memory
        is_shared = self._current.shares_memory
        num_retries = self._client.num_retries
        with (
            self._memory.behind(header, rows, is_shared=is_shared, narrows=narrows),
            self._wanting(header, wanted if is_shared else ()) as memory,
        ):
            reply = self._client.report_gradient(
                self._current, header, gradients, state, narrows=narrows
            )
            if memory is not None and self._client.num_retries != num_retries:
                # The try that was given up may still lay rows there, be it of another version.
                self._memory_ahead = RowsMemory()
            elif memory is not None and reply.HasField("rows_version"):
                laid = rows_laid(wanted, memory)
                self._ahead = RowsAhead(reply.rows_version, wanted, laid)
        return reply

    def model_of(self, reply: pb.ReportGradientReply) -> PulledModel | None:
        """See `Exchange`."""
        return self._client.model_of(reply)

    @property
    def ahead(self) -> RowsAhead | None:
        """See `Exchange`."""
        return self._ahead

    @property
    def room(self) -> Mapping[str, Array]:
        """See `Exchange`."""
        return self._client.room

    @contextmanager
    def _wanting(
        self, header: pb.GradientHeader, wanted: Sequence[WantedIds]
    ) -> Iterator[SharedMemory | None]:
        """Memory for rows that are wanted with the reply; None where none are."""
        self._ahead = None
        if not wanted:
            yield None
            return
        with self._memory_ahead.lent(size_of(wanted)) as memory:
            if memory is not None:
                header.rows_ahead.CopyFrom(ahead_to_proto(wanted, memory))
            yield memory

    @property
    def _current(self) -> Session:
        assert self._session is not None, "a session has begun"
        return self._session


class PulledParameters:
    """Others have them: versions are pulled from there, gradients are pushed there.

    With an updater the worker takes steps of its own between two pulls.
    """

    def __init__(
        self,
        exchange: Exchange,
        model: Model,
        updater: Updater | None,
        get_model_steps: int,
        meter: StepMeter | None = None,
        rows: RowsOfVersions | None = None,
    ) -> None:
        """Keep the parts.

        Args:
            exchange: Carries versions and gradients.
            model: The local model, whose parameters are filled by pulls.
            updater: Applies own gradients between pulls; needed where `get_model_steps` > 1.
            get_model_steps: Pull every so many accepted steps.
            meter: Told how long pulls and pushes took, and how large they were.
            rows: What the model reads rows from; None where it has no tables.
        """
        self._exchange = exchange
        self._model = model
        self._updater = updater
        self._get_model_steps = get_model_steps
        self._meter = meter or NoMeter()
        self._rows = rows or NoRows()
        self._room: Mapping[str, Array] = NO_ROOM
        self._sequence = 0
        self._version: int | None = None
        self._state: Tensors = {}
        self._has_frozen = False
        self._steps_since_pull = 0
        self._is_stale = True

    @property
    def version(self) -> int:
        assert self._version is not None, "the model has been filled"
        return self._version

    def begin(self, session: Session) -> None:
        """Pull anew before the next step: versions of a restarted master mean other values."""
        self._exchange.begin(session)
        # The master of a session before may still read what was reported to it.
        self._lay_gradients_in(NO_ROOM)
        self._rows.begin(session)
        self._sequence = 0
        self._version, self._is_stale = None, True
        self._has_frozen = not self._model.frozen_names

    def doubt_version(self) -> None:
        """Ask before the next step; local updates keep to their number of steps."""
        if self._updater is None:
            self._is_stale = True

    def fill(self) -> None:
        """Pull when the last answer, or the number of own steps, asks for it."""
        if self._is_stale or self._steps_since_pull >= self._get_model_steps:
            self._pull(None)
            self._is_stale = False
        elif self._updater is None and self._state:
            # A further gradient on one version starts from that version's state: a group does not
            # depend on how its minibatches were spread over workers. With local updates the state
            # goes its own way until the next pull, as the parameters do.
            self._model.load(None, self._state)
        self._rows.read_at(None, self.version)

    def fill_version(self, version: int | None) -> None:
        try:
            self._pull(version)
        except VersionGoneError as error:
            raise LeaseLostError from error
        self._rows.read_at(version, self.version)
        self._is_stale = True

    def contribute(self, contribution: Contribution) -> Outcome:
        result = contribution.result
        header = self._header(contribution, self._sequence + 1)
        began_s = time.perf_counter()
        reply = self._exchange.report_gradient(
            header, result.gradients, result.state, result.rows, contribution.ahead
        )
        self._sequence += 1
        self._lay_gradients_in(self._exchange.room)
        self._meter.pushed(
            time.perf_counter() - began_s,
            _size_bytes(result.gradients)
            + _size_bytes(result.state)
            + sum(each.values.nbytes for each in result.rows.values()),
        )
        verdicts = pb.ReportGradientReply
        if reply.verdict not in (verdicts.VERDICT_ACCEPTED, verdicts.VERDICT_STALE):
            self._is_stale = True
            raise LeaseLostError
        is_accepted = bool(reply.verdict == verdicts.VERDICT_ACCEPTED)
        if is_accepted:
            self._go_on_with(result, reply.model_version)
        else:
            self._is_stale = True
        pulled = self._exchange.model_of(reply)
        if pulled is not None:
            self._load(pulled)
            self._is_stale = False
            self._steps_since_pull = 0
        return Outcome(is_accepted, reply.model_version)

    def idle(self, seconds: float, stopping: threading.Event) -> None:
        """Wait: nobody is needed for what others do."""
        stopping.wait(seconds)

    def _lay_gradients_in(self, room: Mapping[str, Array]) -> None:
        if room is not self._room:
            self._room = room
            self._model.lay_gradients_in(room)

    def _header(self, contribution: Contribution, sequence: int) -> pb.GradientHeader:
        task, result = contribution.task, contribution.result
        return pb.GradientHeader(
            sequence=sequence,
            task_id=task.task_id,
            attempt=task.attempt,
            start=contribution.start,
            end=contribution.end,
            model_version=self.version,
            loss=result.loss,
            step_s=contribution.step_s,
            wants_model=self._steps_since_pull + 1 >= self._get_model_steps,
            metrics=metrics_to_proto([(each.name, each.values) for each in result.metrics]),
            oddity=contribution.oddity or "",
        )

    def _go_on_with(self, result: StepResult, newest_version: int) -> None:
        """Step by itself where that is wanted, else see whether there is another version."""
        self._steps_since_pull += 1
        if self._updater is not None:
            self._updater.apply(result.gradients)
        elif newest_version == self._version:
            # The group is still open: the next minibatch is computed on the same version.
            self._steps_since_pull = 0
        else:
            self._is_stale = True

    def _pull(self, version: int | None) -> None:
        """Have a version, the newest for None; transfers nothing if it is here already."""
        have_version = None if self._steps_since_pull else self._version
        began_s = time.perf_counter()
        if not self._has_frozen:
            frozen = self._exchange.get_frozen()
            self._model.load_frozen(frozen)
            self._meter.received(_size_bytes(frozen))
            self._has_frozen = True
        pulled = self._exchange.get_model(have_version, version)
        self._meter.pulled(time.perf_counter() - began_s)
        if pulled is not None:
            self._load(pulled)
        elif self._state:
            # A gradient that did not count has left its own, as of batch norm, behind.
            self._model.load(None, self._state)
        self._steps_since_pull = 0

    def _load(self, pulled: PulledModel) -> None:
        self._model.load(pulled.parameters, pulled.state)
        self._meter.received(_size_bytes(pulled.parameters) + _size_bytes(pulled.state))
        self._version = pulled.version
        # The pulled arrays are not ours to keep.
        self._state = {name: array.copy() for name, array in pulled.state.items()}


def _size_bytes(tensors: Mapping[str, Array]) -> int:
    return sum(array.nbytes for array in tensors.values())
