"""One training step and one update, whatever the framework.

Tensors cross this boundary as NumPy arrays (`ml_dtypes.bfloat16` included), named as the
framework names them, in the order of the model. The master holds one `Model` with an `Updater`:
the parameters of the job. Each worker holds a `Model` that it fills with the master's parameters
before it computes gradients. The functions at the end check and sum such tensors, for both
frameworks.
"""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

from elastic.callbacks import Callback
from elastic.errors import CheckpointError
from elastic.policy.tasks.records import Columns
from elastic.rows.arithmetic import RowRule
from elastic.rows.base import RowGradients, RowReader, Table
from elastic.spec.model_def import ModelDef
from elastic.spec.platforms import Mode

Array: TypeAlias = NDArray[Any]
Tensors: TypeAlias = dict[str, Array]

_SYSTEM_ERROR: Final = re.compile(r"\(os error (\d+)\)")


@dataclass(frozen=True, slots=True)
class Batch:
    """One minibatch after the user's `dataset_fn` or `batch_fn`.

    Attributes:
        features: What the model is called with: a tensor of the framework, or a nested structure
            of them; first dimension `num_examples`.
        labels: What the loss is called with, or None where the mode has none.
        num_examples: Examples that it made of the records; 0 where it filtered all.
    """

    features: Any
    labels: Any
    num_examples: int


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one forward and backward pass gives.

    Attributes:
        gradients: One per trained parameter, its shape and dtype; zeros where the loss does not
            depend on the parameter.
        state: The non-trained state after the step (batch-norm statistics and the like).
        loss: The sum of the user's losses and of the model's own (regularisation).
        metrics: The user's metrics of the predictions behind the loss, where they are wanted.
        rows: Gradients of the rows that the model has read, of each table that it read from.
        are_finite: Whether `gradients` were found to be finite where they were computed, which is
            cheaper on a GPU; False where nobody looked.
    """

    gradients: Tensors
    state: Tensors
    loss: float
    metrics: "Sequence[MetricState]" = ()
    rows: RowGradients = field(default_factory=dict)
    are_finite: bool = False


@dataclass(frozen=True, slots=True)
class Replacement:
    """What `--embedding_threshold` has made of a model's layers, by their names.

    Attributes:
        replaced: How the rows of each begin.
        left: Why each of the others that are as large stays as it is.
    """

    replaced: Mapping[str, str]
    left: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MetricState:
    """A metric over some records, in a form that adds up exactly over any split of them.

    `values` of two states of one metric are merged by element-wise addition: a Keras metric's
    variables, or `[sum of f * examples, examples]` for a plain function.
    """

    name: str
    values: tuple[Array, ...]


@dataclass(slots=True)
class UpdaterState:
    """An optimizer's state: slots as tensors, and whatever else it counts as JSON values."""

    tensors: Tensors = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)


class Values(Protocol):
    """Named values that an update changes: of a whole model, or of a share of one."""

    def parameters(self) -> Tensors:
        """The trained parameters by name; views where the framework allows, else copies, which the
        next call may change.
        """

    def state(self) -> Tensors:
        """The non-trained state by name, without the framework's random-number state."""

    def copy_into(self, parameters: Mapping[str, Array], state: Mapping[str, Array]) -> None:
        """Copy all values out, by name, into arrays of their shapes and dtypes."""

    def load(
        self, parameters: Mapping[str, Array] | None, state: Mapping[str, Array] | None
    ) -> None:
        """Copy values in, by name; None leaves what is there.

        Raises:
            CheckpointError: A name is missing or unknown, or a shape or dtype differs; nothing
                was changed.
        """


class Model(Values, Protocol):
    """The user's model with its loss, in one process."""

    @property
    def tables(self) -> Sequence[Table]:
        """Tables of the embeddings whose rows are elsewhere, by name; none of most models."""

    @property
    def replacement(self) -> Replacement | None:
        """What a threshold has made of ordinary embedding layers; None where there was none."""

    @property
    def frozen_names(self) -> Collection[str]:
        """Of values that are neither trained nor changed by a step; the same in each process.

        They are not among the `state`, and are given to a process once.
        """

    def frozen(self) -> Tensors:
        """Those values by name, in arrays that never change."""

    def load_frozen(self, values: Mapping[str, Array]) -> None:
        """Copy them in.

        Raises:
            CheckpointError: As `load` does.
        """

    def read_rows_from(self, reader: RowReader) -> None:
        """Have layers get their rows there; before this all rows have their first values.

        What the reader raises while the model computes comes out of `gradients`, `metrics` and
        `predict` as it is, and is not taken for a fault of the user's code.
        """

    def gradients(self, batch: Batch, seed: int, *, with_metrics: bool = False) -> StepResult:
        """Compute loss and gradients of one minibatch in training mode.

        Args:
            batch: A batch with at least one example.
            seed: Sets the framework's random numbers (dropout, …) before the step, so that a
                minibatch computed again, anywhere, gives the same gradient.
            with_metrics: Whether the user's metrics are computed too.
        """

    def lay_gradients_in(self, arrays: Mapping[str, Array]) -> None:
        """Have `gradients` of these names written there from now on, if they are copied anyway.

        They are of the parameters' shapes and dtypes, and what `gradients` returns then.
        """

    def metrics(self, batch: Batch) -> list[MetricState]:
        """Loss (named `loss`) and the user's metrics of one minibatch in evaluation mode."""

    def metric_results(self, states: Sequence[MetricState]) -> dict[str, float]:
        """The values that merged metric states stand for."""

    def predict(self, batch: Batch) -> Any:
        """What the model gives for one minibatch in evaluation mode.

        Returns:
            The model's dict, list, tuple or single tensor with NumPy arrays for its tensors, whose
            first dimension is `num_examples`. bfloat16, of which NumPy has none, becomes float32.

        Raises:
            ModelDefError: The model failed, or gave something else.
        """

    def load_export(self, path: str) -> None:
        """Take the values of a file that `export` wrote.

        Raises:
            CheckpointError: It is missing, unreadable, or of another model.
        """

    def export(self, path: str) -> str:
        """Write the model for use without this project; returns what was written.

        Keras: a `.keras` file or a SavedModel; torch: the state_dict as safetensors. See
        `elastic.spec.values.export_target` for what `path` says.
        """


