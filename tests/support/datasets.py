"""The zoo's modules and their data, prepared once per test process."""

import atexit
import functools
import importlib
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

MODEL_ZOO = Path(__file__).parents[2] / "model_zoo"


def zoo_module(name: str) -> ModuleType:
    """Import a module of the zoo by the name that `--model_def` gives it."""
    if str(MODEL_ZOO) not in sys.path:
        sys.path.insert(0, str(MODEL_ZOO))
    return importlib.import_module(name)


@functools.cache
def prepared_dir(model: str, **options: Any) -> Path:
    """Return a folder with the `train.npz` and `test.npz` of one model of the zoo.

    Args:
        model: Folder of the zoo, such as `digits`.
        options: Passed to `prepare` of its `prepare_data`; each choice gets a folder of its own.
    """
    directory = _temporary_root() / f"{model}-{len(list(_temporary_root().iterdir()))}"
    zoo_module(f"{model}.prepare_data").prepare(directory, **options)
    return directory


@functools.cache
def _temporary_root() -> Path:
    root = Path(tempfile.mkdtemp(prefix="elastic-datasets-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return root


def load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read every array of an npz file."""
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def load_records(path: Path) -> list[dict[str, Any]]:
    """Read an npz file as the records that a job's reader makes of it."""
    arrays = load_arrays(path)
    num_records = len(next(iter(arrays.values())))
    return [{name: array[i] for name, array in arrays.items()} for i in range(num_records)]
