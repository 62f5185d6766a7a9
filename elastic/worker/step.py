"""One minibatch computed: its gradient, its metrics or its predictions, and why it fails."""

import inspect
import math
import time
import traceback
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from elastic.data.predictions import Files, Predictions, encode, first_rows, part_name, write_whole
from elastic.errors import (
    ElasticError,
    JobSpecError,
    ModelDefError,
    RpcError,
    SupersededError,
    legible,
)
from elastic.frameworks.base import Array, Batch, MetricState, Model, StepResult
from elastic.policy.minibatches import TWICE, FaultSearch, Part
from elastic.policy.tasks.records import Task, TaskKind
from elastic.rpc.client import SessionLostError
from elastic.spec.model_def import ModelDef, error_text
from elastic.worker.batches import BatchStream, FirstLook, LoadedBatch
from elastic.worker.rows import ForeseenRows
from elastic.worker.strategy import Contribution, LeaseLostError, NoMeter, StepMeter, Strategy

CONTROL_FLOW: Final = (SessionLostError, SupersededError, LeaseLostError, RpcError)
"""What the master's answers raise, and no code of the user's."""
MAX_TRACEBACK: Final = 8000


class NotFiniteError(Exception):
    """The loss of a minibatch, or a gradient, is NaN or infinite."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What the user's code raised, as text.

    The exception itself holds on to the frames it came through, and so to the memory of a step.
    """

    message: str
    trace: str

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        """Tell an exception with the user's line; ours name that already."""
        is_ours = isinstance(error, ElasticError)
        message = str(error) if is_ours else legible(error_text(error))
        trace = legible("".join(traceback.format_exception(error)))
        return cls(message, trace[-MAX_TRACEBACK:])


class Trainer:
    """Computes with the local model, on the parameters that the strategy has filled it with."""

    def __init__(
        self,
        strategy: Strategy,
        model: Model,
        seed: int,
        meter: StepMeter | None = None,
        with_metrics: bool = False,
        foreseen: ForeseenRows | None = None,
    ) -> None:
        """Keep the parts.

        Args:
            strategy: Fills the model.
            model: The local model.
            seed: The job's seed, mixed into every minibatch's own.
            meter: Told how long each step took.
            with_metrics: Whether the user's metrics are computed of training minibatches.
            foreseen: Learns which rows minibatches ask for; None where nobody does.
        """
        self._foreseen = foreseen
        self._strategy = strategy
        self._model = model
        self._seed = seed
        self._meter = meter or NoMeter()
        self._with_metrics = with_metrics
        self._first_look = FirstLook()

    def compute(self, task: Task, loaded: LoadedBatch, began_s: float) -> Contribution:
        """Compute the gradient of one minibatch.

        Args:
            task: The task that the minibatch is of.
            loaded: The minibatch.
            began_s: `time.perf_counter` when the worker turned to it: reading it is part of the
                step that the master learns its patience from.

        Raises:
            NotFiniteError: The loss or a gradient is NaN or infinite.
        """
        self._strategy.fill()
        seed = minibatch_seed(self._seed, task, loaded.start)
        batch = loaded.result()
        with nullcontext() if self._foreseen is None else self._foreseen.computing(batch):
            if self._with_metrics:
                result = self._model.gradients(batch, seed, with_metrics=True)
            else:
                result = self._model.gradients(batch, seed)
        what = _not_finite(result)
        if what is not None:
            raise NotFiniteError(
                f"{what} at step {self._strategy.version + 1} on task {task.task_id} "
                f"({task.tell(loaded.start, loaded.end)}, epoch {task.epoch}): {_advice(task)}"
            )
        step_s = time.perf_counter() - began_s
        self._meter.computed(step_s)
        if task.copies > 1:
            metrics = [_of_one_copy(each, task.copies) for each in result.metrics]
            return Contribution(
                task, loaded.start, loaded.end, replace(result, metrics=metrics), step_s
            )
        oddity = self._first_look.at(task, loaded)
        return Contribution(task, loaded.start, loaded.end, result, step_s, oddity)

    def metrics(self, task: Task, batch: Batch) -> list[MetricState]:
        """Loss and metrics of a minibatch on the version that was filled in."""
        return [_of_one_copy(each, task.copies) for each in self._model.metrics(batch)]

    def predict(self, batch: Batch) -> Any:
        """What the model gives for a minibatch on the version that was filled in."""
        return self._model.predict(batch)

    def try_part(self, task: Task, part: Part, stream: BatchStream) -> Failure | None:
        """Compute some records of a task by themselves, and keep nothing of it; None if they run.

        One that fails alone is computed beside itself.

        Raises:
            LeaseLostError: The version to evaluate is gone.
        """
        start, end = part
        failure = self._try(task.part(start, end), stream)
        if failure is None or end - start > 1:
            return failure
        return self.try_twice(task, start, stream)

    def try_twice(self, task: Task, start: int, stream: BatchStream) -> Failure | None:
        """The same of one record, of which the minibatch holds two."""
        return self._try(twice(task, start), stream)

    def _try(self, task: Task, stream: BatchStream) -> Failure | None:
        try:
            with closing(stream.open(task)) as batches:
                for loaded in batches:
                    self._try_out(task, loaded)
        except CONTROL_FLOW:
            raise
        except Exception as error:  # noqa: BLE001 - the user's code may raise anything
            return Failure.of(error)
        return None

    def _try_out(self, task: Task, loaded: LoadedBatch) -> None:
        batch = loaded.result()
        is_training = task.kind is TaskKind.TRAINING
        # The next step begins with the version's own state again.
        self._strategy.fill_version(None if is_training else task.model_version)
        if batch.num_examples == 0:
            return
        if is_training:
            self._model.gradients(batch, minibatch_seed(self._seed, task, loaded.start))
        else:
            self._model.metrics(batch)


