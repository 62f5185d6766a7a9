"""A Keras model with the user's loss and metrics, as compiled functions; and the files of one."""

import errno
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from zipfile import ZipFile

import h5py
import keras
import numpy as np
import tensorflow as tf

from elastic.errors import CheckpointError, ModelDefError
from elastic.frameworks.base import (
    Array,
    Batch,
    MetricState,
    Replacement,
    StepResult,
    Tensors,
    copy_values,
    mean_of,
    mean_state,
    named_results,
    widened,
)
from elastic.frameworks.embeddings import reading, recording
from elastic.frameworks.keras.embedding import (
    dense_rows,
    row_gradients,
    sources_of,
    watched_by,
    with_gradients,
)
from elastic.frameworks.keras.tensors import (
    VariableGroup,
    described,
    keras_code,
    to_array,
    variable_names,
)
from elastic.frameworks.user_code import leaves, metric_functions, predicted_arrays
from elastic.rows.base import RowReader, Table
from elastic.spec.model_def import ModelDef
from elastic.spec.values import ExportForm, export_target, is_file

_SEED_STRIDE: Final = 0x9E3779B1
"""Spreads the seeds of one model's generators over the integers."""

INITIAL_LOSS_SCALE: Final = 2.0**15
"""As Keras' `LossScaleOptimizer` begins."""

GROWTH_STEPS: Final = 2000
"""Steps without an overflow after which a larger factor is tried, as Keras does."""

FROZEN_BYTES: Final = 1 << 20
"""From so much untrained state on it is worth a look which of it no step changes: the look traces
the training step, which the master does not otherwise do."""


class KerasMetrics:
    """Keras metric objects, whose variables are the sums, and plain functions."""

    def __init__(self, eval_metrics_fn: Callable[[], Any] | None) -> None:
        self._metrics = metric_functions(eval_metrics_fn)
        self._at = ""

    def update(self, labels: Any, predictions: Any) -> dict[str, list[Any]]:
        """Each metric's sums over one minibatch alone; may run in a graph."""
        values = {}
        for name, metric in self._metrics.items():
            self._at = name
            values[name] = _update(metric, labels, predictions)
        self._at = ""
        return values

    def step_name(self) -> str:
        """What an evaluation step is at, for people: also while TensorFlow traces it."""
        at, self._at = self._at, ""
        return f"metric {at!r}" if at else "the evaluation step"

    def check_sums(self, labels: Any, predictions: Any) -> None:
        """Have two equal minibatches give twice what one gives.

        Raises:
            ModelDefError: A metric keeps what cannot be added up, such as a largest value.
        """
        for name, metric in self._metrics.items():
            if not isinstance(metric, keras.Metric):
                continue
            metric.reset_state()
            seen = []
            for _ in range(2):
                metric.update_state(labels, predictions)
                seen.append([widened(to_array(v.value.read_value())) for v in metric.variables])
            for variable, once, twice in zip(metric.variables, *seen, strict=True):
                if not np.allclose(twice, once + once, rtol=1e-3, atol=1e-6, equal_nan=True):
                    raise ModelDefError(
                        f"metric {name!r} cannot be put together from minibatches: its variable "
                        f"{variable.name!r} is no sum over the examples: keep sums in "
                        "update_state and compute the rest in result"
                    )

    def states(self, values: dict[str, list[Any]], num_examples: int) -> list[MetricState]:
        """Mergeable states of what `update` gave."""
        return [
            MetricState(name, tuple(widened(to_array(tensor)) for tensor in tensors))
            if isinstance(self._metrics[name], keras.Metric)
            else mean_state(name, float(tensors[0]), num_examples)
            for name, tensors in values.items()
        ]

    def is_built_for(self, states: list[MetricState]) -> bool:
        """Whether the metrics have the variables yet that the states belong to."""
        return all(
            len(self._metrics[state.name].variables) == len(state.values)
            for state in states
            if isinstance(self._metrics.get(state.name), keras.Metric)
        )

    def result(self, state: MetricState) -> dict[str, float]:
        """The value of one merged state; several where the metric's result is a dict or vector."""
        metric = self._metrics.get(state.name)
        if not isinstance(metric, keras.Metric):
            return {state.name: mean_of(state)}
        if len(metric.variables) != len(state.values):
            raise CheckpointError(
                f"the metric {state.name} has {len(metric.variables)} variables here and "
                f"{len(state.values)} there: use the same eval_metrics_fn everywhere"
            )
        for variable, value in zip(metric.variables, state.values, strict=True):
            variable.assign(np.asarray(value).reshape(variable.shape).astype(variable.dtype))
        with keras_code(f"the result of metric {state.name!r}"):
            result = metric.result()
        return named_results(state.name, result)


