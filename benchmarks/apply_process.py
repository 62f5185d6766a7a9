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
    gradients = {name: np.ones_like(array) for name, array in model.parameters().items()}
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


if __name__ == "__main__":
    main()
