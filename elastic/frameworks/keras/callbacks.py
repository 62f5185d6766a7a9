"""Callbacks of Keras, called by the master as far as it can serve their hooks."""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from string import Formatter
from typing import Any, Final

import keras

from elastic.callbacks import Callback, StopTraining
from elastic.errors import ModelDefError
from elastic.frameworks.keras.model import KerasModel
from elastic.frameworks.keras.tensors import keras_code
from elastic.frameworks.keras.updater import KerasUpdater
from elastic.frameworks.user_code import own_callback, user_code
from elastic.policy.evaluation import Goal
from elastic.spec.model_check import UNSERVED_HOOKS, unserved

_RATE_CHANGING: Final = (
    keras.callbacks.LearningRateScheduler,
    keras.callbacks.ReduceLROnPlateau,
)


class KerasCallback(Callback):
    """One callback of Keras, with the master's model and optimizer.

    During hooks that look back on a version the model holds that version, whatever has been
    trained meanwhile.
    """

    reads_model = True

    def __init__(self, wrapped: Any, model: Any, optimizer: Any, num_epochs: int) -> None:
        """Take a callback that can be served; see `served`."""
        self.wrapped = wrapped
        self._model = model
        self._optimizer = optimizer
        self._num_epochs = num_epochs
        monitor = _monitor(wrapped)
        self.monitor = str(monitor).removeprefix("val_") if _is_evaluated(monitor) else None
        self.also_watched = tuple(
            name.removeprefix("val_") for name in _fields(wrapped) if name.startswith("val_")
        )
        self.from_epoch = int(getattr(wrapped, "start_from_epoch", 0))
        self.keeps_best = self.restores_best = False
        if getattr(wrapped, "restore_best_weights", False):
            # Kept and restored as a version of the job: it has to outlive this process.
            wrapped.restore_best_weights = False
            self.keeps_best = self.restores_best = True
        wrapped.set_model(model)

    @property
    def goal(self) -> Goal:
        """What Keras takes for better."""
        if self.wrapped.monitor_op is None:
            # Keras decides as training begins, of a mode `auto` by what the model measures.
            known = Goal.MIN if self.monitor == "loss" else Goal.MAX
            return Goal(self.wrapped.mode) if self.wrapped.mode in tuple(Goal) else known
        return Goal.MIN if self.wrapped.monitor_op is keras.ops.less else Goal.MAX

    def on_train_begin(self) -> None:
        """Begin; what Keras can say against the callback's metric it says now."""
        with self._lent():
            # How many updates an epoch has is not known before it ends.
            self.wrapped.set_params({"epochs": self._num_epochs, "steps": None, "verbose": 0})
            self.wrapped.on_train_begin({})
            if getattr(self.wrapped, "monitor_op", self) is not None:
                return
            if _monitor(self.wrapped) is None:
                # Keras would ask for it all the same, and not use it.
                self.wrapped.monitor_op = keras.ops.less
            else:
                # Later than this, it would change what a cut has put back.
                self.wrapped._set_monitor_op()  # noqa: SLF001 - Keras has no public way

    def on_epoch_begin(self, epoch: int) -> None:
        """Pass on."""
        with self._lent():
            self.wrapped.on_epoch_begin(epoch, {})

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float]) -> StopTraining | None:
        """Pass on; a `stop_training` that the callback sets is its answer."""
        with self._lent():
            self._model.stop_training = False
            self.wrapped.on_epoch_end(epoch, dict(logs))
            return self._answer(epoch)

    def on_train_end(self) -> None:
        """Pass on."""
        with self._lent():
            self.wrapped.on_train_end({})

    def _answer(self, epoch: int) -> StopTraining | None:
        if not self._model.stop_training:
            return None
        return StopTraining(f"it set stop_training at the end of epoch {epoch}")

    @contextmanager
    def _lent(self) -> Iterator[None]:
        """Give the model its optimizer for the time of a hook, as `compile` would for good."""
        self._model.optimizer = self._optimizer
        try:
            with keras_code(f"the callback {type(self.wrapped).__name__}"):
                yield
        finally:
            del self._model.optimizer


class KerasCsvLogger(KerasCallback):
    """A CSVLogger, which in each life of the master goes on where the cut is that it began with.

    The rows of what is trained again go, those before stay. So it begins only with its first hook
    after what a cut has put back: before that it would empty the file.
    """

    def __init__(self, wrapped: Any, model: Any, optimizer: Any, num_epochs: int) -> None:
        """Take the logger, whose attributes are what a cut keeps."""
        super().__init__(wrapped, model, optimizer, num_epochs)
        self._has_begun = False
        wrapped.file_and_size = None

    def on_train_begin(self) -> None:
        """Nothing yet."""

    def on_epoch_begin(self, epoch: int) -> None:
        """Pass on."""
        with self._measured():
            super().on_epoch_begin(epoch)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float]) -> StopTraining | None:
        """Pass on."""
        with self._measured():
            return super().on_epoch_end(epoch, logs)

    def on_train_end(self) -> None:
        """Pass on."""
        with self._measured():
            super().on_train_end()

    @contextmanager
    def _measured(self) -> Iterator[None]:
        if not self._has_begun:
            self._begin()
            self._has_begun = True
        yield
        file = Path(self.wrapped.filename)
        with suppress(FileNotFoundError):
            self.wrapped.file_and_size = (str(file), file.stat().st_size)

    def _begin(self) -> None:
        wrapped, file = self.wrapped, Path(self.wrapped.filename)
        name, size = wrapped.file_and_size or (None, 0)
        if name != str(file):
            super().on_train_begin()
            return
        with suppress(FileNotFoundError):
            if file.stat().st_size > size:
                os.truncate(file, size)
        keys, append = wrapped.keys, wrapped.append
        wrapped.append = wrapped.append_header = True
        super().on_train_begin()
        # The columns are those of the header, whatever the next epoch's logs have.
        wrapped.keys, wrapped.append = keys, append


