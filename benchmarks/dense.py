"""The dense model of a given size, built the way a job builds its own."""

from pathlib import Path
from typing import Final

import numpy as np

from elastic.frameworks import load_framework
from elastic.frameworks.base import Model, Updater
from elastic.spec.model_def import SymbolNames, load_model_def
from elastic.spec.platforms import Mode

MODELS: Final = Path(__file__).parent / "models"


def build_dense(framework_name: str, optimizer: str, payload_mb: int) -> tuple[Model, Updater]:
    """Build model and updater.

    Args:
        framework_name: `torch` or `keras`.
        optimizer: `sgd` or `adam`.
        payload_mb: Megabytes of parameters.
    """
    model_def = load_model_def(
        MODELS, f"dense_{framework_name}.CustomModel", SymbolNames(optimizer=optimizer)
    )
    framework = load_framework(framework_name)
    sample = framework.make_batch(model_def, list(np.ones(2, np.float32)), Mode.TRAINING)
    model = framework.build_model(model_def, {"payload_mb": payload_mb}, sample, seed=0)
    return model, framework.build_updater(model_def, model)
