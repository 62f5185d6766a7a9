"""Callbacks: what a model_def may do when something has been reached, and what ends its training.

The master calls them, the one process that knows the whole job. This module imports no framework.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from elastic.policy.evaluation import Patience, goal_of

__all__ = ["HOOKS", "BestCheckpoint", "Callback", "EarlyStopping", "StopTraining"]

HOOKS: Final = (
    "on_train_begin",
    "on_epoch_begin",
    "on_evaluation_end",
    "on_epoch_end",
    "on_train_end",
)


@dataclass(frozen=True, slots=True)
class StopTraining:
    """What a hook returns to end training; `why` is shown to people."""

    why: str


class Callback(Protocol):
    """Hooks of the master; a class needs only those that it uses.

    While a hook runs no update is applied. What it raises fails the job. Attributes that are plain
    values (numbers, text, None, lists, tuples and dicts of them) and change are part of every cut:
    a master that is restarted makes the callbacks anew, calls `on_train_begin`, and sets them.
    """

    def on_train_begin(self) -> None:
        """Begin, at the start of each life of the master."""

    def on_epoch_begin(self, epoch: int) -> None:
        """Act before the first update of an epoch."""

    def on_evaluation_end(self, version: int, metrics: Mapping[str, float]) -> StopTraining | None:
        """Look at the metrics of a version, while later ones are trained."""
        return None

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float]) -> StopTraining | None:
        """Look at an epoch as a whole.

        Args:
            epoch: From 0.
            logs: `loss`, the mean over its training records, and with `--train_metrics` the
                metrics of these by their names; and if the version at its end was evaluated, the
                metrics of that with `val_` before their names.
        """
        return None

    def on_train_end(self) -> None:
        """End, when the model is what is exported: with `restore_best` the best version."""


class EarlyStopping(Callback):
    """Ends training when a metric has not improved for some evaluations."""

    def __init__(
        self,
        monitor: str = "val_loss",
        mode: str = "auto",
        patience: int = 0,
        min_delta: float = 0.0,
        restore_best: bool = False,
    ) -> None:
        """Say what to watch.

        Args:
            monitor: A metric of the evaluations, with or without `val_` before its name.
            mode: `min` or `max`; `auto` is `min` for a loss.
            patience: Evaluations without improvement that end training; 0 counts as 1.
            min_delta: What an improvement is more than.
            restore_best: Whether the final model is the best version instead of the last.

        Raises:
            ValueError: An argument has no meaning.
        """
        if patience < 0 or min_delta < 0:
            raise ValueError(f"patience={patience}, min_delta={min_delta}: they are not negative")
        self.monitor = monitor.removeprefix("val_")
        self.goal = goal_of(self.monitor, mode)
        self.patience = patience
        self.min_delta = min_delta
        self.keeps_best = self.restores_best = restore_best
        self.best: float | None = None
        self.num_worse = 0

    def on_evaluation_end(self, version: int, metrics: Mapping[str, float]) -> StopTraining | None:
        """Compare with the best so far."""
        state = Patience(self.best, self.num_worse)
        state = state.after(metrics[self.monitor], self.goal, self.min_delta)
        self.best, self.num_worse = state.best, state.num_worse
        if not state.is_exhausted(self.patience):
            return None
        best = "nothing" if self.best is None else f"{self.best:.6g}"
        return StopTraining(
            f"val_{self.monitor} has not improved on {best} in {self.num_worse} evaluations, "
            f"the last of version {version}"
        )


class BestCheckpoint(Callback):
    """Keeps the best of the evaluated versions as a checkpoint named `best`."""

    keeps_best = True
    restores_best = False

    def __init__(self, monitor: str = "val_loss", mode: str = "auto") -> None:
        """Say what to watch; see `EarlyStopping`.

        Raises:
            ValueError: The mode has no meaning, or is needed and not given.
        """
        self.monitor = monitor.removeprefix("val_")
        self.goal = goal_of(self.monitor, mode)