def _update(metric: Any, labels: Any, predictions: Any) -> list[Any]:
    if not isinstance(metric, keras.Metric):
        result = tf.convert_to_tensor(metric(labels, predictions))
        return [tf.reduce_mean(tf.cast(result, tf.float64))]
    metric.reset_state()
    metric.update_state(labels, predictions)
    return [variable.value.read_value() for variable in metric.variables]


class KerasModel:
    """One Keras model; arrays that it gives out never change."""

    def __init__(
        self,
        model: Any,
        model_def: ModelDef,
        sample: Batch,
        replacement: Replacement | None = None,
    ) -> None:
        """Take a model whose variables exist.

        Args:
            model: Of Keras.
            model_def: The user's module.
            sample: Builds metrics that make their variables at their first update, and tells an
                export what features look like.
            replacement: What was made of its layers.
        """
        self.model = model
        self.replacement = replacement
        self._loss = model_def.loss
        self._eval_metrics_fn = model_def.eval_metrics_fn
        self._sample = sample
        self._sources = sources_of(model)
        named = dict(zip(variable_names(model.weights), model.weights, strict=True))
        trained = {id(variable) for variable in model.trainable_variables}
        self.trained = {name: v for name, v in named.items() if id(v) in trained}
        self._untrained = {name: v for name, v in named.items() if id(v) not in trained}
        self._trained_group = VariableGroup(self.trained)
        weights = {id(variable) for variable in model.weights}
        self._seed_states = [v for v in model.variables if id(v) not in weights]
        # Traced for the very size of a minibatch: of a dimension that is known, TensorFlow makes
        # faster kernels. The first minibatch of another size is traced for any.
        self._step = tf.function(self._compute, reduce_retracing=True)
        self._measured_step = tf.function(self._compute_with_metrics, reduce_retracing=True)
        self._loss_scale = loss_scale_of(model)
        self._metrics: KerasMetrics | None = None
        self._evaluation: Callable[..., Any] = self._evaluate
        self._is_evaluated = False
        self._prediction = tf.function(self._predict, reduce_retracing=True)
        frozen = self._find_frozen()
        self._frozen = {name: v for name, v in self._untrained.items() if name in frozen}
        self._state = {name: v for name, v in self._untrained.items() if name not in frozen}
        self._frozen_group = VariableGroup(self._frozen)
        self._state_group = VariableGroup(self._state)

    @property
    def tables(self) -> Sequence[Table]:
        """Those of the model's embeddings, in an order of their own."""
        return [source.table for source in self._sources]

    def read_rows_from(self, reader: RowReader) -> None:
        """Have all embeddings read there."""
        for source in self._sources:
            source.read_from(reader)

    def parameters(self) -> Tensors:
        """The trained variables."""
        return self._trained_group.read()

    def state(self) -> Tensors:
        """The other weights that a step may change, such as batch-norm statistics."""
        return self._state_group.read()

    @property
    def frozen_names(self) -> Collection[str]:
        """Weights that no step changes, as of layers that are not trained, if they are large."""
        return self._frozen.keys()

    def frozen(self) -> Tensors:
        """See `Model`."""
        return self._frozen_group.read()

    def load_frozen(self, values: Mapping[str, Array]) -> None:
        """See `Model`."""
        self._frozen_group.check("state", values)
        self._frozen_group.write(values)

    def copy_into(self, parameters: Mapping[str, Array], state: Mapping[str, Array]) -> None:
        """See `Values`."""
        copy_values(self, parameters, state)

    def load(
        self, parameters: Mapping[str, Array] | None, state: Mapping[str, Array] | None
    ) -> None:
        """Copy values in, by name; None leaves what is there."""
        loads = [
            (what, group, given)
            for what, group, given in (
                ("parameters", self._trained_group, parameters),
                ("state", self._state_group, state),
            )
            if given is not None
        ]
        for what, group, given in loads:
            group.check(what, given)
        for _, group, given in loads:
            group.write(given)

    def gradients(self, batch: Batch, seed: int, *, with_metrics: bool = False) -> StepResult:
        """Forward and backward pass in training mode."""
        if with_metrics and not self._is_evaluated:
            # Metrics may make their variables now, which a compiled step cannot.
            self.metrics(batch)
        step = self._measured_step if with_metrics else self._step
        with reading(self._sources), keras_code("the training step"):
            loss, gradients, untrained, rows, *values = self._scaled_step(
                step, batch, self._seeds(seed)
            )
        return StepResult(
            gradients=dict(zip(self.trained, map(to_array, gradients), strict=True)),
            state={
                name: to_array(value)
                for name, value in zip(self._untrained, untrained, strict=True)
                if name in self._state
            },
            loss=float(loss),
            metrics=self._built_metrics().states(values[0], batch.num_examples) if values else (),
            rows=row_gradients(rows),
        )

    def lay_gradients_in(self, arrays: Mapping[str, Array]) -> None:
        """See `Model`: they are in memory of the framework's own."""

    def _find_frozen(self) -> Collection[str]:
        """What of the untrained weights the training step, traced for the sample, leaves alone."""
        size_bytes = sum(array.nbytes for array in described(self._untrained).values())
        if size_bytes < FROZEN_BYTES:
            return ()
        if self._sample.labels is None or not self._sample.num_examples:
            return ()
        factor = None if self._loss_scale is None else tf.constant(self._loss_scale.factor)
        with reading(self._sources), keras_code("the training step"):
            traced = self._step.get_concrete_function(
                self._sample.features, self._sample.labels, self._seeds(0), factor
            )
        return unwritten(self._untrained, traced.graph)

    def _seeds(self, seed: int) -> Any:
        """One for each of the model's generators."""
        numbers = np.arange(len(self._seed_states), dtype=np.int64)
        return tf.constant((seed + numbers * _SEED_STRIDE) % 2**31)

    def _scaled_step(self, step: Callable[..., Any], batch: Batch, seeds: Any) -> Any:
        scale = self._loss_scale
        if scale is None:
            return step(batch.features, batch.labels, seeds, None)
        before = self._state_group.read()
        while True:
            factor = tf.constant(scale.factor)
            result = step(batch.features, batch.labels, seeds, factor)
            loss, gradients, _, rows, *_ = result
            of_rows = [values for reads in rows.values() for _, values in reads]
            if scale.accepts(loss, [*gradients, *of_rows]):
                return result
            # The forward pass has moved the statistics.
            self._state_group.write(before)

    def metrics(self, batch: Batch) -> list[MetricState]:
        """Loss and metrics in evaluation mode."""
        metrics = self._built_metrics()
        with reading(self._sources), keras_code(metrics.step_name):
            loss, values = self._evaluation(batch.features, batch.labels)
            if not self._is_evaluated:
                # The first run is not compiled: metrics may make their variables in it.
                metrics.check_sums(batch.labels, self.model(batch.features, training=False))
                self._is_evaluated = True
                self._evaluation = tf.function(self._evaluate, reduce_retracing=True)
        states = metrics.states(values, batch.num_examples)
        return [mean_state("loss", float(loss), batch.num_examples), *states]

    def metric_results(self, states: Sequence[MetricState]) -> dict[str, float]:
        """What the merged states stand for."""
        metrics = self._built_metrics()
        if not metrics.is_built_for(list(states)):
            self.metrics(self._sample)
        results: dict[str, float] = {}
        for state in states:
            results |= metrics.result(state)
        return results

    def predict(self, batch: Batch) -> Any:
        """What the model gives in inference mode."""
        with reading(self._sources), keras_code("the model's forward pass"):
            outputs = self._prediction(batch.features)
        return predicted_arrays(outputs, batch.num_examples, _array_of)

    def load_export(self, path: str) -> None:
        """Take the values of a `.keras` file, or of a SavedModel."""
        is_folder = is_file(Path(path) / "saved_model.pb")
        if not (is_folder or path.endswith(".keras")):
            raise CheckpointError(
                f"--model={path} is no .keras file and no SavedModel: name what a Keras job has "
                "written with --output"
            )
        try:
            (load_folder if is_folder else load_file)(self.model, path)
        except ModelDefError as error:
            raise CheckpointError(
                f"{error}: name what a job with this model_def has written with --output"
            ) from error

    def export(self, path: str) -> str:
        """Write a `.keras` file, or a SavedModel."""
        target = export_target(path, "keras")
        if target.form is ExportForm.SAVED_MODEL:
            if self._sources:
                raise ModelDefError(
                    "a SavedModel holds no Python, by which the model's embeddings look up their "
                    "rows: let --output end in .keras"
                )
            save_folder(self.model, self._sample.features, target.path)
        else:
            save_file(self.model, target.path)
        return str(target.path)

    def _built_metrics(self) -> KerasMetrics:
        if self._metrics is None:
            self._metrics = KerasMetrics(self._eval_metrics_fn)
        return self._metrics

    def _compute(self, features: Any, labels: Any, seeds: Any, factor: Any) -> Any:
        return self._derive(features, labels, seeds, factor)[:4]

    def _compute_with_metrics(self, features: Any, labels: Any, seeds: Any, factor: Any) -> Any:
        *result, predictions = self._derive(features, labels, seeds, factor)
        return *result, self._built_metrics().update(labels, predictions)

    def _derive(self, features: Any, labels: Any, seeds: Any, factor: Any) -> Any:
        """Loss, gradients, untrained weights, gradients of rows, and predictions."""
        for index, variable in enumerate(self._seed_states):
            variable.assign(tf.cast(tf.stack([seeds[index], 0]), variable.dtype))
        variables = [variable.value for variable in self.trained.values()]
        with (
            tf.GradientTape() as tape,
            recording(self._sources, watched_by(tape)) as reads,
        ):
            loss, predictions = total_loss(self.model, self._loss, features, labels, training=True)
            scaled = loss if factor is None else tf.cast(loss, tf.float32) * factor
        gradients, of_rows = tape.gradient(scaled, (variables, reads.rows))
        dense = [
            tf.zeros_like(variable) if gradient is None else tf.convert_to_tensor(gradient)
            for gradient, variable in zip(gradients, variables, strict=True)
        ]
        of_rows = list(map(dense_rows, of_rows, reads.rows))
        if factor is not None:
            dense, of_rows = _divided(dense, factor), _divided(of_rows, factor)
        # Reading shares memory, so that what nobody looks at costs nothing.
        untrained = [variable.value.read_value() for variable in self._untrained.values()]
        return loss, dense, untrained, with_gradients(reads, of_rows), predictions

    def _predict(self, features: Any) -> Any:
        return self.model(features, training=False)

    def _evaluate(self, features: Any, labels: Any) -> Any:
        loss, predictions = total_loss(self.model, self._loss, features, labels, training=False)
        return loss, self._built_metrics().update(labels, predictions)