class Updater(Protocol):
    """The user's optimizer over the parameters of one `Model`, or of a share of one."""

    def apply(self, gradients: Mapping[str, Array], learning_rate_scale: float = 1.0) -> None:
        """Update the model's parameters in place and advance a schedule by one step.

        Args:
            gradients: One per trained parameter, by name, with its shape and dtype.
            learning_rate_scale: Multiplies the learning rate of this one update.
        """

    def end_epoch(self) -> None:
        """Advance a schedule that counts epochs."""

    def learning_rate(self) -> float:
        """The rate that the next update uses (of the first parameter group)."""

    def is_proportional(self) -> bool:
        """Whether a step is in proportion to the gradient, as that of SGD is; else it is taken to
        be divided by a length of the gradients, as that of Adam is.
        """

    def state(self) -> UpdaterState:
        """Slots, counters and schedule; arrays may be views that the next update changes."""

    def load_state(self, state: UpdaterState) -> None:
        """Continue as the optimizer that `state` was taken from.

        Raises:
            CheckpointError: The state does not fit this optimizer or model.
        """

    def row_rule(self) -> RowRule:
        """How this optimizer updates rows of embeddings (by its first parameter group).

        Raises:
            ModelDefError: It does so in a way that rows cannot be updated in.
        """

    def may_cut(self, num_servers: int) -> bool:
        """Whether a parameter may be updated in pieces, each on a server of its own.

        Args:
            num_servers: Over how many the parameters are spread; 1 for all of them on one.

        Raises:
            ModelDefError: The parameters cannot even be updated one without the others, or not
                without the model.
        """


class Framework(Protocol):
    """Builds models, updaters and batches of one framework."""

    name: str

    def make_batch(
        self, model_def: ModelDef, records: Sequence[Any] | Columns, mode: Mode
    ) -> Batch:
        """Run the user's `dataset_fn` over the raw records of exactly one minibatch.

        The function sees these records and no others, so whatever it does (filter, shuffle,
        augment), its examples come from the records that the gradient is accounted to.

        Args:
            model_def: The user's module.
            records: Columns where it takes columns: then its `batch_fn` is run over them.
            mode: What it is asked for.

        Raises:
            ModelDefError: The function failed or returned something else than
                (features, labels) pairs; the user's exception is the cause.
        """

    def build_model(
        self,
        model_def: ModelDef,
        model_params: Mapping[str, Any],
        sample: Batch,
        seed: int,
        embedding_threshold: int | None = None,
    ) -> Model:
        """Instantiate the user's model, with its variables made by a forward pass over `sample`.

        Equal seeds give equal initial parameters.

        Args:
            model_def: The user's module.
            model_params: What the model is made with.
            sample: A minibatch.
            seed: Of the initial parameters.
            embedding_threshold: Bytes from which on an ordinary embedding layer becomes a table of
                rows; None to leave all as they are.

        Raises:
            ModelDefError: The model cannot be built or called; the user's exception is the cause.
        """

    def build_updater(
        self, model_def: ModelDef, model: Model, total_steps: int | None = None
    ) -> Updater:
        """Instantiate the user's optimizer (and schedule) over the model's parameters.

        Args:
            model_def: The user's module.
            model: Whose parameters are updated.
            total_steps: Updates that the job will make, for functions that ask for it.
        """

    def build_share(
        self,
        model_def: ModelDef,
        whole: Mapping[str, Array],
        parameters: Mapping[str, Array],
        state: Mapping[str, Array],
        total_steps: int | None = None,
    ) -> tuple[Values, Updater]:
        """Some of a model's values with the user's optimizer over them, without the model.

        Args:
            model_def: The user's module.
            whole: Arrays of all trained parameters' shapes and dtypes, in the order of the model,
                of any values.
            parameters: The share, by name: some of them, or pieces of some, with their values.
            state: The share of what is not trained.
            total_steps: See `build_updater`.

        Raises:
            ModelDefError: The user's optimizer cannot be made.
        """

    def build_callbacks(
        self,
        model_def: ModelDef,
        model: Model,
        updater: Updater,
        *,
        is_local: bool,
        num_epochs: int,
        with_metrics: bool,
        on_servers: bool = False,
    ) -> Sequence[Callback]:
        """Instantiate the user's callbacks around the job's model and optimizer.

        Args:
            model_def: The user's module.
            model: Of the master.
            updater: Of the master.
            is_local: Whether workers apply gradients of their own between two pulls.
            on_servers: Whether others than the master apply all of them.
            num_epochs: Of the job, which callbacks may be told.
            with_metrics: Whether they are told the user's metrics of the training records.

        Raises:
            ModelDefError: One of them has a hook that cannot be served.
        """


