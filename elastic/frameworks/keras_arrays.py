"""TensorFlow tensors as NumPy arrays and back, without copying where that is safe."""

from typing import Any, Final

import numpy as np
import tensorflow as tf

from elastic.frameworks.base import Array
from elastic.frameworks.tensors import writable_alias

ALIGNMENT_BYTES: Final = 64
"""TensorFlow ends the process when a kernel meets memory that is not aligned to this."""

_SMALL_BYTES: Final = 1 << 16
"""Below this, TensorFlow's own copy is cheaper than avoiding it."""

_SHARED_KINDS: Final = "fiub"


def to_array(tensor: Any) -> Array:
    """The values of an eager tensor or variable, which never change afterwards.

    TensorFlow copies a variable before it writes to memory that somebody else still reads, so
    sharing the memory is safe.
    """
    if isinstance(tensor, tf.Variable):
        tensor = tensor.read_value()
    if tensor.dtype == tf.bfloat16 or "CPU" not in tensor.device:
        # The buffer protocol knows neither bfloat16 nor other memory than the machine's own.
        copied: Array = tensor.numpy()
        return copied
    return np.asarray(memoryview(tensor))


class Stager:
    """Hands NumPy arrays to TensorFlow, through aligned memory that is used again every time.

    Its tensors are for one call only: the next call with the same key may change them.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Array] = {}

    def to_tensor(self, key: str, array: Array) -> Any:
        """A tensor with the array's values, on the array's own memory if that is aligned."""
        if array.nbytes < _SMALL_BYTES or array.dtype.kind not in _SHARED_KINDS:
            return tf.convert_to_tensor(array)
        if not array.flags.c_contiguous or array.ctypes.data % ALIGNMENT_BYTES:
            buffer = self._buffers.get(key)
            if buffer is None:
                buffer = self._buffers[key] = aligned_empty(array.shape, array.dtype)
            np.copyto(buffer, array)
            array = buffer
        # Arrays without a writable mark cannot be exported.
        return tf.experimental.dlpack.from_dlpack(writable_alias(array).__dlpack__())


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An uninitialised array whose memory TensorFlow can use as it is."""
    size_bytes = int(np.prod(shape)) * dtype.itemsize
    raw = np.empty(size_bytes + ALIGNMENT_BYTES, np.uint8)
    offset = -raw.ctypes.data % ALIGNMENT_BYTES
    return raw[offset : offset + size_bytes].view(dtype).reshape(shape)
