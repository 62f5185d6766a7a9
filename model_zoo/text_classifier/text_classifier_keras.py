"""Which part of Python's library a passage comes from: a bag of hashed words, in Keras.

Records: rows with `text`, some lines of source text, and `area`, one of `AREAS`.
"""

from typing import Any

import keras
import tensorflow as tf

AREAS = ("asyncio", "email", "import", "processes", "testing", "web", "xml")
NUM_BUCKETS = 4096
"""Words share so many rows of the embedding; row 0 stands for no word."""
MAX_WORDS = 80
_NO_LETTERS = "[^A-Za-z]+"


def custom_model(dim: int = 32) -> keras.Model:
    """Build the network: the mean of the words' embeddings, and one linear layer."""
    words = keras.Input((MAX_WORDS,), dtype="int64", name="words")
    embedded = keras.layers.Embedding(NUM_BUCKETS, dim, mask_zero=True)(words)
    mean = keras.layers.GlobalAveragePooling1D()(embedded)
    return keras.Model(words, keras.layers.Dense(len(AREAS), name="logits")(mean))


def loss(labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
    """Mean cross-entropy; `labels` is (n,) int64, `predictions` (n, 7) logits."""
    losses = keras.losses.sparse_categorical_crossentropy(labels, predictions, from_logits=True)
    return tf.reduce_mean(losses)


def optimizer() -> keras.optimizers.Optimizer:
    """Adam with a high rate, as most rows of the embedding are seldom trained."""
    return keras.optimizers.Adam(learning_rate=0.02)


def dataset_fn(dataset: tf.data.Dataset, mode: str) -> tf.data.Dataset:
    """Split the text into words, hash them, and fill up with zeros to `MAX_WORDS`."""

    def parse(record: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        text = tf.strings.strip(tf.strings.regex_replace(record["text"], _NO_LETTERS, " "))
        words = tf.strings.split(tf.strings.lower(text))[:MAX_WORDS]
        rows = 1 + tf.strings.to_hash_bucket_fast(words, NUM_BUCKETS - 1)
        padded = tf.pad(rows, [[0, MAX_WORDS - tf.shape(rows)[0]]])
        return tf.ensure_shape(padded, (MAX_WORDS,)), tf.argmax(tf.equal(record["area"], AREAS))

    return dataset.map(parse)


def eval_metrics_fn() -> dict[str, Any]:
    """The fraction of passages named correctly."""
    return {"accuracy": keras.metrics.SparseCategoricalAccuracy()}
