"""Where predictions go: to the user's processor, to a file for each task, or to both."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic.data.predictions.folder import Files, write_whole
from elastic.data.predictions.parts import Predictions, encode, part_name
from elastic.errors import JobSpecError, ModelDefError
from elastic.policy.records import Task
from elastic.spec.model_def import ModelDef

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
