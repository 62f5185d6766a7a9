"""What the plain loops share: arguments, the user's module, records in a seeded order, the result.

Nothing of `elastic` is used here: a baseline that shared code with what it measures would hide
that code's cost.
"""

import argparse
import importlib
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

LOSSES_AVERAGED = 10
WARMUP_STEPS = 3


def parse_arguments(description: str | None) -> argparse.Namespace:
    """Parse the arguments that all baselines take."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model_zoo", required=True, help="folder that holds the model's module")
    parser.add_argument("--model_def", required=True, help="package.module.Symbol of the model")
    parser.add_argument("--model_params", default="", help="arguments of the model, as a=1,b=two")
    parser.add_argument("--data", required=True, type=Path, help="npz file of the records")
    parser.add_argument("--minibatch_size", required=True, type=int, help="records of one step")
    parser.add_argument("--epochs", type=int, default=1, help="epochs to time")
    parser.add_argument("--steps", type=int, help="end each epoch after so many steps")
    parser.add_argument("--threads", type=int, default=1, help="threads that compute")
    parser.add_argument("--seed", type=int, default=0, help="seeds parameters and order")
    return parser.parse_args()


def parse_model_params(text: str) -> dict[str, Any]:
    """Turn `a=1,b=two` into arguments; values are YAML."""
    pairs = (pair.split("=", 1) for pair in text.split(",") if pair)
    return {name.strip(): yaml.safe_load(value) for name, value in pairs}


def import_model(model_zoo: str, model_def: str) -> tuple[ModuleType, Callable[..., Any]]:
    """Import the user's module; returns it and what makes the model."""
    sys.path.insert(0, str(Path(model_zoo).resolve()))
    module_name, symbol = model_def.rsplit(".", 1)
    module = importlib.import_module(module_name)
    return module, getattr(module, symbol)


def read_epoch(
    data: Path, seed: int, rank: int = 0, world_size: int = 1
) -> tuple[dict[str, NDArray[Any]], NDArray[Any]]:
    """Read the file; returns its arrays and this rank's row numbers, in a shuffled order."""
    with np.load(data) as file:
        arrays = {name: file[name] for name in file.files}
    num_records = len(next(iter(arrays.values())))
    order = np.random.default_rng(seed).permutation(num_records)
    # Ranks that ran a different number of steps would wait for each other forever.
    return arrays, order[: num_records // world_size * world_size][rank::world_size]


def records(arrays: dict[str, NDArray[Any]], order: NDArray[Any]) -> Iterator[dict[str, Any]]:
    """Yield one row of every array at a time."""
    for row in order:
        yield {name: array[row] for name, array in arrays.items()}


def run(
    run_epoch: Callable[[int], Iterator[tuple[int, float]]],
    epochs: int,
    steps: int | None,
) -> dict[str, float]:
    """Time whole epochs, reading included, after a few steps that are not timed.

    Args:
        run_epoch: Takes the epoch, trains, and yields (examples, loss) after each step.
        epochs: Epochs to time, >= 1.
        steps: Steps of each epoch; None for all.

    Returns:
        `seconds_per_epoch`, `samples_per_s`, `seconds_per_step` and `final_loss`, the mean of the
        last few steps.
    """
    # The first steps allocate memory, choose kernels and trace graphs.
    for _ in itertools.islice(run_epoch(0), WARMUP_STEPS):
        pass
    seconds: list[float] = []
    examples = 0
    losses: list[float] = []
    for epoch in range(epochs):
        start_s = time.perf_counter()
        for num_examples, loss in itertools.islice(run_epoch(epoch), steps):
            examples += num_examples
            losses.append(loss)
        seconds.append(time.perf_counter() - start_s)
    return {
        "seconds_per_epoch": sum(seconds) / epochs,
        "samples_per_s": examples / sum(seconds),
        "seconds_per_step": sum(seconds) / len(losses),
        "final_loss": float(np.mean(losses[-LOSSES_AVERAGED:])),
    }


def print_result(result: dict[str, float]) -> None:
    """Print the result as one line of JSON."""
    print(json.dumps(result))
