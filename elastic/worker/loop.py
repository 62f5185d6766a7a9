"""A worker's life: register, lease, compute, report, until the master says it is done.

And what it is made of, from the JobSpec.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from elastic.data import open_reader
from elastic.data.base import read_whole
from elastic.data.predictions import SystemFiles
from elastic.errors import ModelFaultError, RpcError, SupersededError
from elastic.frameworks import load_framework
from elastic.frameworks.base import MetricState
from elastic.policy.minibatches import TWICE, FaultSearch
from elastic.policy.replicas import ReplicaId
from elastic.policy.tasks.records import Task, TaskKind
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.client import MasterClient, Session, SessionLostError
from elastic.rpc.wire import metrics_to_proto
from elastic.spec.job import JobSpec
from elastic.spec.model_def import ModelDef, load_model_def
from elastic.spec.platforms import JobKind, Mode
from elastic.worker.batches import (
    BatchStream,
    Finished,
    ForeseenBatch,
    Leases,
    LoadedBatch,
    Minibatches,
    Wait,
)
from elastic.worker.rows import ForeseenRows, MasterRows, Rows, RowsOnServers, RowsUsedAgain
from elastic.worker.servers import ServerExchange
from elastic.worker.step import (
    CONTROL_FLOW,
    BadRecordError,
    Failure,
    NotFiniteError,
    Outputs,
    Predicted,
    Predictor,
    Step,
    Trainer,
    open_processor,
    twice,
)
from elastic.worker.strategy import (
    Exchange,
    LeaseLostError,
    MasterExchange,
    PulledParameters,
    StepMeter,
    Strategy,
)

log = logging.getLogger(__name__)

OUTCOMES: Final = pb.ReportTaskResultRequest
FAREWELL_S: Final = 1.0
"""A heartbeat under way may end before the connection is closed under it."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a worker works with, made once the master has named the sample.

    Attributes:
        outputs: Where predictions go; only who predicts has any.
    """

    strategy: Strategy
    trainer: Trainer
    stream: BatchStream
    outputs: Outputs | None = None


class Worker:
    """One launch of one worker index."""

    def __init__(
        self,
        client: MasterClient,
        index: int,
        launch: int,
        build: Callable[[Session], Parts],
        stopping: threading.Event,
    ) -> None:
        """Keep the parts; `run` does the work.

        Args:
            client: Connection to the master.
            index: Which worker this is.
            launch: Which life of it.
            build: Makes the parts from the sample task, after the first registration.
            stopping: Set from outside (SIGTERM) to end after the running minibatch.
        """
        self._client = client
        self._index = index
        self._launch = launch
        self._build = build
        self._stopping = stopping
        self._session: Session | None = None
        self._is_at_work = False
        self._has_had_task = False

    @property
    def is_at_work(self) -> bool:
        """Whether the model is built and tasks are asked for: from then on there may be a lease."""
        return self._is_at_work

    def run(self) -> None:
        """Work until the master is finished or `stopping` is set.

        Raises:
            SupersededError: A newer launch of this worker has taken over.
            RpcError: The master stayed away for too long.
        """
        session = self._register()
        parts = self._build(session)
        parts.strategy.begin(session)
        log.info("the model is built: asking for tasks")
        heart = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        heart.start()
        self._is_at_work = True
        leases = Leases(self._client, parts.stream)
        try:
            self._work(parts, leases)
            is_asked = self._stopping.is_set()
            log.info("leaving, as asked" if is_asked else "finished: the job has no more tasks")
        finally:
            self._stopping.set()
            leases.drop_next()
            heart.join(FAREWELL_S)

    def _work(self, parts: Parts, leases: Leases) -> None:
        while not self._stopping.is_set():
            try:
                if not self._work_once(parts, leases):
                    return
            except SessionLostError:
                log.info("the master has forgotten this session: registering again")
                leases.drop_next()
                parts.strategy.begin(self._register())
            except LeaseLostError:
                log.info("the lease of the task was lost: getting another")
                # Most likely lost as well; if not, asking for another gives it back.
                leases.drop_next()

    def _register(self) -> Session:
        self._session = self._client.register(
            pb.RegisterRequest(
                worker_index=self._index,
                launch=self._launch,
                host=socket.gethostname(),
                pid=os.getpid(),
            )
        )
        log.info("registered as worker %d, launch %d", self._index, self._launch)
        return self._session

    def _beat(self) -> None:
        """Say every few seconds that this process lives."""
        while not self._stopping.wait(self._current.heartbeat_interval_s):
            try:
                self._client.heartbeat(self._current.key)
            except (RpcError, SessionLostError, SupersededError) as error:
                # The main thread meets the same on its next call, and acts on it.
                log.debug("heartbeat: %s", error)

    @property
    def _current(self) -> Session:
        assert self._session is not None
        return self._session

    def _work_once(self, parts: Parts, leases: Leases) -> bool:
        """Do one task; False when there is nothing left to do, ever."""
        was_asked_ahead = leases.following is not None
        task = leases.take(self._current.key)
        if isinstance(task, Finished):
            return False
        if isinstance(task, Wait):
            parts.strategy.idle(task.seconds, self._stopping)
            return True
        self._say_task(task)
        if task.kind is TaskKind.PREDICTION:
            self._predict(task, parts)
            return True
        runs_at = self._search(task, parts) if task.is_search else 0
        if runs_at is None:
            return True
        if task.kind is TaskKind.TRAINING and not was_asked_ahead:
            parts.strategy.doubt_version()
        with leases.open(task) as batches:
            self._compute(task, batches, parts, leases, runs_at)
        following = leases.following
        if self._stopping.is_set() and following is not None:
            # Before it is dropped, which waits for what is being read.
            records = following.records
            self._report(following, OUTCOMES.OUTCOME_RELEASED, records.start, records.end)
        return True

    def _say_task(self, task: Task) -> None:
        """Tell the first one to everybody, and each to who looks for an error."""
        level = logging.DEBUG if self._has_had_task else logging.INFO
        first = "" if self._has_had_task else "first "
        self._has_had_task = True
        log.log(
            level, "%stask %d: %s, %s",
            first, task.task_id, task.kind, task.tell(task.records.start, task.records.end),
        )  # fmt: skip

    def _compute(
        self, task: Task, batches: Minibatches, parts: Parts, leases: Leases, runs_at: int = 0
    ) -> None:
        work = self._train if task.kind is TaskKind.TRAINING else self._evaluate
        work(task, batches, parts, leases, runs_at)

    # -- training ------------------------------------------------------------------------------

    def _train(
        self, task: Task, batches: Minibatches, parts: Parts, leases: Leases, runs_at: int
    ) -> None:
        for loaded in batches:
            began_s, failure = time.perf_counter(), None
            try:
                batch = loaded.result()
                if batch.num_examples == 0:
                    self._read_ahead(leases)
                    self._report(task, OUTCOMES.OUTCOME_EMPTY, loaded.start, loaded.end)
                else:
                    self._train_batch(task, loaded, leases, parts, began_s)
            except CONTROL_FLOW:
                raise
            except (NotFiniteError, ModelFaultError) as error:
                self._report(task, OUTCOMES.OUTCOME_HOPELESS, loaded.start, loaded.end, str(error))
                # The job has failed.
                leases.drop_next()
                return
            except Exception as error:  # noqa: BLE001 - the user's code may raise anything
                failure = Failure.of(error)
            if failure is not None:
                self._failed(task, loaded, failure, parts, leases, runs_at)
                return
            if self._stopping.is_set() and loaded.end < task.records.end:
                self._report(task, OUTCOMES.OUTCOME_RELEASED, loaded.end, task.records.end)
                return

    def _train_batch(
        self,
        task: Task,
        loaded: LoadedBatch,
        leases: Leases,
        parts: Parts,
        began_s: float,
    ) -> None:
        while True:
            contribution = parts.trainer.compute(task, loaded, began_s)
            # While the gradient becomes a part of an update, nothing else is to do here.
            self._read_ahead(leases)
            following = leases.next_batch
            if isinstance(following, ForeseenBatch):
                contribution = replace(contribution, ahead=following.wanted)
            if parts.strategy.contribute(contribution).is_accepted:
                return
            began_s = time.perf_counter()

    def _read_ahead(self, leases: Leases) -> None:
        """To be called before this process waits for the master; nothing follows for who leaves."""
        if not self._stopping.is_set():
            leases.read_ahead(self._current.key)

    # -- what fails ----------------------------------------------------------------------------

    def _failed(
        self,
        task: Task,
        loaded: LoadedBatch,
        failure: Failure,
        parts: Parts,
        leases: Leases,
        runs_at: int,
    ) -> None:
        """Report a minibatch that failed; a record that failed alone may not be to blame."""
        start, end = loaded.start, loaded.end
        if end - start > 1 or task.copies > 1:
            self._report_failed(task, start, end, failure, runs_at)
            return
        # The sums of an evaluation are the same whatever the minibatches.
        is_evaluated = task.kind is TaskKind.EVALUATION
        if is_evaluated or task.is_left_over(start, parts.stream.size_of(task)):
            of_two = twice(task, start)
            with leases.open_instead(of_two) as batches:
                self._compute(of_two, batches, parts, leases)
            return
        leases.read_no_further()
        failure_of_two = parts.trainer.try_twice(task, start, parts.stream)
        runs_at = TWICE if failure_of_two is None else 0
        self._report_failed(task, start, end, failure_of_two or failure, runs_at)

    def _search(self, task: Task, parts: Parts) -> int | None:
        """Look for the record that makes a minibatch fail, and report it.

        Returns:
            The size at which all parts run, so that the whole is worth one more try; None if there
            is nothing left to do here.
        """
        search = FaultSearch(task.records.start, task.records.end)
        while (part := search.next_part()) is not None:
            failure = parts.trainer.try_part(task, part, parts.stream)
            search.tell(*part, has_failed=failure is not None)
            if failure is not None and search.culprit is not None:
                self._report_failed(task, *part, failure)
                return None
            self._report(task, OUTCOMES.OUTCOME_SEARCHING, *part)
            if self._stopping.is_set():
                records = task.records
                self._report(task, OUTCOMES.OUTCOME_RELEASED, records.start, records.end)
                return None
        return search.runs_at

    # -- evaluation ----------------------------------------------------------------------------

    def _evaluate(
        self, task: Task, batches: Minibatches, parts: Parts, leases: Leases, runs_at: int
    ) -> None:
        """Report each minibatch by itself: what is reported is progress, or the worker hangs."""
        parts.strategy.fill_version(task.model_version)
        for loaded in batches:
            began_s, failure = time.perf_counter(), None
            try:
                batch = loaded.result()
                metrics = parts.trainer.metrics(task, batch) if batch.num_examples else []
                self._read_ahead(leases)
            except CONTROL_FLOW:
                raise
            except Exception as error:  # noqa: BLE001 - the user's code may raise anything
                failure = Failure.of(error)
            if failure is not None:
                self._failed(task, loaded, failure, parts, leases, runs_at)
                return
            self._report_evaluated(task, loaded, metrics, time.perf_counter() - began_s)
            if self._stopping.is_set() and loaded.end < task.records.end:
                self._report(task, OUTCOMES.OUTCOME_RELEASED, loaded.end, task.records.end)
                return

    def _report_evaluated(
        self, task: Task, loaded: LoadedBatch, metrics: Sequence[MetricState], step_s: float
    ) -> None:
        request = self._request(task, OUTCOMES.OUTCOME_EVALUATED, loaded.start, loaded.end)
        request.metrics.extend(metrics_to_proto([(m.name, m.values) for m in metrics]))
        request.step_s = step_s
        self._send(request)

    # -- prediction ----------------------------------------------------------------------------

    def _predict(self, task: Task, parts: Parts) -> None:
        """Have a task predicted and report it whole; each minibatch is told as progress."""
        assert parts.outputs is not None, "the master and its workers have one specification"
        predictor = Predictor(parts.stream, parts.trainer, parts.outputs)
        parts.strategy.fill_version(task.model_version)
        start, end = task.records.start, task.records.end
        try:
            with closing(predictor.run(task)) as steps:
                for step in steps:
                    self._tell_step(task, step)
                    if self._stopping.is_set() and step.end < end:
                        self._report(task, OUTCOMES.OUTCOME_RELEASED, start, end)
                        return
        except BadRecordError as bad:
            self._report_failed(task, bad.index, bad.index + 1, Failure.of(bad.error))
            return
        request = self._request(task, OUTCOMES.OUTCOME_PREDICTED, start, end)
        request.num_predictions = predictor.finish(task)
        self._send(request)

    def _tell_step(self, task: Task, step: Step) -> None:
        if isinstance(step, Predicted):
            request = self._request(task, OUTCOMES.OUTCOME_PREDICTING, step.start, step.end)
            request.step_s = step.step_s
        else:
            request = self._request(task, OUTCOMES.OUTCOME_SEARCHING, step.start, step.end)
            request.message, request.runs_at = step.failure.message, step.runs_at
        self._send(request)

    # -- reports -------------------------------------------------------------------------------

    def _report_failed(
        self, task: Task, start: int, end: int, failure: Failure, runs_at: int = 0
    ) -> None:
        log.warning("%s failed:\n%s", task.tell(start, end), failure.trace)
        request = self._request(task, OUTCOMES.OUTCOME_FAILED, start, end)
        request.message, request.traceback = failure.message, failure.trace
        request.runs_at = runs_at
        self._send(request)

    def _report(self, task: Task, outcome: int, start: int, end: int, message: str = "") -> None:
        request = self._request(task, outcome, start, end)
        request.message = message
        self._send(request)

    def _send(self, request: pb.ReportTaskResultRequest) -> None:
        if not self._client.report_result(request):
            raise LeaseLostError

    def _request(
        self, task: Task, outcome: int, start: int, end: int
    ) -> pb.ReportTaskResultRequest:
        return pb.ReportTaskResultRequest(
            session=self._current.key,
            task_id=task.task_id,
            attempt=task.attempt,
            outcome=outcome,  # type: ignore[arg-type]
            start=start,
            end=end,
        )


# Makes a worker's model and readers from the JobSpec.


def assemble(
    spec: JobSpec, client: MasterClient, replica: ReplicaId, meter: StepMeter | None = None
) -> Callable[[Session], Parts]:
    """Import the model_def now; build the rest once the master has named the sample.

    Args:
        spec: Of the job.
        client: Connection to the master.
        replica: Which one this is.
        meter: Told how long the parts of each step take.

    Raises:
        UserError: The model_def cannot be used here.
    """
    model_def = load_model_def(spec.model_zoo, spec.model_def, spec.symbol_names())
    framework = load_framework(model_def.framework)
    readers = {
        kind: open_reader(
            origin,
            spec.records_per_range,
            spec.data_reader_params,
            model_def.custom_data_reader,
            beside=True,
        )
        for kind, origin in (
            (TaskKind.TRAINING, spec.training_data_dir),
            (TaskKind.EVALUATION, spec.evaluation_data_dir),
            (TaskKind.PREDICTION, spec.prediction_data_dir),
        )
        if origin
    }

    def build(session: Session) -> Parts:
        sample = session.sample
        by_columns = model_def.takes_columns
        records = read_whole(readers[sample.kind], sample, by_columns=by_columns)
        batch = framework.make_batch(model_def, records, Mode(sample.kind))
        model = framework.build_model(
            model_def, spec.model_params, batch, spec.seed, spec.embedding_threshold
        )
        local = spec.get_model_steps > 1
        updater = framework.build_updater(model_def, model, session.total_steps) if local else None
        exchange = _exchange(spec, client)
        rows: Rows | None = None
        foreseen: ForeseenRows | None = None
        if model.tables:
            rows = _rows(spec, client, exchange)
            if spec.embedding_staleness:
                rows = RowsUsedAgain(rows, model.tables, spec.embedding_staleness)
            elif _may_come_ahead(spec, session):
                rows = foreseen = ForeseenRows(rows, exchange)
            model.read_rows_from(rows)
        strategy = PulledParameters(exchange, model, updater, spec.get_model_steps, meter, rows)
        trainer = Trainer(strategy, model, spec.seed, meter, spec.train_metrics, foreseen)
        foresee = None if foreseen is None else foreseen.wanted
        stream = BatchStream(framework, model_def, spec.minibatch_size, readers, foresee)
        return Parts(strategy, trainer, stream, _outputs(spec, model_def, session, replica))

    return build


def _exchange(spec: JobSpec, client: MasterClient) -> Exchange:
    narrows = spec.wire_dtype == "bfloat16"
    if not spec.num_ps:
        return MasterExchange(client, narrows=narrows)
    return ServerExchange(
        client,
        is_synchronous=not spec.is_async,
        keeps_rows=spec.embedding_store == "ps",
        narrows=narrows,
    )


def _rows(spec: JobSpec, client: MasterClient, exchange: Exchange) -> Rows:
    if spec.embedding_store == "ps" and isinstance(exchange, ServerExchange):
        return RowsOnServers(exchange)
    return MasterRows(client)


def _may_come_ahead(spec: JobSpec, session: Session) -> bool:
    """Whether rows can come with the version that a minibatch is computed on.

    Those who have both have to be on this machine. And where updates do not wait for each other, a
    row that is read later lacks less.
    """
    if spec.is_async or spec.get_model_steps > 1:
        return False
    if not session.servers:
        return session.shares_memory
    return spec.embedding_store == "ps" and all(each.shares_memory for each in session.servers)


def _outputs(spec: JobSpec, model_def: ModelDef, session: Session, replica: ReplicaId) -> Outputs:
    is_predicting = spec.kind is JobKind.PREDICT
    folder = None if session.prediction_dir is None else Path(session.prediction_dir)
    return Outputs(
        folder,
        spec.prediction_format,
        open_processor(model_def, replica.index) if is_predicting else None,
        f"{replica.name}-{replica.launch}",
        SystemFiles(),
    )