def served(
    made: Any,
    model: KerasModel,
    updater: KerasUpdater,
    *,
    is_local: bool,
    num_epochs: int,
    told: Collection[str] = (),
    on_servers: bool = False,
) -> Callback | None:
    """A callback that the master can call; None for one whose work every job does.

    Args:
        made: What the user's function gave.
        model: The master's model.
        updater: Its optimizer.
        is_local: Whether workers take steps of their own between two pulls.
        num_epochs: Of the job.
        told: Metrics of the training records that `on_epoch_end` is told, beside the loss.
        on_servers: Whether others than the master apply gradients.

    Raises:
        ModelDefError: Some of what it does could not be done.
    """
    if not isinstance(made, keras.callbacks.Callback):
        return own_callback(made)
    if isinstance(made, keras.callbacks.TerminateOnNaN):
        return None
    name = type(made).__name__
    by_epoch = isinstance(made, keras.callbacks.ModelCheckpoint) and made.save_freq == "epoch"
    allowed = {"on_train_batch_end"} if by_epoch else set()
    for hook in UNSERVED_HOOKS:
        if hook not in allowed and _defines(made, hook):
            raise unserved(name, hook)
    if isinstance(made, _RATE_CHANGING):
        _check_rates(name, is_local, on_servers)
    monitor = _monitor(made)
    _check_told(made, monitor, told)
    if getattr(made, "restore_best_weights", False) and not _is_evaluated(monitor):
        raise ModelDefError(
            f"callbacks gives a {name} that restores the best weights by {monitor!r}: versions are "
            "compared by evaluations, so watch a metric that begins with val_"
        )
    kind = KerasCallback
    if isinstance(made, keras.callbacks.CSVLogger):
        if "://" in made.filename:
            raise ModelDefError(
                f"callbacks gives a {name} for {made.filename!r}, where rows of what is trained "
                "again cannot be taken back: name a file of this machine, or use "
                "--tensorboard_log_dir, or elastic status -o json"
            )
        kind = KerasCsvLogger
    return kind(made, model.model, updater.optimizer, num_epochs)


def _check_rates(name: str, is_local: bool, on_servers: bool) -> None:
    """Refuse to change the rate of an optimizer that is not the master's."""
    if is_local:
        raise ModelDefError(
            f"callbacks gives a {name}, but with get_model_steps above 1 workers apply gradients "
            "at rates of their own: give the optimizer a LearningRateSchedule"
        )
    if on_servers:
        raise ModelDefError(
            f"callbacks gives a {name}, but with --strategy ps the servers have the optimizer: "
            "give the optimizer a LearningRateSchedule"
        )


def _check_told(made: Any, monitor: Any, told: Collection[str]) -> None:
    """Refuse what waits for a metric that no epoch brings."""
    name, known = type(made).__name__, ("loss", *told)
    advice = "" if told else "; --train_metrics has those of the training records told too"
    if monitor is not None and not _is_evaluated(monitor) and not _is_told(monitor, known):
        only = " and ".join(map(repr, known)) + (" are told" if told else " is told")
        raise ModelDefError(
            f"callbacks gives a {name} that watches {monitor!r}: of the training records only "
            f"{only}, so watch a metric of the evaluations, which begins with val_{advice}"
        )
    for field in _fields(made):
        if field != "epoch" and not _is_evaluated(field) and not _is_told(field, known):
            there = ", ".join(map(repr, ("epoch", *known)))
            raise ModelDefError(
                f"callbacks gives a {name} whose filepath has a place for {field!r}: there are "
                f"{there} and the metrics of the evaluations, which begin with val_{advice}"
            )


def _is_evaluated(metric: Any) -> bool:
    return str(metric).startswith("val_")


def _is_told(metric: Any, known: Collection[str]) -> bool:
    # Of a metric with several values each has a name of its own.
    return any(metric == each or str(metric).startswith(f"{each}_") for each in known)


def _monitor(made: Any) -> Any:
    """What a callback waits for; None for nothing."""
    is_saving = isinstance(made, keras.callbacks.ModelCheckpoint)
    return None if is_saving and not made.save_best_only else getattr(made, "monitor", None)


def _fields(made: Any) -> list[str]:
    """What a callback puts into the names of its files.

    Raises:
        ModelDefError: The name has no meaning.
    """
    if not isinstance(made, keras.callbacks.ModelCheckpoint):
        return []
    with user_code(f"the filepath of the callback {type(made).__name__}"):
        fields = [field for _, field, _, _ in Formatter().parse(made.filepath)]
    return [re.split(r"[.\[]", field)[0] for field in fields if field is not None]


def _defines(made: Any, hook: str) -> bool:
    if hook in vars(made):
        return True
    return getattr(type(made), hook, None) is not getattr(keras.callbacks.Callback, hook, None)
