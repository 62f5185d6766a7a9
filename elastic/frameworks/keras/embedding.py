"""The Keras layer whose table is elsewhere: it asks for the rows of the ids it is called with.

A `keras.layers.Embedding` above a size becomes one.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from elastic.errors import ModelDefError
from elastic.frameworks.base import Array, Replacement
from elastic.frameworks.embeddings import (
    NO_DISTRIBUTION,
    Reads,
    RowSource,
    check_names,
    checked_table,
    initializer_of,
    merged,
    refused_reading,
)
from elastic.frameworks.keras.tensors import to_array
from elastic.rows.base import Ids, Life, RowDtype, RowGradient, Values
from elastic.rows.ids import distinct_with_places, to_ids

RowTensors: TypeAlias = Mapping[str, Sequence[tuple[Any, Any]]]
"""Ids and gradients of each read, by table."""

_MADE_NAME: Final = re.compile(r"embedding(_\d+)?")
"""A name that Keras makes; their numbers differ from process to process."""


@keras.saving.register_keras_serializable(package="elastic")
class Embedding(keras.layers.Layer):  # type: ignore[misc]
    """Rows of a table that is made row by row, and may be larger than any process's memory.

    It has no variables. In a job rows come from the master, and their gradients go there; anywhere
    else all rows have their first values.
    """

    def __init__(
        self,
        dim: int,
        combiner: str | None = None,
        initializer: str = "uniform(0.05)",
        name: str | None = None,
        padding_id: int | str | None = None,
        admit_after: int = 1,
        expire_after: int | None = None,
        max_rows: int | None = None,
        row_dtype: RowDtype = "float32",
        **options: Any,
    ) -> None:
        """Declare a table.

        Args:
            dim: Numbers of a row.
            combiner: None gives a row for each id; `sum`, `mean` and `sqrtn` (the sum by the root
                of the number) make one vector of the ids along the last axis, zeros of none.
            initializer: How rows begin: `uniform(0.05)`, `normal(0.01)`, `constant(0.1)`,
                `zeros`, `ones`.
            name: Of the layer and of its table, unique in the model.
            padding_id: An id that stands for none: it is left out of combiners, gives zeros
                without one, and has no row.
            admit_after: An id gets a row in the update in which it comes for the so-manieth time.
            expire_after: Rows go that were in none of so many updates; None for never.
            max_rows: Where there would be more, those go that were in the fewest updates.
            row_dtype: What is stored of a row's numbers: `float32`, `bfloat16`, or `int8` with a
                scale for each row. They are float32 wherever they are computed with.
            options: Of any Keras layer, such as `dtype`.

        Raises:
            ModelDefError: One of these has no such value.
        """
        super().__init__(name=name, **options)
        life = Life(admit_after, expire_after, max_rows)
        self.source = RowSource(checked_table(dim, combiner, initializer, name, life, row_dtype))
        self.combiner = combiner
        self.padding_id = padding_id
        self.is_named = name is not None
        self.is_in_model = False
        self._padding = None if padding_id is None else int(to_ids([padding_id])[0])

    def call(self, ids: Any, weights: Any = None) -> Any:
        """Look rows up.

        Args:
            ids: Integers or texts of shape S; with a combiner also a RaggedTensor of two
                dimensions.
            weights: With a combiner, one for each id, in the same form.

        Returns:
            A tensor of shape (*S, dim); with a combiner without the last axis of S.

        Raises:
            ModelDefError: They are neither integers nor texts, or of another form.
        """
        if self.combiner is not None:
            return self._combined(_bags(ids, weights))
        if isinstance(ids, tf.RaggedTensor) or weights is not None:
            raise ModelDefError(
                f"the embedding {self.name!r} is given ragged ids or weights: it needs a combiner"
            )
        ids = _as_ids(ids)
        rows, index, _ = self._rows(tf.reshape(ids, [-1]))
        made = tf.reshape(tf.gather(rows, index), [*_sizes(ids), self.source.table.dim])
        return tf.cast(made, self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """What a `.keras` file has of the layer: of the table its name alone."""
        own = {
            "dim": self.source.table.dim,
            "combiner": self.combiner,
            "initializer": self.source.table.initializer,
            "padding_id": self.padding_id,
            "row_dtype": self.source.table.row_dtype,
            **asdict(self.source.table.life),
        }
        table = {"table": self.source.table.name} if self.is_named or self.is_in_model else {}
        return {**super().get_config(), **own, **table}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Embedding":
        """Make the layer of a file again, with its table's name."""
        table = config.pop("table", None)
        layer = cls(**config)
        layer.is_named = table is not None
        if table is not None:
            layer.source.name(table)
        return layer

    def _combined(self, bags: "_Bags") -> Any:
        rows, index, is_id = self._rows(bags.flat)
        weights = tf.cast(is_id, tf.float32)
        if bags.weights is not None:
            weights *= tf.cast(bags.weights, tf.float32)
        total = bags.sums(tf.gather(rows, index) * weights[:, tf.newaxis])
        if self.combiner == "mean":
            total = tf.math.divide_no_nan(total, bags.sums(weights)[:, tf.newaxis])
        if self.combiner == "sqrtn":
            norm = tf.sqrt(bags.sums(tf.square(weights)))
            total = tf.math.divide_no_nan(total, norm[:, tf.newaxis])
        made = tf.reshape(total, [*bags.shape, self.source.table.dim])
        return tf.cast(made, self.compute_dtype)

    def _rows(self, flat: Any) -> tuple[Any, Any, Any]:
        """The row of each id once, for each id which of them is its, and whether it is no padding.

        A padding looks at one more row, of zeros.
        """
        types = [tf.int64, tf.float32, tf.int64]
        ids, rows, index = tf.numpy_function(self._look_up, [flat], types)
        ids.set_shape([None])
        rows.set_shape([None, self.source.table.dim])
        index.set_shape(flat.shape)
        self.source.tell(ids, rows)
        num_rows = tf.shape(rows, tf.int64)[0]
        if self._padding is not None:
            rows = tf.pad(rows, [[0, 1], [0, 0]])
        return rows, index, index < num_rows

    def _look_up(self, flat: Array) -> tuple[Ids, Values, Ids]:
        try:
            return self._looked_up(flat)
        except Exception as error:
            if not self.source.keep_fault(error):
                raise
            # TensorFlow would log it with all its frames, and make one of its own of it.
            return self._no_rows(len(flat))

    def _looked_up(self, flat: Array) -> tuple[Ids, Values, Ids]:
        ids = to_ids(flat)
        is_id = slice(None) if self._padding is None else ids != self._padding
        unique, index = distinct_with_places(ids[is_id])
        places = np.full(len(ids), len(unique), np.int64)
        places[is_id] = index
        return unique, self.source.read(unique), places

    def _no_rows(self, num_ids: int) -> tuple[Ids, Values, Ids]:
        """What the rest of a step can be run with."""
        values = np.zeros((1, self.source.table.dim), np.float32)
        return np.zeros(1, np.int64), values, np.zeros(num_ids, np.int64)


