"""Which advertisements are clicked on: Wide & Deep in Keras, its rows in the master.

A linear model over categories and pairs of them, which remembers, beside a network over vectors of
the categories, which generalises. Records, batches and metrics are those of `deepfm_keras`.

Source: Cheng et al., "Wide & Deep Learning for Recommender Systems", DLRS 2016.
"""

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf
from numpy.typing import NDArray

from clicks.deepfm_keras import batch_fn as separate
from clicks.deepfm_keras import eval_metrics_fn, loss
from elastic.embedding import Embedding

__all__ = ["CustomModel", "batch_fn", "eval_metrics_fn", "loss", "optimizer"]

CROSSED = ((0, 1), (0, 2), (1, 2), (2, 3), (3, 4))
"""Pairs of categories, by their places, whose values are looked at together."""
_ODD = -7_046_029_254_386_353_131


@keras.saving.register_keras_serializable("clicks", "WideDeep")
class CustomModel(keras.Model):
    """Weights of values and of pairs, beside a network with two hidden layers."""

    def __init__(self, dim: int = 8, hidden: int = 64, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dim, self.hidden = dim, hidden
        self.wide = Embedding(1, combiner="sum", initializer="zeros", name="wide")
        self.vectors = Embedding(dim, initializer="uniform(0.05)", name="vectors")
        self.flat = keras.layers.Flatten()
        self.deep = keras.Sequential(
            [
                keras.layers.Dense(hidden, activation="relu"),
                keras.layers.Dense(hidden, activation="relu"),
                keras.layers.Dense(1),
            ]
        )

    def call(self, features: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Map `ids`, `crossed` (n, pairs) and `numbers` to logits (n,)."""
        ids = features["ids"]
        wide = self.wide(tf.concat([ids, features["crossed"]], axis=1))
        deep = self.deep(tf.concat([self.flat(self.vectors(ids)), features["numbers"]], axis=1))
        return (wide + deep)[:, 0]

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "dim": self.dim, "hidden": self.hidden}


def optimizer() -> keras.optimizers.Optimizer:
    """Adagrad: the seldomer a row is trained, the larger are its steps."""
    # As torch begins: from Keras' own 0.1, gradients as small as these move nothing.
    return keras.optimizers.Adagrad(learning_rate=0.05, initial_accumulator_value=0.0)


def batch_fn(columns: Mapping[str, NDArray[Any]], mode: str) -> Any:
    """The features of DeepFM, and ids of the pairs."""
    batch = separate(columns, mode)
    features = batch if mode == "prediction" else batch[0]
    features["crossed"] = crossed(features["ids"])
    return batch


def crossed(ids: NDArray[Any]) -> NDArray[Any]:
    """One id for each pair, of shape (n, pairs)."""
    first, second = ([pair[side] for pair in CROSSED] for side in (0, 1))
    return ids[:, first] * _ODD + ids[:, second]