def check_fit(what: str, expected: Mapping[str, Array], given: Mapping[str, Array]) -> None:
    """Check names, shapes and dtypes before anything is copied.

    Args:
        what: What the tensors are, for people, such as `parameters`.
        expected: What the model has.
        given: What is to be copied in.

    Raises:
        CheckpointError: A name is missing or unknown, or a shape or dtype differs.
    """
    missing = [name for name in expected if name not in given]
    unknown = [name for name in given if name not in expected]
    if missing or unknown:
        raise CheckpointError(
            f"the {what} do not fit this model: missing {some(missing)}, unknown "
            f"{some(unknown)}: use the model they were saved from"
        )
    for name, array in expected.items():
        other = given[name]
        if array.shape != other.shape or array.dtype != other.dtype:
            raise CheckpointError(
                f"the {what} do not fit this model: {name} is {array.dtype}{list(array.shape)} "
                f"here and {other.dtype}{list(other.shape)} there: use the model they were "
                "saved from"
            )


def copy_values(
    values: "Values", parameters: Mapping[str, Array], state: Mapping[str, Array]
) -> None:
    """`Values.copy_into` where values are the CPU's."""
    for given, own in ((parameters, values.parameters()), (state, values.state())):
        for name, array in given.items():
            np.copyto(array, own[name])


def load_whole(model: Model, parameters: Mapping[str, Array], state: Mapping[str, Array]) -> None:
    """Copy in what a cut has, where what is frozen lies with the state.

    Raises:
        CheckpointError: As `Model.load` does.
    """
    moving, frozen = split_state(model, state)
    model.load(parameters, moving)
    model.load_frozen(frozen)


def split_state(model: Model, state: Mapping[str, Array]) -> tuple[Tensors, Tensors]:
    """The state of a cut, without what is frozen, and that."""
    names = model.frozen_names
    return (
        {name: array for name, array in state.items() if name not in names},
        {name: array for name, array in state.items() if name in names},
    )


def some(names: Sequence[str]) -> str:
    """Names for people: the first few, and how many more there are."""
    shown = ", ".join(names[:3]) or "nothing"
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def mean_state(name: str, mean: float, num_examples: int) -> MetricState:
    """The state of a metric that is a mean over examples."""
    # Arrays of one element, as sums of arrays without dimensions are no arrays any more.
    return MetricState(name, (np.array([mean * num_examples]), np.array([float(num_examples)])))


def mean_of(state: MetricState) -> float:
    """The mean behind a merged `mean_state`; NaN over no examples."""
    total, examples = (float(np.sum(value)) for value in state.values)
    return total / examples if examples else float("nan")


def widened(array: Array) -> Array:
    """Sums over an epoch pass the 2**24 at which float32 no longer counts."""
    wide = array.astype(np.float64) if array.dtype.kind in "fV" else array
    # At least one dimension, as sums of arrays without dimensions are no arrays any more.
    return np.atleast_1d(wide)


def named_results(name: str, result: Any) -> dict[str, float]:
    """A metric's result under its name; several where it is a dict or has several values."""
    if isinstance(result, Mapping):
        return {f"{name}_{key}": float(value) for key, value in result.items()}
    flat = np.asarray(result).reshape(-1)
    if flat.size == 1:
        return {name: float(flat[0])}
    return {f"{name}_{index}": float(value) for index, value in enumerate(flat)}


def disk_error(error: SafetensorError, path: Path) -> OSError:
    """The system's error that safetensors has wrapped: a full disk stays recognisable as one."""
    number = _SYSTEM_ERROR.search(str(error))
    if number is None:
        return OSError(f"{path}: {error}")
    return OSError(int(number[1]), os.strerror(int(number[1])), str(path))


class _Alias:
    """Offers an array's memory once more, without its read-only mark."""

    def __init__(self, array: Array) -> None:
        interface = array.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}
        self._owner = array


def writable_alias(array: Array) -> Array:
    """The same memory, for a library that refuses read-only arrays; the caller must not write."""
    return np.asarray(_Alias(array))
