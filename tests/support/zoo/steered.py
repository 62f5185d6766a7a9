"""The obedient model, with callbacks and a metric that a test plans.

The plan is a JSON file: `values` are what the metric gives for the version after one epoch, two
epochs, and so on, which the counts tell; `use` names callbacks with their arguments.
"""

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from obedient import *  # noqa: F403 - the rest of the module is that one's
from obedient import CustomModel as Obedient
from torch import Tensor

from elastic.callbacks import BestCheckpoint, Callback, EarlyStopping, StopTraining

_plan: dict[str, Any] = {}


class CustomModel(Obedient):
    """The model that counts; being made first of all, it is told where the plan is."""

    def __init__(self, num_records: int, plan: str) -> None:
        super().__init__(num_records)
        _plan.update(json.loads(Path(plan).read_text()))


def value(labels: Tensor, predictions: Tensor) -> Tensor:
    """The value that the plan gives the version after so many epochs."""
    values = _plan["values"]
    return predictions.double() * 0 + values[min(int(predictions.mean()), len(values)) - 1]


def eval_metrics_fn() -> dict[str, Any]:
    """The planned metric."""
    return {"value": value}


class Recorder(Callback):
    """Writes down each call."""

    def __init__(self, path: str, stop_at: int | None = None) -> None:
        self.path = Path(path)
        self.stop_at = stop_at
        self.num_seen = 0

    def _write(self, *what: Any) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(what) + "\n")

    def on_train_begin(self) -> None:
        self._write("train_begin")

    def on_epoch_begin(self, epoch: int) -> None:
        self._write("epoch_begin", epoch)

    def on_evaluation_end(self, version: int, metrics: Any) -> StopTraining | None:
        self.num_seen += 1
        self._write("evaluation_end", version, self.num_seen, metrics["value"])
        return None

    def on_epoch_end(self, epoch: int, logs: Any) -> StopTraining | None:
        self._write("epoch_end", epoch, sorted(logs), logs["loss"])
        return StopTraining("enough") if epoch == self.stop_at else None

    def on_train_end(self) -> None:
        self._write("train_end")


class Failing:
    """Fails in one hook."""

    def on_epoch_end(self, epoch: int, logs: Any) -> None:
        raise RuntimeError(f"the callback's own mistake in epoch {epoch}")


class Slow:
    """Takes its time at the end of the first epoch."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def on_epoch_end(self, epoch: int, logs: Any) -> None:
        if epoch == 0:
            self._rest()

    def _rest(self) -> None:
        time.sleep(self.seconds)


class Misnamed:
    """Has a hook that nobody calls."""

    def on_batch_end(self, batch: int) -> None:
        """Never."""


KINDS = {
    "EarlyStopping": EarlyStopping,
    "BestCheckpoint": BestCheckpoint,
    "Recorder": Recorder,
    "Failing": Failing,
    "Slow": Slow,
    "Misnamed": Misnamed,
}


def callbacks() -> Iterable[Any]:
    """What the plan says."""
    return [KINDS[kind](**arguments) for kind, arguments in _plan["use"]]
