"""One training step and one update, whatever the framework.

Tensors cross this boundary as NumPy arrays (`ml_dtypes.bfloat16` included), named as the
framework names them, in the order of the model. The master holds one `Model` with an `Updater`:
the parameters of the job. Each worker holds a `Model` that it fills with the master's parameters
before it computes gradients.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from numpy.typing import NDArray

from elastic.callbacks import Callback
from elastic.policy.records import Columns
from elastic.rows.base import RowGradients, RowReader, Table
from elastic.rows.kernels import RowRule
from elastic.spec.kinds import Mode
from elastic.spec.model_def import ModelDef

Array: TypeAlias = NDArray[Any]
Tensors: TypeAlias = dict[str, Array]


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
    """

    gradients: Tensors
    state: Tensors
    loss: float
    metrics: "Sequence[MetricState]" = ()
    rows: RowGradients = field(default_factory=dict)


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
        """The trained parameters by name; views where the framework allows, else copies."""

    def state(self) -> Tensors:
        """The non-trained state by name, without the framework's random-number state."""

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
        `elastic.spec.export_form` for what `path` says.
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