def twice(task: Task, start: int) -> Task:
    """A record of a task, as a minibatch that holds it `TWICE`."""
    return replace(task.part(start, start + 1), copies=TWICE)


def _advice(task: Task) -> str:
    """What to do about a minibatch whose loss is not finite."""
    if task.copies > 1:
        # Others of its minibatch were skipped, and the model bears no single one.
        return (
            f"it was computed {task.copies} times in one minibatch, since the model failed on it "
            "alone, and may be good: have the model bear minibatches of one record, or of equal "
            "ones"
        )
    return "lower the learning rate, clip gradients, or look at the records"


def _of_one_copy(state: MetricState, copies: int) -> MetricState:
    """Sums over some records, of those over each of them so many times."""
    if copies == 1:
        return state
    values = tuple((value / copies).astype(value.dtype) for value in state.values)
    return replace(state, values=values)


def minibatch_seed(seed: int, task: Task, start: int) -> int:
    """A minibatch's own random seed, the same wherever and however often it is computed."""
    text = f"{seed}/{task.epoch}/{task.shard.name}/{start}"
    return zlib.crc32(text.encode()) & 0x7FFFFFFF


def _not_finite(result: StepResult) -> str | None:
    """Say what would poison the parameters, or None where all is finite."""
    if not math.isfinite(result.loss):
        return f"loss is {result.loss}"
    with np.errstate(all="ignore"):
        for name, gradient in () if result.are_finite else result.gradients.items():
            if not _is_finite(gradient):
                return f"loss is {result.loss:g}, but the gradient of {name!r} is not finite"
        for name, rows in result.rows.items():
            if not _is_finite(rows.values):
                return (
                    f"loss is {result.loss:g}, but the gradient of rows of {name!r} is not finite"
                )
    return None


def _is_finite(array: Array) -> bool:
    flat = array.reshape(-1)
    if flat.dtype not in (np.float32, np.float64):
        flat = flat.astype(np.float32)
    # One pass without a temporary; it overflows early, so only a finite result is trusted.
    if math.isfinite(np.dot(flat, flat)):
        return True
    return bool(np.isfinite(flat).all())


# The predictions of one task: made a minibatch at a time, and record by record where one fails.
#
# They go to the user's processor, to a file for each task, or to both.


Process = Callable[[Predictions], None]


@dataclass(frozen=True, slots=True)
class PredictedRecords:
    """Which records the predictions of one call of a processor are of.

    Attributes:
        shard: The name of their shard, such as the path of a file.
        indices: (n,) int64, their indices in it; no two records of a job share both.
    """

    shard: str
    indices: NDArray[np.int64]


