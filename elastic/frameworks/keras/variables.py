"""TensorFlow's tensors and Keras' variables as named NumPy arrays, and back.

Values pass without a copy where that is safe, and many small ones as few tensors: TensorFlow takes
20 us to make a tensor of an array and some more to pass it on, whatever it holds. For a model of
many small variables that is more than their bytes cost.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import tensorflow as tf

from elastic.frameworks.base import Array, Tensors, check_fit, writable_alias

ALIGNMENT_BYTES: Final = 64
"""TensorFlow ends the process when a kernel meets memory that is not aligned to this."""

_SMALL_BYTES: Final = 1 << 16
"""Below this, TensorFlow's own copy is cheaper than avoiding it, and a copy into a joined array
cheaper than another call."""

_SHARED_KINDS: Final = "fiub"

ToTensor: TypeAlias = Callable[[str, Array], Any]


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


class Joining:
    """Small arrays of one dtype in one tensor, each of the others in its own."""

    def __init__(self, described: Mapping[str, Array]) -> None:
        """Choose what travels together.

        Args:
            described: Arrays of the shapes and dtypes that will come, of any values.
        """
        self._described = dict(described)
        by_dtype: dict[np.dtype[Any], list[str]] = {}
        for name, array in described.items():
            if array.nbytes < _SMALL_BYTES:
                by_dtype.setdefault(array.dtype, []).append(name)
        self._runs = [names for names in by_dtype.values() if len(names) > 1]
        joined = {name for names in self._runs for name in names}
        self._single = [name for name in described if name not in joined]

    def to_tensors(self, arrays: Mapping[str, Array], to_tensor: ToTensor) -> list[Any]:
        """What `split` takes.

        Args:
            to_tensor: Makes the tensor of an array that travels alone; the joined ones are copied.
        """
        singles = [to_tensor(name, arrays[name]) for name in self._single]
        runs = [
            tf.convert_to_tensor(np.concatenate([arrays[name].reshape(-1) for name in names]))
            for names in self._runs
        ]
        return singles + runs

    def split(self, tensors: Sequence[Any]) -> dict[str, Any]:
        """The tensor of each array, in the order of `described`; cheap in a compiled function."""
        pieces = dict(zip(self._single, tensors, strict=False))
        for names, run in zip(self._runs, tensors[len(self._single) :], strict=True):
            sizes = [self._described[name].size for name in names]
            for name, piece in zip(names, tf.split(run, sizes), strict=True):
                pieces[name] = tf.reshape(piece, self._described[name].shape)
        return {name: pieces[name] for name in self._described}


class VariableGroup:
    """Variables by name; arrays that it gives out never change."""

    def __init__(self, variables: Mapping[str, Any]) -> None:
        """Take variables that have their shapes."""
        self._variables = dict(variables)
        self._described = described(variables)
        self._joining = Joining(self._described)
        self._stager = Stager()
        self._read = tf.function(self._read_values)
        self._write = tf.function(self._assign)

    def read(self) -> Tensors:
        """Name to values."""
        if not self._variables:
            return {}
        return dict(zip(self._variables, map(to_array, self._read()), strict=True))

    def check(self, what: str, arrays: Mapping[str, Array]) -> None:
        """Check what is to be written.

        Args:
            what: What the variables are, for people, such as `parameters`.
            arrays: As `read` gives them.

        Raises:
            CheckpointError: They are not arrays of these variables.
        """
        check_fit(what, self._described, arrays)

    def write(self, arrays: Mapping[str, Array]) -> None:
        """Copy arrays in that are known to fit."""
        if self._variables:
            self._write(self._joining.to_tensors(arrays, self._stager.to_tensor))

    def _read_values(self) -> list[Any]:
        return [variable.value.read_value() for variable in self._variables.values()]

    def _assign(self, tensors: Sequence[Any]) -> None:
        for name, value in self._joining.split(tensors).items():
            # A variable takes the memory of what it is assigned, and this is the caller's.
            own = tf.raw_ops.DeepCopy(x=value)
            self._variables[name].value.assign(own, read_value=False)


def described(variables: Mapping[str, Any]) -> Tensors:
    """Arrays of the variables' shapes and dtypes, without their values."""
    return {
        name: np.broadcast_to(
            np.zeros((), tf.as_dtype(variable.dtype).as_numpy_dtype), tuple(variable.shape)
        )
        for name, variable in variables.items()
    }


def variable_names(variables: Sequence[Any]) -> list[str]:
    """A name for each variable of one model, in order: the same in every process.

    Keras numbers the layers of a process (`dense`, `dense_1`, …), so a second model of the same
    class has other paths than the first. Here the numbers are counted anew over one model, in the
    order of its variables; in a fresh process the names come out as Keras made them.
    """
    counted: dict[str, str] = {}
    used: dict[str, int] = {}
    names = []
    for variable in variables:
        parts = [_renumbered(part, counted, used) for part in variable.path.split("/")]
        names.append("/".join(parts))
    return _unique(names)


def optimizer_names(
    variables: Sequence[Any], model_variables: Sequence[Any], model_names: Sequence[str]
) -> list[str]:
    """Names of an optimizer's variables: `iteration`, or `dense/kernel/momentum` for a slot."""
    # Keras names a slot after its variable's path, with "_" for "/"; the longest match is meant.
    prefixes = sorted(
        (
            (f"{variable.path.replace('/', '_')}_", name)
            for variable, name in zip(model_variables, model_names, strict=True)
        ),
        key=lambda pair: -len(pair[0]),
    )
    names = []
    for variable in variables:
        leaf = variable.path.rpartition("/")[2]
        match = next((pair for pair in prefixes if leaf.startswith(pair[0])), None)
        names.append(leaf if match is None else f"{match[1]}/{leaf.removeprefix(match[0])}")
    return _unique(names)


def _renumbered(part: str, counted: dict[str, str], used: dict[str, int]) -> str:
    if part not in counted:
        base = re.sub(r"_\d+$", "", part)
        number = used.get(base, 0)
        used[base] = number + 1
        counted[part] = f"{base}_{number}" if number else base
    return counted[part]


def _unique(names: list[str]) -> list[str]:
    """Add `#1`, `#2`, … to names that come again: layers may give two weights one name."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        count = seen.get(name, 0)
        seen[name] = count + 1
        result.append(f"{name}#{count}" if count else name)
    return result
