"""`keras.layers.Embedding` above a size becomes a layer whose rows are in a table."""

import re
from typing import Any, Final

import keras
import tensorflow as tf

from elastic.frameworks.base import Replacement
from elastic.frameworks.keras.embedding import Embedding
from elastic.frameworks.keras.variables import to_array
from elastic.frameworks.replacing import NO_DISTRIBUTION, initializer_of, refused_reading

_MADE_NAME: Final = re.compile(r"embedding(_\d+)?")
"""A name that Keras makes; their numbers differ from process to process."""


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