def sources_of(model: Any) -> list[RowSource]:
    """Of all embeddings of a model, with their names.

    Names that Keras has made are numbered anew, for it numbers the layers of a process.

    Raises:
        ModelDefError: Two layers have one name.
    """
    # Layers within layers are in no public list.
    layers = [each for each in model._flatten_layers() if isinstance(each, Embedding)]  # noqa: SLF001
    layers.sort(key=lambda layer: _number_in(layer.name))
    unnamed = [layer for layer in layers if not layer.is_named]
    for number, layer in enumerate(unnamed):
        layer.is_in_model = True
        layer.source.name(f"embedding_{number}" if number else "embedding")
    sources = [layer.source for layer in layers]
    check_names([source.table for source in sources])
    return sources


def watched_by(tape: Any) -> Any:
    """What is done to the rows of each read, so that a tape gives their gradient."""
    graph = tf.compat.v1.get_default_graph()

    def watch(rows: Any) -> None:
        if rows.graph is not graph:
            raise ModelDefError(
                "an embedding is called within a loop, a condition or a tf.function of the model, "
                "where its gradient cannot be had: look the ids up before it"
            )
        tape.watch(rows)

    return watch


def dense_rows(gradient: Any, rows: Any) -> Any:
    """The gradient of some rows; zeros where the loss does not depend on them."""
    if gradient is None:
        return tf.zeros_like(rows)
    if isinstance(gradient, tf.IndexedSlices):
        num_rows = tf.shape(rows)[0]
        return tf.math.unsorted_segment_sum(gradient.values, gradient.indices, num_rows)
    return gradient


