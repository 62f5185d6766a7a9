"""One minibatch computed: its gradient, its metrics or its predictions, and why it fails."""

import math
import time
import traceback
import zlib
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from elastic.errors import ElasticError, RpcError, SupersededError, legible
from elastic.frameworks.base import Array, Batch, MetricState, Model, StepResult
from elastic.policy.failing import TWICE, Part
from elastic.policy.tasks.records import Task, TaskKind
from elastic.rpc.client import SessionLostError
from elastic.spec.user_frames import describe
from elastic.worker.batches import BatchStream, FirstLook, LoadedBatch
from elastic.worker.meter import NoMeter, StepMeter
from elastic.worker.rows_ahead import ForeseenRows
from elastic.worker.strategy import Contribution, LeaseLostError, Strategy

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
        message = str(error) if is_ours else legible(describe(error))
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
