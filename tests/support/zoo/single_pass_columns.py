"""The model of `single_pass` by columns."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from single_pass import FAILS, IS_DOUBLED, IS_DROPPED
from single_pass import CustomModel as CustomModel
from single_pass import eval_metrics_fn as eval_metrics_fn
from single_pass import loss as loss
from single_pass import optimizer as optimizer


def batch_fn(columns: Mapping[str, NDArray[Any]], mode: str) -> Any:
    """Do what the records say; to predict, give features alone."""
    deed, index = columns["deed"], columns["index"]
    if (deed == FAILS).any() and mode != "training":
        raise ValueError(f"record {index[deed == FAILS][0]} cannot be read")
    times = np.where(deed == IS_DROPPED, 0, np.where(deed == IS_DOUBLED, 2, 1))
    features = {name: columns[name].repeat(times, axis=0) for name in ("x", "index")}
    return features if mode == "prediction" else (features, columns["label"].repeat(times))