class Outputs:
    """Takes the predictions of one task at a time."""

    def __init__(
        self,
        folder: Path | None,
        form: str,
        process: Process | None,
        writer: str,
        files: Files,
    ) -> None:
        """Keep the arguments.

        Args:
            folder: Where the files go; None for no files.
            form: Of the files, `csv` or `parquet`.
            process: The user's, if there is one.
            writer: Unique among those that may write the same file at one time.
            files: The file system.
        """
        self._folder = folder
        self._form = form
        self._process = process
        self._writer = writer
        self._files = files
        self._parts: list[Predictions] = []
        self._num_predictions = 0

    def begin(self) -> None:
        """Forget what has been taken of a task that was not finished."""
        self._parts = []
        self._num_predictions = 0

    def take(self, predictions: Predictions) -> None:
        """Take those of some records of the task, in order."""
        if self._process is not None:
            self._process(predictions)
        if self._folder is not None:
            self._parts.append(predictions)
        self._num_predictions += len(predictions.indices)

    def finish(self, task: Task) -> int:
        """Have all of the task where it belongs; returns the number of predictions.

        A task of which there is none has no file.

        Raises:
            JobSpecError: The file cannot be written.
        """
        if self._parts and self._folder is not None:
            path = self._folder / part_name(task.records, self._form)
            content = encode(self._parts, self._form)
            try:
                write_whole(self._files, path, content, self._writer)
            except OSError as error:
                raise JobSpecError(
                    f"--prediction_outputs={self._folder} cannot be written by a worker: "
                    f"{error.strerror or error}: it must be one folder for master and workers, "
                    "with room in it"
                ) from error
        num_predictions = self._num_predictions
        self.begin()
        return num_predictions


def open_processor(model_def: ModelDef, worker_id: int) -> Process | None:
    """Make the user's processor, if the module has one.

    Raises:
        ModelDefError: It cannot be made, or has no `process` that can be called.
    """
    make = model_def.prediction_outputs_processor
    if make is None:
        return None
    try:
        processor: Any = make()
    except (Exception, SystemExit) as error:
        raise ModelDefError(
            f"making the PredictionOutputsProcessor failed: {type(error).__name__}: {error}"
        ) from error
    process = getattr(processor, "process", None)
    if not callable(process):
        raise ModelDefError(
            f"{type(processor).__name__} has no process: define process(self, predictions, "
            "worker_id) or process(self, predictions, worker_id, records)"
        )
    takes_records = _takes_records(process)

    def call(predictions: Predictions) -> None:
        records = PredictedRecords(predictions.shard, predictions.indices)
        if takes_records == _BY_POSITION:
            process(predictions.outputs, worker_id, records)
        elif takes_records == _BY_NAME:
            process(predictions.outputs, worker_id, records=records)
        else:
            process(predictions.outputs, worker_id)

    return call


_BY_POSITION, _BY_NAME = "by position", "by name"


def _takes_records(process: Callable[..., Any]) -> str | None:
    """How a processor takes the records, or None where it does not want them."""
    kinds = inspect.Parameter
    try:
        parameters = list(inspect.signature(process).parameters.values())
    except (TypeError, ValueError):
        # Some functions written in C do not tell.
        return None
    positional = [
        p for p in parameters if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
    ]
    if len(positional) >= 3 or any(p.kind is kinds.VAR_POSITIONAL for p in parameters):
        return _BY_POSITION
    if any(p.name == "records" and p.kind is kinds.KEYWORD_ONLY for p in parameters):
        return _BY_NAME
    return None


class BadRecordError(Exception):
    """The user's code fails on one record.

    Attributes:
        index: Which of the task's shard.
        error: What it raised.
    """

    def __init__(self, index: int, error: Exception | SystemExit) -> None:
        super().__init__(f"record {index}: {error}")
        self.index = index
        self.error = error


class _FilteredError(ModelDefError):
    """There are not as many examples as records."""


@dataclass(frozen=True, slots=True)
class MinibatchFailed:
    """Records `[start, end)` of a task failed together, and are tried again.

    Attributes:
        is_filtered: No failure, but `dataset_fn` left records out: which, is told by parts.
        runs_at: The largest size that ran below every one that failed, where the parts of it have
            been taken care of instead; 0 before.
    """

    start: int
    end: int
    failure: Failure
    is_filtered: bool = False
    runs_at: int = 0


@dataclass(frozen=True, slots=True)
class Predicted:
    """Records `[start, end)` of a task have been taken care of, which took `step_s`."""

    start: int
    end: int
    step_s: float


Step: TypeAlias = Predicted | MinibatchFailed