def _divided(gradients: Sequence[Any], factor: Any) -> list[Any]:
    """In float32: as float16 a large factor is infinite, and small quotients are 0."""
    return [tf.cast(tf.cast(each, tf.float32) / factor, each.dtype) for each in gradients]


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _array_of(output: Any) -> Array | None:
    """An array of a dense tensor; text as Python strings."""
    if not isinstance(output, tf.Tensor):
        return None
    array: Array = output.numpy()
    if output.dtype == tf.string:
        texts: Array = np.vectorize(_text, otypes=[object])(array)
        return texts
    return array


def total_loss(
    model: Any, loss_fn: Callable[..., Any], features: Any, labels: Any, *, training: bool
) -> tuple[Any, Any]:
    """The sum of the user's losses and of the model's own, and the predictions."""
    predictions = model(features, training=training)
    values = list(leaves(loss_fn(labels, predictions)))
    for value in values:
        if not tf.is_tensor(value):
            raise ModelDefError(
                f"loss returned a {type(value).__name__}: return a scalar tensor, or a dict, "
                "list or tuple of them"
            )
        if value.shape.rank not in (0, None):
            raise ModelDefError(
                f"loss returned a tensor of shape {value.shape.as_list()}: return a scalar, such "
                "as its mean"
            )
    if not values:
        raise ModelDefError("loss returned nothing: return a scalar tensor")
    total = values[0]
    for value in [*values[1:], *model.losses]:
        total = total + tf.cast(value, total.dtype)
    return total, predictions