def row_gradients(tensors: RowTensors) -> dict[str, RowGradient]:
    """What a compiled step gives of each table that was read."""
    return {
        name: merged([(to_array(ids), to_array(gradient)) for ids, gradient in reads])
        for name, reads in tensors.items()
        if reads
    }


def with_gradients(reads: Reads, gradients: Sequence[Any]) -> RowTensors:
    """Ids with their gradients, which are in the order of `reads.rows`."""
    left = iter(gradients)
    return {name: [(ids, next(left)) for ids, _ in each] for name, each in reads.by_table.items()}


@dataclass(frozen=True, slots=True)
class _Bags:
    """Ids of bags, one after the other, as tensors.

    Attributes:
        flat: All ids.
        owners: The bag of each.
        num_bags: How many there are.
        shape: Of what comes out, without its last dimension.
        weights: One for each id.
    """

    flat: Any
    owners: Any
    num_bags: Any
    shape: Sequence[Any]
    weights: Any

    def sums(self, values: Any) -> Any:
        """The sum over each bag; zeros of an empty one."""
        return tf.math.unsorted_segment_sum(values, self.owners, self.num_bags)


def _bags(ids: Any, weights: Any) -> _Bags:
    if isinstance(ids, tf.RaggedTensor):
        return _ragged_bags(ids, weights)
    ids = _as_ids(ids)
    if not ids.shape.rank:
        raise ModelDefError("an embedding with a combiner is given a single id: give a list")
    *shape, length = _sizes(ids)
    num_bags = tf.reduce_prod(shape) if shape else 1
    owners = tf.repeat(tf.range(num_bags), length)
    if weights is not None:
        weights = tf.reshape(tf.ensure_shape(weights, ids.shape), [-1])
    return _Bags(tf.reshape(ids, [-1]), owners, num_bags, shape, weights)


def _ragged_bags(ids: Any, weights: Any) -> _Bags:
    if ids.shape.rank != 2:
        raise ModelDefError(
            f"an embedding is given a RaggedTensor of {ids.shape.rank} dimensions: give one of two"
        )
    if weights is not None:
        weights = weights.flat_values
    return _Bags(_as_ids(ids.values), ids.value_rowids(), ids.nrows(), [ids.nrows()], weights)


def _as_ids(ids: Any) -> Any:
    """Integers or texts as a tensor.

    Raises:
        ModelDefError: They are something else, which is not rounded: large ids would be lost.
    """
    ids = tf.convert_to_tensor(ids)
    if ids.dtype.is_integer or ids.dtype == tf.string:
        return ids
    if _is_of_shapes_alone(ids):
        return tf.cast(ids, tf.int64)
    raise ModelDefError(
        f"ids of an embedding are of type {ids.dtype.name}: give integers or texts; a Sequential "
        'model makes float32 of integers unless it begins with keras.Input(shape, dtype="int64")'
    )


def _is_of_shapes_alone(tensor: Any) -> bool:
    """Whether Keras only looks what shapes come out, as of a model in a file, by floats.

    It has no public way to tell that, but a graph of its own, which is never run.
    """
    return not tf.executing_eagerly() and tensor.graph.name.startswith("scratch_graph")


def _sizes(tensor: Any) -> list[Any]:
    """The dimensions of a tensor: numbers where they are known, else tensors."""
    found = tf.shape(tensor)
    return [
        found[axis] if size is None else size for axis, size in enumerate(tensor.shape.as_list())
    ]


