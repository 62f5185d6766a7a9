"""The zoo's digits in torch, whose evaluation records take their time and say who has them."""

import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[3] / "model_zoo"))

from digits.digits_torch import *  # noqa: F403 - the rest of the module is that one's
from digits.digits_torch import CustomModel as Digits
from digits.digits_torch import dataset_fn as digits_fn

_folder: list[Path] = []


class CustomModel(Digits):
    """Is told where to note the workers that evaluate."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        _folder[:] = [Path(folder)]


def dataset_fn(dataset: Iterable[Any], mode: str) -> Iterable[Any]:
    """Take a while for each minibatch of a worker, and longer to evaluate it."""
    replica = os.environ.get("ELASTIC_REPLICA", "")
    if replica.startswith("worker-"):
        if mode == "evaluation":
            (_folder[0] / replica).touch()
        time.sleep(0.1 if mode == "evaluation" else 0.05)
    return digits_fn(dataset, mode)
