"""Keras and torch behind one Protocol: batches, one training step, the optimizer's update.

Belongs here: everything that touches a framework. A framework is imported by `load_framework`
only, in the processes that compute.
Does not belong here: which gradient counts (`policy`), and how tensors travel (`rpc`).
"""

import os
import sys

from elastic.errors import ModelDefError
from elastic.frameworks.base import Framework
from elastic.spec.model_def import install_hint


def load_framework(name: str) -> Framework:
    """Import a framework and give what builds its models, updaters and batches.

    Args:
        name: `keras` or `torch`, as in `ModelDef.framework`.

    Raises:
        ModelDefError: The framework is not installed, is unknown, or is Keras on a backend other
            than TensorFlow.
    """
    match name:
        case "torch":
            return _load_torch()
        case "keras":
            return _load_keras()
    raise ModelDefError(f"there is no framework {name!r}: the model_def must use keras or torch")


def _load_torch() -> Framework:
    try:
        from elastic.frameworks.torch import TorchFramework
    except ModuleNotFoundError as error:
        raise _not_installed(error, "torch", "torch") from error
    return TorchFramework()


def _load_keras() -> Framework:
    if "keras" not in sys.modules:
        os.environ["KERAS_BACKEND"] = "tensorflow"
    try:
        import keras

        backend = keras.backend.backend()
        if backend != "tensorflow":
            raise ModelDefError(
                f"the model_def uses Keras on the backend {backend}, and only tensorflow is "
                "supported: do not set KERAS_BACKEND in the module"
            )
        from elastic.frameworks.keras import KerasFramework
    except ModuleNotFoundError as error:
        raise _not_installed(error, "keras", "tensorflow") from error
    return KerasFramework()


def _not_installed(error: ModuleNotFoundError, name: str, extra: str) -> ModelDefError:
    return ModelDefError(
        f"the model_def uses {name}, which is not installed here (no module named "
        f"{error.name}): {install_hint(extra)}"
    )
