"""A causal transformer that predicts the next byte of source text, in Keras.

Pre-norm blocks, learned positions, 0.87 million parameters by default (3.5 MB), so that
computing a gradient costs far more than sending it. `char_lm_torch` is the same function.

Records: `window` (context + 1,) uint8.
"""

from typing import Any

import keras
import tensorflow as tf

VOCABULARY_SIZE = 256
INITIAL_STD = 0.02
# The value of torch, so that both twins compute the same function.
LAYER_NORM_EPSILON = 1e-5


def _dense(units: int, activation: str | None = None) -> keras.layers.Dense:
    initializer = keras.initializers.RandomNormal(stddev=INITIAL_STD)
    return keras.layers.Dense(units, activation, kernel_initializer=initializer)


def _embedding(rows: int, d_model: int) -> keras.layers.Embedding:
    initializer = keras.initializers.RandomNormal(stddev=INITIAL_STD)
    return keras.layers.Embedding(rows, d_model, embeddings_initializer=initializer)


def _layer_norm() -> keras.layers.LayerNormalization:
    return keras.layers.LayerNormalization(epsilon=LAYER_NORM_EPSILON)


class Block(keras.layers.Layer):
    """Causal self-attention and a feed-forward layer, each around a residual path."""

    def __init__(self, d_model: int, n_heads: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.n_heads = n_heads
        self.attention_norm = _layer_norm()
        self.qkv = _dense(3 * d_model)
        self.attention_output = _dense(d_model)
        self.feed_forward_norm = _layer_norm()
        self.expand = _dense(4 * d_model, "gelu")
        self.contract = _dense(d_model)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Map (n, time, d_model) to the same shape."""
        n, time, d_model = keras.ops.shape(x)
        qkv = self.qkv(self.attention_norm(x))
        qkv = keras.ops.reshape(qkv, (n, time, 3, self.n_heads, d_model // self.n_heads))
        q, k, v = keras.ops.unstack(qkv, 3, axis=2)
        mixed = keras.ops.dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attention_output(keras.ops.reshape(mixed, (n, time, d_model)))
        return x + self.contract(self.expand(self.feed_forward_norm(x)))


@keras.saving.register_keras_serializable("char_lm")
class CustomModel(keras.Model):
    """The transformer; `context` is the most bytes it can be given."""

    def __init__(
        self,
        d_model: int = 128,
        n_layers: int = 4,
        n_heads: int = 4,
        context: int = 64,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if d_model % n_heads:
            raise ValueError(f"d_model={d_model} must be a multiple of n_heads={n_heads}")
        self.sizes = {
            "d_model": d_model,
            "n_layers": n_layers,
            "n_heads": n_heads,
            "context": context,
        }
        self.embedding = _embedding(VOCABULARY_SIZE, d_model)
        self.positions = _embedding(context, d_model)
        self.blocks = [Block(d_model, n_heads, name=f"block_{i}") for i in range(n_layers)]
        self.norm = _layer_norm()
        self.logits = _dense(VOCABULARY_SIZE)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, for exports."""
        return {**super().get_config(), **self.sizes}

    def call(self, tokens: tf.Tensor) -> tf.Tensor:
        """Map bytes (n, time) int64 to logits (n, time, 256)."""
        x = self.embedding(tokens) + self.positions(keras.ops.arange(keras.ops.shape(tokens)[1]))
        for block in self.blocks:
            x = block(x)
        return self.logits(self.norm(x))


def loss(labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
    """Mean cross-entropy in nats per byte."""
    losses = keras.losses.sparse_categorical_crossentropy(labels, predictions, from_logits=True)
    return tf.reduce_mean(losses)


def optimizer() -> keras.optimizers.Optimizer:
    """Adam, as in the torch twin."""
    return keras.optimizers.Adam(learning_rate=1e-3, epsilon=1e-8)


def dataset_fn(dataset: tf.data.Dataset, mode: str) -> tf.data.Dataset:
    """Split each window into the bytes seen and, one place on, the bytes to predict."""

    def split(record: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        window = tf.cast(record["window"], tf.int64)
        return window[:-1], window[1:]

    return dataset.map(split)


def eval_metrics_fn() -> dict[str, Any]:
    """The fraction of bytes predicted correctly."""
    return {"accuracy": keras.metrics.SparseCategoricalAccuracy()}
