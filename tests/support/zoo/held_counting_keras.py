"""The zoo's counting model in Keras, which stops short of its end until a test lets it go on."""

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from waiting import wait_until_open

sys.path.append(str(Path(__file__).parents[3] / "model_zoo"))

from counting.counting_keras import *  # noqa: F403 - the rest of the module is that one's
from counting.counting_keras import CustomModel as Counting


class CustomModel(Counting):
    """Waits in each training step once `free_records` have counted."""

    def __init__(
        self, num_records: int, delay_ms: float, gate: str, free_records: int, **kwargs: Any
    ) -> None:
        super().__init__(num_records, delay_ms, **kwargs)
        self.gate = gate
        self.free_records = free_records

    def call(self, index: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Map indices (n,) int64 to their counts (n,)."""
        if training:
            # A bare wait would run once, when the graph is traced.
            tf.numpy_function(self._wait, [keras.ops.sum(self.counts)], tf.float32)
        return super().call(index, training=training)

    def _wait(self, counted: np.float32) -> np.float32:
        if counted >= self.free_records:
            wait_until_open(self.gate)
        return np.float32(0)
