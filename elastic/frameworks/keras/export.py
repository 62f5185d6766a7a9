"""A trained Keras model as a file or a folder that other programs read; whole, or not at all."""

import errno
import os
import shutil
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from zipfile import ZipFile

import h5py
import keras
import tensorflow as tf

from elastic.errors import ModelDefError
from elastic.frameworks.keras.errors import keras_code

_WEIGHTS: Final = "model.weights.h5"


def save_file(model: Any, target: Path) -> None:
    """Write a `.keras` file: the model's code, as far as it is Keras', its weights and state.

    Raises:
        OSError: The disk is full, or not writable.
        ModelDefError: Keras cannot save this model.
    """
    _write_beside(target, lambda partial: model.save(partial))


def save_folder(model: Any, features: Any, target: Path) -> None:
    """Write a SavedModel whose `serve` maps features, any number of them, to predictions.

    Args:
        model: Of Keras.
        features: Of a minibatch: they have the shapes and dtypes of all others.
        target: A folder; a SavedModel that is there gives way.

    Raises:
        OSError: The disk is full, or not writable.
        ModelDefError: TensorFlow cannot trace this model.
    """

    def write(partial: Path) -> None:
        archive = keras.export.ExportArchive()
        archive.track(model)
        signature = tf.nest.map_structure(_any_number, features)
        archive.add_endpoint(
            "serve", lambda given: model(given, training=False), input_signature=[signature]
        )
        try:
            archive.write_out(str(partial), verbose=False)
        except tf.errors.ResourceExhaustedError as error:
            # Of the disk: the model itself has been traced by then.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(partial)) from error

    _write_beside(target, write)


def load_file(model: Any, path: str) -> None:
    """Take all values of a `.keras` file.

    Raises:
        ModelDefError: It is none, or one of another model.
    """
    # Keras raises whatever the file makes it stumble over.
    with keras_code(f"reading --model={path}"):
        left = _arrays_saved(path) - _arrays_of(model)
        if not left:
            model.load_weights(path)
    if left:
        # Keras takes what the model has, and leaves the rest without a word.
        raise ModelDefError(
            f"reading --model={path} failed: it holds {min(left)}, which the model has not"
        )


def _arrays_saved(path: str) -> set[str]:
    """Where in a `.keras` file arrays of the model are."""
    with ZipFile(path) as archive:
        if _WEIGHTS not in archive.namelist():
            return set()
        with archive.open(_WEIGHTS) as file:
            # A model that was compiled by its user has its optimizer in the file too.
            return {name for name in _arrays_in(file) if not name.startswith("optimizer/")}


def _arrays_of(model: Any) -> set[str]:
    """Where they are if the model is written. Only Keras knows, and only by doing it."""
    with TemporaryDirectory() as folder:
        path = f"{folder}/own.weights.h5"
        model.save_weights(path)
        return _arrays_in(path)


def _arrays_in(file: Any) -> set[str]:
    found: set[str] = set()
    with h5py.File(file, "r") as groups:
        groups.visititems(
            lambda name, item: found.add(name) if isinstance(item, h5py.Dataset) else None
        )
    return found


def load_folder(model: Any, path: str) -> None:
    """Take all values of a SavedModel that `save_folder` has written.

    Raises:
        ModelDefError: It is none, or one of another model.
    """
    with keras_code(f"reading --model={path}"):
        found = list(getattr(tf.saved_model.load(path), "variables", ()))
    wanted = list(model.variables)
    saved, own = [_traits(v, v.name) for v in found], [_traits(v, v.path) for v in wanted]
    for number, (one, other) in enumerate(zip_longest(saved, own)):
        if one != other:
            raise ModelDefError(
                f"reading --model={path} failed: variable {number} is {one or 'missing'} there and "
                f"{other or 'none'} in the model"
            )
    for variable, value in zip(wanted, found, strict=True):
        variable.assign(value)


def _traits(variable: Any, path: str) -> str:
    """What is the same in each process; the names of layers may be numbered differently."""
    name = path.removesuffix(":0").rsplit("/", 1)[-1]
    return f"{name} {tf.as_dtype(variable.dtype).name}{list(variable.shape)}"


def _any_number(tensor: Any) -> Any:
    tensor = tf.convert_to_tensor(tensor)
    return tf.TensorSpec((None, *tensor.shape[1:]), tensor.dtype)


def _write_beside(target: Path, write: Callable[[Path], None]) -> None:
    """Have something written under another name, and give it its own."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".partial-{target.name}")
    _remove(partial)
    try:
        with keras_code("saving the model"):
            write(partial)
        _put(partial, target)
    except ModelDefError as error:
        if isinstance(error.__cause__, OSError):
            # The disk's answer, which is no fault of the model.
            raise error.__cause__ from None
        raise
    finally:
        _remove(partial)


def _put(partial: Path, target: Path) -> None:
    if not partial.is_dir():
        partial.replace(target)
        return
    replaced = target.with_name(f".replaced-{target.name}")
    _remove(replaced)
    if target.exists():
        # A folder that is not empty cannot be replaced in one step.
        target.rename(replaced)
    partial.rename(target)
    _remove(replaced)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
