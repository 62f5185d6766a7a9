"""One training step: pull, compute, push, and what to make of the answer."""

import math
import time
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from elastic.frameworks.base import Array, Batch, MetricState, Model, StepResult, Tensors, Updater
from elastic.policy.records import Task, TaskKind
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.client import (
    MasterClient,
    PulledModel,
    Session,
    VersionGoneError,
    metrics_to_proto,
)
from elastic.worker.batches import LoadedBatch
from elastic.worker.meter import NoMeter, StepMeter


class LeaseLostError(Exception):
    """The task is no longer this worker's."""


class NotFiniteError(Exception):
    """The loss of a minibatch, or a gradient, is NaN or infinite."""


class Trainer:
    """Keeps the local model at the master's version, or `get_model_steps` away from it."""

    def __init__(
        self,
        client: MasterClient,
        model: Model,
        updater: Updater | None,
        get_model_steps: int,
        seed: int,
        meter: StepMeter | None = None,
        with_metrics: bool = False,
    ) -> None:
        """Keep the parts.

        Args:
            client: Connection to the master.
            model: The local model, whose parameters are filled by pulls.
            updater: Applies own gradients between pulls; needed where `get_model_steps` > 1.
            get_model_steps: Pull every so many accepted steps.
            seed: The job's seed, mixed into every minibatch's own.
            meter: Told how long each part of a step took.
            with_metrics: Whether the user's metrics are computed of training minibatches.
        """
        self._client = client
        self._model = model
        self._updater = updater
        self._get_model_steps = get_model_steps
        self._seed = seed
        self._meter = meter or NoMeter()
        self._with_metrics = with_metrics
        self._version: int | None = None
        self._state: Tensors = {}
        self._steps_since_pull = 0
        self._is_stale = True
        self._result: StepResult | None = None

    def forget_model(self) -> None:
        """Pull anew before the next step: versions of a restarted master mean other values."""
        self._version = None
        self._is_stale = True

    def doubt_version(self) -> None:
        """Ask before the next step whether there is a newer version, as after a wait for a task.

        Others may have gone on meanwhile. Local updates keep to their number of steps.
        """
        if self._updater is None:
            self._is_stale = True

    def pull_newest(self, session: Session) -> None:
        """Have the newest version; transfers nothing if it is here already."""
        self._pull(session, None)
        self._is_stale = False

    def pull_version(self, session: Session, version: int | None) -> None:
        """Have a version to evaluate; the next training step pulls the newest again.

        Raises:
            LeaseLostError: Its evaluation is over.
        """
        try:
            self._pull(session, version)
        except VersionGoneError as error:
            raise LeaseLostError from error
        self._is_stale = True

    def _pull(self, session: Session, version: int | None) -> None:
        have_version = None if self._steps_since_pull else self._version
        began_s = time.perf_counter()
        pulled = self._client.get_model(session, have_version, version)
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

    def pull_if_needed(self, session: Session) -> None:
        """Pull when the last answer, or the number of own steps, asks for it."""
        if self._is_stale or self._steps_since_pull >= self._get_model_steps:
            self.pull_newest(session)
        else:
            self._reset_state()

    def _reset_state(self) -> None:
        """Start a further gradient on one version from that version's state.

        A group then does not depend on how its minibatches were spread over workers. With local
        updates the state goes its own way until the next pull, as the parameters do.
        """
        if self._updater is None and self._state:
            self._model.load(None, self._state)

    def compute(self, task: Task, loaded: LoadedBatch, began_s: float) -> pb.GradientHeader:
        """Compute one minibatch; keeps the tensors for `push`.

        Args:
            task: The task that the minibatch is of.
            loaded: The minibatch.
            began_s: `time.perf_counter` when the worker turned to it: reading it is part of the
                step that the master learns its patience from.

        Raises:
            NotFiniteError: The loss or a gradient is NaN or infinite.
        """
        seed = minibatch_seed(self._seed, task, loaded.start)
        batch = loaded.result()
        if self._with_metrics:
            result = self._model.gradients(batch, seed, with_metrics=True)
        else:
            result = self._model.gradients(batch, seed)
        assert self._version is not None
        version = self._version
        what = _not_finite(result)
        if what is not None:
            raise NotFiniteError(
                f"{what} at step {version + 1} on task {task.task_id} "
                f"({task.tell(loaded.start, loaded.end)}, epoch "
                f"{task.epoch}): lower the learning rate, clip gradients, or look at the records"
            )
        self._result = result
        step_s = time.perf_counter() - began_s
        self._meter.computed(step_s)
        return pb.GradientHeader(
            task_id=task.task_id,
            attempt=task.attempt,
            start=loaded.start,
            end=loaded.end,
            model_version=version,
            loss=result.loss,
            step_s=step_s,
            wants_model=self._steps_since_pull + 1 >= self._get_model_steps,
            metrics=metrics_to_proto([(each.name, each.values) for each in result.metrics]),
        )

    def try_out(self, session: Session, task: Task, loaded: LoadedBatch) -> None:
        """Compute a part of what has failed, and keep nothing of it.

        Raises:
            LeaseLostError: The version to evaluate is gone.
        """
        batch = loaded.result()
        if task.kind is TaskKind.TRAINING:
            self.pull_newest(session)
        else:
            self.pull_version(session, task.model_version)
        # The next step begins with the version's own state again.
        self._is_stale = True
        if batch.num_examples == 0:
            return
        if task.kind is TaskKind.TRAINING:
            self._model.gradients(batch, minibatch_seed(self._seed, task, loaded.start))
        else:
            self._model.metrics(batch)

    def push(self, session: Session, header: pb.GradientHeader) -> bool:
        """Report the gradient; False if it has to be computed again on a newer version.

        Raises:
            LeaseLostError: The task was given to another worker.
        """
        result = self._result
        assert result is not None
        began_s = time.perf_counter()
        reply = self._client.report_gradient(session, header, result.gradients, result.state)
        self._meter.pushed(
            time.perf_counter() - began_s,
            _size_bytes(result.gradients) + _size_bytes(result.state),
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
        pulled = self._client.model_of(reply)
        if pulled is not None:
            self._load(pulled)
            self._is_stale = False
            self._steps_since_pull = 0
        return is_accepted

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

    def metrics(self, batch: Batch) -> list[MetricState]:
        """Loss and metrics of a minibatch on the version pulled last."""
        return self._model.metrics(batch)

    def predict(self, batch: Batch) -> Any:
        """What the model gives for a minibatch on the version pulled last."""
        return self._model.predict(batch)


def _size_bytes(tensors: Mapping[str, Array]) -> int:
    return sum(array.nbytes for array in tensors.values())


def minibatch_seed(seed: int, task: Task, start: int) -> int:
    """A minibatch's own random seed, the same wherever and however often it is computed."""
    text = f"{seed}/{task.epoch}/{task.shard.name}/{start}"
    return zlib.crc32(text.encode()) & 0x7FFFFFFF


def _not_finite(result: StepResult) -> str | None:
    """Say what would poison the parameters, or None where all is finite."""
    if not math.isfinite(result.loss):
        return f"loss is {result.loss}"
    with np.errstate(all="ignore"):
        for name, gradient in result.gradients.items():
            if not _is_finite(gradient):
                return f"loss is {result.loss:g}, but the gradient of {name!r} is not finite"
    return None


def _is_finite(array: Array) -> bool:
    flat = array.reshape(-1)
    if flat.dtype not in (np.float32, np.float64):
        flat = flat.astype(np.float32)
    # One pass without a temporary; it overflows early, so only a finite result is trusted.
    if math.isfinite(np.dot(flat, flat)):
        return True
    return bool(np.isfinite(flat).all())
