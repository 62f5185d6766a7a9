"""The user's `dataset_fn` over the records of one minibatch, as a compiled tf.data pipeline."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import tensorflow as tf

from elastic.errors import ModelDefError
from elastic.frameworks.base import Batch
from elastic.frameworks.keras.errors import keras_code
from elastic.frameworks.user_code import check_pair, dataset_code, max_examples, too_many_examples
from elastic.spec.kinds import Mode

_ALL: Final = 1 << 40
"""A batch size above any number of examples."""

_EMPTY_TEXT: Final = "Dataset was empty"
"""How TensorFlow says that a pipeline gave nothing."""

_ENDLESS_TEXT: Final = (
    "dataset_fn repeats its records without end: leave out repeat(), epochs are counted by the job"
)


class BatchMaker:
    """Runs one `dataset_fn` in one mode.

    The first minibatch runs eagerly. If the function only describes a pipeline and reads nothing
    itself, the pipeline is then compiled, once for any number of records: building it anew takes
    some ten times as long as running it. Records of unequal shapes run eagerly always.
    """

    def __init__(self, dataset_fn: Callable[..., Any], mode: Mode) -> None:
        self._dataset_fn = dataset_fn
        self._mode = mode
        self._compiled: Any = None
        self._is_traceable: bool | None = None

    def make(self, records: Sequence[Any]) -> Any:
        """All elements of the user's pipeline as one batch, or None where it gave none."""
        with dataset_code(records), keras_code("dataset_fn"):
            try:
                batch = self._make(records)
            except tf.errors.InvalidArgumentError as error:
                if _EMPTY_TEXT in str(error):
                    return None
                if _ENDLESS_TEXT in str(error):
                    raise ModelDefError(_ENDLESS_TEXT) from error
                raise
        if num_examples(batch) > max_examples(len(records)):
            raise too_many_examples(len(records))
        return batch

    def _make(self, records: Sequence[Any]) -> Any:
        if self._is_traceable:
            stacked = _stack(records)
            if stacked is not None and self._compiled is None:
                self._trace(stacked)
            if stacked is not None and self._compiled is not None:
                return self._compiled(stacked)
        return self._make_eagerly(records)

    def _make_eagerly(self, records: Sequence[Any]) -> Any:
        tensors = [_to_tensors(record) for record in records]
        specs = [tf.nest.map_structure(tf.TensorSpec.from_tensor, record) for record in tensors]
        signature = tf.nest.map_structure(
            lambda spec, *others: spec.most_specific_common_supertype(others), *specs
        )
        reads: list[bool] = []

        def generate() -> Iterator[Any]:
            reads.append(True)
            yield from tensors

        dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
        dataset = self._dataset_fn(dataset, self._mode)
        if self._is_traceable is None:
            # A function that iterates over its records would do so without end in a trace.
            self._is_traceable = not reads
        return self._finish(dataset, len(records))

    def _trace(self, stacked: Any) -> None:
        def run(tensors: Any) -> Any:
            dataset = tf.data.Dataset.from_tensor_slices(tensors)
            num_records = tf.shape(tf.nest.flatten(tensors)[0], tf.int64)[0]
            return self._finish(self._dataset_fn(dataset, self._mode), num_records)

        compiled = tf.function(run, reduce_retracing=True)
        try:
            compiled.get_concrete_function(tf.nest.map_structure(_any_size, stacked))
        except Exception:  # noqa: BLE001 - the eager run decides whose fault it is
            self._is_traceable = False
        else:
            self._compiled = compiled

    def _finish(self, dataset: Any, num_records: Any) -> Any:
        """Take everything from the user's pipeline, or one example more than there may be."""
        if not isinstance(dataset, tf.data.Dataset):
            raise ModelDefError(
                f"dataset_fn returned a {type(dataset).__name__}: return a tf.data.Dataset"
            )
        check_pair(dataset.element_spec, self._mode)
        is_finite = tf.debugging.assert_none_equal(
            dataset.cardinality(),
            tf.constant(tf.data.INFINITE_CARDINALITY, tf.int64),
            message=_ENDLESS_TEXT,
        )
        with tf.control_dependencies([] if is_finite is None else [is_finite]):
            most = max_examples(num_records)
            return dataset.take(most + 1).batch(_ALL).with_options(_options()).get_single_element()


def as_tensor(value: Any) -> Any:
    """A tensor for an array; ragged and sparse tensors as they are."""
    if isinstance(value, (tf.RaggedTensor, tf.SparseTensor)):
        return value
    return tf.convert_to_tensor(value)


def size_of(tensor: Any) -> int | None:
    """The first dimension of a tensor; None where it has no dimension."""
    return num_examples(tensor) if tensor.shape.rank else None


def num_examples(batch: Any) -> int:
    """The first dimension of a batch."""
    first = tf.nest.flatten(batch)[0]
    if isinstance(first, tf.SparseTensor):
        return int(first.dense_shape[0])
    if isinstance(first, tf.RaggedTensor):
        return int(first.nrows())
    return int(first.shape[0])


def rows(batch: Batch, start: int, end: int) -> Batch:
    """Some examples of a batch."""
    taken = partial(_rows, start=start, end=end)
    return Batch(
        tf.nest.map_structure(taken, batch.features),
        tf.nest.map_structure(taken, batch.labels),
        end - start,
    )


def _rows(tensor: Any, start: int, end: int) -> Any:
    if tensor is None:
        # Predictions have no labels.
        return None
    if isinstance(tensor, tf.SparseTensor):
        rest = tensor.dense_shape[1:]
        first = tf.concat([[start], tf.zeros_like(rest)], 0)
        return tf.sparse.slice(tensor, first, tf.concat([[end - start], rest], 0))
    return tensor[start:end]


def _options() -> Any:
    """Without what pays only over many elements: this pipeline runs for one batch."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_warm_start = False
    # Also, map_and_batch fusion would call the user's function for every one of _ALL slots.
    options.experimental_optimization.apply_default_optimizations = False
    return options


def _stack(records: Sequence[Any]) -> Any:
    """The records as tensors with one more dimension, or None where their shapes differ."""
    try:
        return _stacked(records)
    except (ValueError, TypeError, KeyError):
        return None


def _stacked(records: Sequence[Any]) -> Any:
    first = records[0]
    if isinstance(first, Mapping):
        return {name: _stacked([record[name] for record in records]) for name in first}
    if isinstance(first, tuple):
        return tuple(_stacked(column) for column in zip(*records, strict=True))
    if isinstance(first, np.ndarray):
        return tf.convert_to_tensor(np.stack(records))
    if isinstance(first, np.generic):
        return tf.convert_to_tensor(np.asarray(records))
    return tf.convert_to_tensor(records)


def _any_size(tensor: Any) -> Any:
    """The spec of a tensor with any number of examples."""
    if isinstance(tensor, tf.Tensor):
        return tf.TensorSpec([None, *tensor.shape[1:]], tensor.dtype)
    return tf.type_spec_from_value(tensor)


def _to_tensors(record: Any) -> Any:
    """One record as tensors; a list is a tensor, as it is for tf.data."""
    if isinstance(record, Mapping):
        return {name: _to_tensors(value) for name, value in record.items()}
    if isinstance(record, tuple):
        return tuple(_to_tensors(value) for value in record)
    return tf.convert_to_tensor(record)