class Predictor:
    """Works through tasks; what fails is tried again, and then cut in halves until one record
    stands alone.

    The cutting is done here and not by the master, since a task counts whole or not at all. Parts
    give the predictions of the whole, so they are taken as they come.
    """

    def __init__(self, stream: BatchStream, trainer: Trainer, outputs: Outputs) -> None:
        self._stream = stream
        self._trainer = trainer
        self._outputs = outputs

    def run(self, task: Task) -> Generator[Step, None, None]:
        """Have the predictions of a task taken, a step at a time; `finish` has them counted.

        Raises:
            BadRecordError: One of its records fails, others before it may have been taken.
        """
        self._outputs.begin()
        for start, end in _wanted(task):
            while start < end:
                failed = yield from self._run_until_failure(task, start, end)
                if failed is None:
                    break
                if failed.is_filtered:
                    yield from self._run_halves(task, failed.start, failed.end)
                else:
                    yield failed
                    yield from self._run_again(task, failed)
                # The reading has ended with the failure: what follows is read anew.
                start = failed.end

    def finish(self, task: Task) -> int:
        """See `Outputs.finish`."""
        return self._outputs.finish(task)

    def _run_again(self, task: Task, failed: MinibatchFailed) -> Generator[Step, None, None]:
        """Have a minibatch that failed taken care of whole, or else in parts."""
        again = yield from self._run_until_failure(task, failed.start, failed.end)
        if again is None:
            return
        search = FaultSearch(failed.start, failed.end)
        while (part := search.next_part()) is not None:
            part_failed = yield from self._run_until_failure(task, *part)
            search.tell(*part, has_failed=part_failed is not None)
        yield replace(again, runs_at=search.runs_at)

    def _run_halves(self, task: Task, start: int, end: int) -> Generator[Step, None, None]:
        middle = (start + end) // 2
        for half in ((start, middle), (middle, end)):
            if (yield from self._run_until_failure(task, *half)) is not None:
                yield from self._run_halves(task, *half)

    def _run_until_failure(
        self, task: Task, start: int, end: int
    ) -> Generator[Step, None, MinibatchFailed | None]:
        """Gives the first minibatch that fails, unless that is one record which stood alone.

        A minibatch of one record among others may fail of another one: readers read ahead.
        """
        with closing(self._stream.open(task.part(start, end))) as batches:
            for loaded in batches:
                began_s = time.perf_counter()
                try:
                    self._take(task, loaded)
                # As any other: a process that ends with 0 would be one whose work is done.
                except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code
                    if end - start > 1:
                        return MinibatchFailed(
                            loaded.start,
                            loaded.end,
                            Failure.of(error),
                            isinstance(error, _FilteredError),
                        )
                    self._take_twice(task, start)
                batches.read_ahead()
                yield Predicted(loaded.start, loaded.end, time.perf_counter() - began_s)
        return None

    def _take_twice(self, task: Task, start: int) -> None:
        """Take a record that failed alone out of a minibatch of two of it, which may run.

        Raises:
            BadRecordError: It fails too.
        """
        of_two = twice(task, start)
        try:
            with closing(self._stream.open(of_two)) as batches:
                for loaded in batches:
                    self._take(of_two, loaded)
        except (Exception, SystemExit) as error:
            raise BadRecordError(start, error) from error

    def _take(self, task: Task, loaded: LoadedBatch) -> None:
        batch = loaded.result()
        num_records = loaded.end - loaded.start
        num_examples = batch.num_examples // task.copies
        if batch.num_examples == 0:
            # All of them are dropped: there is no question which.
            return
        if num_examples != num_records:
            # Of which records the examples are is told by asking for each record alone.
            raise _FilteredError(
                f"{self._stream.records_fn} made {num_examples} examples of {num_records} "
                f"records of {task.shard.name!r}, from {loaded.start} on: in mode prediction make "
                "one of each record, in their order, or none"
            )
        indices = np.arange(loaded.start, loaded.end, dtype=np.int64)
        outputs = first_rows(self._trainer.predict(batch), num_records)
        self._outputs.take(Predictions(task.shard.name, indices, outputs))


def _wanted(task: Task) -> Iterator[tuple[int, int]]:
    """The stretches of a task between the records that it leaves out."""
    start = task.records.start
    for index in (*sorted(task.skipped), task.records.end):
        if index > start:
            yield start, index
        start = index + 1
