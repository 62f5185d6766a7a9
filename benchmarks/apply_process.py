"""`python -m benchmarks.apply_process`: updates of a dense model and copies of its bytes, in turn.

A process of its own, since frameworks read their number of threads when they are loaded.
"""

import argparse
import json
import time
from collections.abc import Callable

import numpy as np

from benchmarks.dense import build_dense
from benchmarks.measure import take_turns
from elastic.frameworks.base import Array, Model
from elastic.rpc.layout import Layout, aligned_empty


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--framework", required=True)
    parser.add_argument("--optimizer", required=True)
    parser.add_argument("--payload_mb", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--repeats", type=int, required=True, help="updates of one measurement")
    arguments = parser.parse_args()
    model, updater = build_dense(arguments.framework, arguments.optimizer, arguments.payload_mb)
    repeats: int = arguments.repeats
    gradients = _received(model)
    copies = [np.empty_like(array) for array in gradients.values()]
    size_bytes = int(sum(copy.nbytes for copy in copies))

    def copy() -> None:
        for target, array in zip(copies, gradients.values(), strict=True):
            np.copyto(target, array)

    def gb_per_s(action: Callable[[], None]) -> float:
        began_s = time.perf_counter()
        for _ in range(repeats):
            action()
        return repeats * size_bytes / (time.perf_counter() - began_s) / 1e9

    applied, copied = take_turns(
        arguments.rounds,
        lambda: gb_per_s(lambda: updater.apply(gradients)),
        lambda: gb_per_s(copy),
    )
    print(json.dumps({"applied": applied, "copied": copied}))


def _received(model: Model) -> dict[str, Array]:
    """Gradients of ones, lying in memory as those that a master received."""
    layout = Layout.of(model.parameters())
    arrays = layout.views(aligned_empty(layout.size_bytes))
    for array in arrays:
        array[...] = 1
    return dict(zip((spec.name for spec in layout.specs), arrays, strict=True))


if __name__ == "__main__":
    main()
