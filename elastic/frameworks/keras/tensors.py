"""TensorFlow's tensors: as NumPy arrays and back, of records, and what is said where they fail.

Values pass without a copy where that is safe, and many small ones as few tensors: TensorFlow takes
20 us to make a tensor of an array and some more to pass it on, whatever it holds. For a model of
many small variables that is more than their bytes cost.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import tensorflow as tf

from elastic.errors import ModelDefError
from elastic.frameworks.base import Array, Batch, Tensors, check_fit, writable_alias
from elastic.frameworks.user_code import (
    check_pair,
    dataset_code,
    max_examples,
    named,
    too_many_examples,
    user_code,
)
from elastic.spec.platforms import Mode

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


# The user's `dataset_fn` over the records of one minibatch, as a compiled tf.data pipeline.


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


# What TensorFlow says of a failed kernel, without the graph around it.


_NOISE: Final = re.compile(
    r"^Graph execution error:\s*|^<stack traces unavailable>\n?"
    r"|^Detected at node .*\n(?:\s*File .*\n|\s{4}.*\n|\s*\n)*"
    r"|\{\{function_node \S+\}\} ?|\s*\[\[\{?\{?.*\]\]|\s*\[Op:[^]]*\]( name:.*)?",
    re.MULTILINE,
)


@contextmanager
def keras_code(what: str | Callable[[], str]) -> Iterator[None]:
    """`user_code` for functions that run in TensorFlow.

    Raises:
        MemoryError: TensorFlow could not allocate a tensor.
    """
    with user_code(what):
        try:
            yield
        except tf.errors.ResourceExhaustedError as error:
            raise MemoryError(f"{named(what)} ran out of memory: {_plain(error)}") from error
        except tf.errors.OpError as error:
            text = f"{named(what)} failed: {type(error).__name__}: {_plain(error)}"
            raise ModelDefError(text) from error


def _plain(error: tf.errors.OpError) -> str:
    return " ".join(_NOISE.sub("", str(error.message)).split())