def _number_in(name: str) -> int:
    """The number that Keras has put behind a layer's name."""
    found = re.search(r"_(\d+)$", name)
    return int(found[1]) if found else 0


@keras.saving.register_keras_serializable(package="elastic")
class TableInPlace(Embedding):
    """What an ordinary layer has become; it is called as it was before."""

    def __init__(self, dim: int, *args: Any, mask_zero: bool = False, **options: Any) -> None:
        """Declare a table, as a file of a model says it.

        Args:
            dim: Numbers of a row.
            args: Of `Embedding`.
            mask_zero: Later layers leave out where the id is 0.
            options: Of `Embedding`.
        """
        super().__init__(dim, *args, **options)
        self.mask_zero = mask_zero
        self.supports_masking = mask_zero

    def call(self, inputs: Any) -> Any:  # type: ignore[override]  # Keras' name
        """Look rows up as Keras' layer does, which takes ids that are floats as well."""
        inputs = tf.convert_to_tensor(inputs)
        return super().call(inputs if inputs.dtype.is_integer else tf.cast(inputs, tf.int32))

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:  # noqa: ARG002 - Keras' names
        """Where ids are not 0, for layers that leave those out."""
        return keras.ops.not_equal(inputs, 0) if self.mask_zero else None

    def get_config(self) -> dict[str, Any]:
        """See `Embedding`."""
        return {**super().get_config(), "mask_zero": self.mask_zero}

    @property
    def embeddings(self) -> Any:
        """There are none.

        Raises:
            ModelDefError: Always.
        """
        raise refused_reading(self.name, "embeddings")


def replace_layers(model: Any, threshold_bytes: int) -> Replacement:
    """Replace the embedding layers of a model whose values take so many bytes or more.

    The objects stay, for the model's graph, lists and attributes know them.

    Args:
        model: Whose variables exist.
        threshold_bytes: From 0 on.
    """
    replaced: dict[str, str] = {}
    left: dict[str, str] = {}
    # Layers within layers are in no public list.
    for layer in model._flatten_layers():  # noqa: SLF001
        if not isinstance(layer, keras.layers.Embedding) or not layer.built:
            continue
        if 4 * layer.input_dim * layer.output_dim < threshold_bytes:
            continue
        reason = _obstacle(layer)
        initializer = None if reason else initializer_of(to_array(layer.embeddings.value))
        if initializer is None:
            left[layer.name] = reason or NO_DISTRIBUTION
        else:
            replaced[layer.name] = initializer
            _replace(layer, initializer)
    return Replacement(replaced, left)


def _obstacle(layer: Any) -> str | None:
    """Why rows in a table would be something else; None where they are the same."""
    obstacles = {
        f"it is a {type(layer).__name__}, which may do otherwise": type(layer)
        is not keras.layers.Embedding,
        "it has embeddings_regularizer": layer.embeddings_regularizer is not None,
        "it has embeddings_constraint": layer.embeddings_constraint is not None,
        "it has activity_regularizer": layer.activity_regularizer is not None,
        "it has lora_rank": layer.lora_enabled,
        "it is quantized": layer.quantization_mode is not None,
        "it is not trained": not layer.trainable_variables,
        "its numbers are no float32": layer.variable_dtype != "float32",
    }
    return next((reason for reason, holds in obstacles.items() if holds), None)


def _replace(layer: Any, initializer: str) -> None:
    is_named = _MADE_NAME.fullmatch(layer.name) is None
    name = layer.name if is_named else None
    made = Embedding(layer.output_dim, initializer=initializer, name=name, dtype=layer.dtype_policy)
    made.source.take_ids_below(layer.input_dim)
    del layer._embeddings  # noqa: SLF001 - Keras has the same done to make others of them
    layer.__class__ = TableInPlace
    of_all_layers = vars(keras.layers.Layer())
    for attribute, value in vars(made).items():
        if attribute not in of_all_layers:
            setattr(layer, attribute, value)
