"""Checks and sums over named NumPy tensors that both frameworks share."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from safetensors import SafetensorError

from elastic.errors import CheckpointError
from elastic.frameworks.base import Array, MetricState

_SYSTEM_ERROR: Final = re.compile(r"\(os error (\d+)\)")


def check_fit(what: str, expected: Mapping[str, Array], given: Mapping[str, Array]) -> None:
    """Check names, shapes and dtypes before anything is copied.

    Args:
        what: What the tensors are, for people, such as `parameters`.
        expected: What the model has.
        given: What is to be copied in.

    Raises:
        CheckpointError: A name is missing or unknown, or a shape or dtype differs.
    """
    missing = [name for name in expected if name not in given]
    unknown = [name for name in given if name not in expected]
    if missing or unknown:
        raise CheckpointError(
            f"the {what} do not fit this model: missing {_some(missing)}, unknown "
            f"{_some(unknown)}: use the model they were saved from"
        )
    for name, array in expected.items():
        other = given[name]
        if array.shape != other.shape or array.dtype != other.dtype:
            raise CheckpointError(
                f"the {what} do not fit this model: {name} is {array.dtype}{list(array.shape)} "
                f"here and {other.dtype}{list(other.shape)} there: use the model they were "
                "saved from"
            )


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3]) or "nothing"
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def mean_state(name: str, mean: float, num_examples: int) -> MetricState:
    """The state of a metric that is a mean over examples."""
    # Arrays of one element, as sums of arrays without dimensions are no arrays any more.
    return MetricState(name, (np.array([mean * num_examples]), np.array([float(num_examples)])))


def mean_of(state: MetricState) -> float:
    """The mean behind a merged `mean_state`; NaN over no examples."""
    total, examples = (float(np.sum(value)) for value in state.values)
    return total / examples if examples else float("nan")


def widened(array: Array) -> Array:
    """Sums over an epoch pass the 2**24 at which float32 no longer counts."""
    wide = array.astype(np.float64) if array.dtype.kind in "fV" else array
    # At least one dimension, as sums of arrays without dimensions are no arrays any more.
    return np.atleast_1d(wide)


def named_results(name: str, result: Any) -> dict[str, float]:
    """A metric's result under its name; several where it is a dict or has several values."""
    if isinstance(result, Mapping):
        return {f"{name}_{key}": float(value) for key, value in result.items()}
    flat = np.asarray(result).reshape(-1)
    if flat.size == 1:
        return {name: float(flat[0])}
    return {f"{name}_{index}": float(value) for index, value in enumerate(flat)}


def disk_error(error: SafetensorError, path: Path) -> OSError:
    """The system's error that safetensors has wrapped: a full disk stays recognisable as one."""
    number = _SYSTEM_ERROR.search(str(error))
    if number is None:
        return OSError(f"{path}: {error}")
    return OSError(int(number[1]), os.strerror(int(number[1])), str(path))


class _Alias:
    """Offers an array's memory once more, without its read-only mark."""

    def __init__(self, array: Array) -> None:
        interface = array.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}
        self._owner = array


def writable_alias(array: Array) -> Array:
    """The same memory, for a library that refuses read-only arrays; the caller must not write."""
    return np.asarray(_Alias(array))