class LossScale:
    """The factor by which a worker multiplies the loss of `mixed_float16` to differentiate it.

    So gradients that float16 would round to 0 are kept. It divides the gradients by it again, in
    float32: nobody else sees it. Only the worker can do that; an optimizer gets gradients that have
    lost what was too small for float16.
    """

    def __init__(self) -> None:
        self.factor = INITIAL_LOSS_SCALE
        self._num_good = 0

    def accepts(self, loss: Any, gradients: Sequence[Any]) -> bool:
        """Whether a step is good; if not it is to be computed again, by the smaller factor."""
        if bool(tf.reduce_all([tf.reduce_all(tf.math.is_finite(each)) for each in gradients])):
            self._num_good += 1
            if self._num_good == GROWTH_STEPS:
                self._num_good, self.factor = 0, self.factor * 2
            return True
        self._num_good = 0
        if self.factor <= 1 or not bool(tf.math.is_finite(loss)):
            # No factor helps; what to do about it is the optimizer's affair.
            return True
        self.factor /= 2
        return False


def loss_scale_of(model: Any) -> LossScale | None:
    """What a model's gradients need; None where no layer computes in float16."""
    layers = model._flatten_layers()  # noqa: SLF001 (layers within layers are in no public list)
    is_half = any(layer.compute_dtype == "float16" for layer in layers)
    return LossScale() if is_half else None


