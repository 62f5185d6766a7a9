"""Which advertisements are clicked on: DeepFM in Keras, its rows in the master.

Records: columns as `prepare_data` writes them (`label`, `I1` … `I13`, `C1` … `C26`), or as Criteo
or Avazu publish theirs, see `LAYOUTS`. A category holds integers or texts.

Source: Guo et al., "DeepFM: A Factorization-Machine based Neural Network for CTR Prediction", IJCAI
2017.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elastic.embedding import Embedding, RowDtype, to_ids


class Layout(NamedTuple):
    """The columns of a file: 1 in `label` where one clicked, numbers, categories."""

    label: str
    numbers: tuple[str, ...]
    categories: tuple[str, ...]


LAYOUTS = (
    Layout(
        "label",
        tuple(f"I{index}" for index in range(1, 14)),
        tuple(f"C{index}" for index in range(1, 27)),
    ),
    # Criteo's files have no header.
    Layout(
        "c0",
        tuple(f"c{index}" for index in range(1, 14)),
        tuple(f"c{index}" for index in range(14, 40)),
    ),
    # Avazu's have no numbers.
    Layout(
        "click",
        (),
        (
            *("hour", "C1", "banner_pos", "site_id", "site_domain", "site_category"),
            *("app_id", "app_domain", "app_category"),
            *("device_id", "device_ip", "device_model", "device_type", "device_conn_type"),
            *(f"C{index}" for index in range(14, 22)),
        ),
    ),
)


@keras.saving.register_keras_serializable("clicks")
class CustomModel(keras.Model):
    """A factorization machine beside a network with two hidden layers, over the same rows."""

    def __init__(
        self, dim: int = 8, hidden: int = 64, row_dtype: RowDtype = "float32", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.dim, self.hidden, self.row_dtype = dim, hidden, row_dtype
        # The weight of a category's value, and then its vector: one table, so one read a step.
        self.rows = Embedding(1 + dim, initializer="normal(0.01)", name="rows", row_dtype=row_dtype)
        self.flat = keras.layers.Flatten()
        self.deep = keras.Sequential(
            [
                keras.layers.Dense(hidden, activation="relu"),
                keras.layers.Dense(hidden, activation="relu"),
                keras.layers.Dense(1),
            ]
        )

    def call(self, features: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Map `ids` (n, categories) int64 and `numbers` (n, numbers) to logits (n,)."""
        rows = self.rows(features["ids"])
        weights, vectors = rows[..., 0], rows[..., 1:]
        # The sum of the products of all pairs.
        pairs = tf.reduce_sum(
            tf.reduce_sum(vectors, axis=1) ** 2 - tf.reduce_sum(vectors**2, axis=1), axis=1
        )
        deep = self.deep(tf.concat([self.flat(vectors), features["numbers"]], axis=1))
        return tf.reduce_sum(weights, axis=1) + pairs / 2 + deep[:, 0]

    def get_config(self) -> dict[str, Any]:
        own = {"dim": self.dim, "hidden": self.hidden, "row_dtype": self.row_dtype}
        return {**super().get_config(), **own}


def loss(labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
    """Mean cross-entropy; `labels` is (n,), 1 for a click, `predictions` (n,) logits."""
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=predictions)
    return tf.reduce_mean(losses)


def optimizer() -> keras.optimizers.Optimizer:
    """Adam, of dense parameters and of those rows that a minibatch has."""
    return keras.optimizers.Adam(learning_rate=0.002)


def batch_fn(columns: Mapping[str, NDArray[Any]], mode: str) -> Any:
    """Numbers by their logarithm, 0 where they are missing; ids of the categories' values."""
    layout = layout_of(columns)
    features = {"numbers": numbers(columns, layout), "ids": ids(columns, layout)}
    if mode == "prediction":
        return features
    return features, columns[layout.label].astype(np.float32)


def layout_of(columns: Mapping[str, NDArray[Any]]) -> Layout:
    """Whose columns these are; those of a prediction may lack the label."""
    return next(each for each in LAYOUTS if {*each.numbers, *each.categories} <= columns.keys())


def numbers(columns: Mapping[str, NDArray[Any]], layout: Layout) -> NDArray[np.float32]:
    """Of shape (n, numbers)."""
    found = np.empty((len(columns[layout.categories[0]]), len(layout.numbers)), np.float32)
    for place, name in enumerate(layout.numbers):
        found[:, place] = columns[name]
    # Criteo has some that are -1 or -2.
    return np.log1p(np.nan_to_num(found, copy=False).clip(0))


def ids(columns: Mapping[str, NDArray[Any]], layout: Layout) -> NDArray[np.int64]:
    """Of shape (n, categories): values of two categories are never the same row."""
    found = [to_ids(columns[name]) for name in layout.categories]
    return np.stack(found, axis=1) * len(found) + np.arange(len(found))


def eval_metrics_fn() -> dict[str, Any]:
    """The area under the ROC curve."""
    return {"auc": keras.metrics.AUC(num_thresholds=1000, from_logits=True)}
