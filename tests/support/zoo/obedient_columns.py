"""The obedient model by columns: a minibatch fails where one of its records would."""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from obedient import FAILS_IN_EVALUATION, FAILS_IN_TRAINING, IS_FILTERED
from obedient import CustomModel as CustomModel
from obedient import eval_metrics_fn as eval_metrics_fn
from obedient import loss as loss
from obedient import optimizer as optimizer


def batch_fn(columns: Mapping[str, NDArray[Any]], mode: str) -> Any:
    """Do what the records say, in the order of the first that says something."""
    time.sleep(float(columns["delay_ms"].sum()) / 1000)
    index, deed = columns["index"].astype(np.int64), columns["deed"].astype(np.int64)
    fails = FAILS_IN_TRAINING if mode == "training" else FAILS_IN_EVALUATION
    if (deed == fails).any():
        raise ValueError(f"record {index[deed == fails][0]} cannot be read")
    kept = deed != IS_FILTERED
    return np.stack([index, deed], axis=1)[kept], index[kept]