# A trained Keras model as a file or a folder that other programs read; whole, or not at all.


_WEIGHTS: Final = "model.weights.h5"


def save_file(model: Any, target: Path) -> None:
    """Write a `.keras` file: the model's code, as far as it is Keras', its weights and state.

    Raises:
        OSError: The disk is full, or not writable.
        ModelDefError: Keras cannot save this model.
    """
    _write_beside(target, lambda partial: model.save(partial))


def save_folder(model: Any, features: Any, target: Path) -> None:
    """Write a SavedModel whose `serve` maps features, any number of them, to predictions.

    Args:
        model: Of Keras.
        features: Of a minibatch: they have the shapes and dtypes of all others.
        target: A folder; a SavedModel that is there gives way.

    Raises:
        OSError: The disk is full, or not writable.
        ModelDefError: TensorFlow cannot trace this model.
    """

    def write(partial: Path) -> None:
        archive = keras.export.ExportArchive()
        archive.track(model)
        signature = tf.nest.map_structure(_any_number, features)
        archive.add_endpoint(
            "serve", lambda given: model(given, training=False), input_signature=[signature]
        )
        try:
            archive.write_out(str(partial), verbose=False)
        except tf.errors.ResourceExhaustedError as error:
            # Of the disk: the model itself has been traced by then.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(partial)) from error

    _write_beside(target, write)


def load_file(model: Any, path: str) -> None:
    """Take all values of a `.keras` file.

    Raises:
        ModelDefError: It is none, or one of another model.
    """
    # Keras raises whatever the file makes it stumble over.
    with keras_code(f"reading --model={path}"):
        left = _arrays_saved(path) - _arrays_of(model)
        if not left:
            model.load_weights(path)
    if left:
        # Keras takes what the model has, and leaves the rest without a word.
        raise ModelDefError(
            f"reading --model={path} failed: it holds {min(left)}, which the model has not"
        )


def _arrays_saved(path: str) -> set[str]:
    """Where in a `.keras` file arrays of the model are."""
    with ZipFile(path) as archive:
        if _WEIGHTS not in archive.namelist():
            return set()
        with archive.open(_WEIGHTS) as file:
            # A model that was compiled by its user has its optimizer in the file too.
            return {name for name in _arrays_in(file) if not name.startswith("optimizer/")}


def _arrays_of(model: Any) -> set[str]:
    """Where they are if the model is written. Only Keras knows, and only by doing it."""
    with TemporaryDirectory() as folder:
        path = f"{folder}/own.weights.h5"
        model.save_weights(path)
        return _arrays_in(path)


def _arrays_in(file: Any) -> set[str]:
    found: set[str] = set()
    with h5py.File(file, "r") as groups:
        groups.visititems(
            lambda name, item: found.add(name) if isinstance(item, h5py.Dataset) else None
        )
    return found


def load_folder(model: Any, path: str) -> None:
    """Take all values of a SavedModel that `save_folder` has written.

    Raises:
        ModelDefError: It is none, or one of another model.
    """
    with keras_code(f"reading --model={path}"):
        found = list(getattr(tf.saved_model.load(path), "variables", ()))
    wanted = list(model.variables)
    saved, own = [_traits(v, v.name) for v in found], [_traits(v, v.path) for v in wanted]
    for number, (one, other) in enumerate(zip_longest(saved, own)):
        if one != other:
            raise ModelDefError(
                f"reading --model={path} failed: variable {number} is {one or 'missing'} there and "
                f"{other or 'none'} in the model"
            )
    for variable, value in zip(wanted, found, strict=True):
        variable.assign(value)


def _traits(variable: Any, path: str) -> str:
    """What is the same in each process; the names of layers may be numbered differently."""
    name = path.removesuffix(":0").rsplit("/", 1)[-1]
    return f"{name} {tf.as_dtype(variable.dtype).name}{list(variable.shape)}"


def _any_number(tensor: Any) -> Any:
    tensor = tf.convert_to_tensor(tensor)
    return tf.TensorSpec((None, *tensor.shape[1:]), tensor.dtype)


def _write_beside(target: Path, write: Callable[[Path], None]) -> None:
    """Have something written under another name, and give it its own."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".partial-{target.name}")
    _remove(partial)
    try:
        with keras_code("saving the model"):
            write(partial)
        _put(partial, target)
    except ModelDefError as error:
        if isinstance(error.__cause__, OSError):
            # The disk's answer, which is no fault of the model.
            raise error.__cause__ from None
        raise
    finally:
        _remove(partial)


def _put(partial: Path, target: Path) -> None:
    if not partial.is_dir():
        partial.replace(target)
        return
    replaced = target.with_name(f".replaced-{target.name}")
    _remove(replaced)
    if target.exists():
        # A folder that is not empty cannot be replaced in one step.
        target.rename(replaced)
    partial.rename(target)
    _remove(replaced)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# Which variables a compiled step leaves as they are.


READS: Final = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape"})
"""Operations that take a variable and do not change it."""


def unwritten(variables: Mapping[str, Any], graph: Any) -> list[str]:
    """The names of those that a graph reads, and no run of it changes.

    Whatever else is given a variable, such as a loop that may write to it, counts as a write.

    Args:
        variables: Of Keras, by name.
        graph: Of a `tf.function`, traced.
    """
    inside = {id(handle): placeholder for handle, placeholder in graph.captures}
    return [
        name
        for name, variable in variables.items()
        if _are_reads(inside.get(id(variable.value.handle)))
    ]


def _are_reads(placeholder: Any | None) -> bool:
    """Whether a variable is read and nothing else; None stands for one that is not found."""
    if placeholder is None:
        return False
    consumers: Iterable[Any] = placeholder.consumers()
    return all(consumer.type in READS for consumer in consumers)
