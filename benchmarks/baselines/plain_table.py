"""Train a torch model on a table that is in memory, and print the loop's speed as JSON.

The file is read once, before anything is timed: NumPy's own archive by NumPy, CSV and Parquet by
Arrow, which reads them faster than pandas. An epoch takes its minibatches out of the columns in an
order of its own.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from baseline import import_model, parse_arguments, parse_model_params, print_result, run
from numpy.typing import NDArray


def main() -> None:
    arguments = parse_arguments(__doc__)
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    module, build = import_model(arguments.model_zoo, arguments.model_def)
    model = build(**parse_model_params(arguments.model_params)).train()
    optimizer = module.optimizer(model.parameters())
    table = _read(arguments.data)
    num_records = len(next(iter(table.values())))

    def run_epoch(epoch: int) -> Iterator[tuple[int, float]]:
        order = np.random.default_rng(arguments.seed + epoch).permutation(num_records)
        for start in range(0, num_records, arguments.minibatch_size):
            rows = order[start : start + arguments.minibatch_size]
            columns = {name: column[rows] for name, column in table.items()}
            features, labels = _tensors(module.batch_fn(columns, "training"))
            optimizer.zero_grad()
            loss = module.loss(labels, model(features))
            loss.backward()
            optimizer.step()
            yield len(rows), loss.item()

    print_result(run(run_epoch, arguments.epochs, arguments.steps))


def _tensors(arrays: Any) -> Any:
    """Tensors for the arrays of tuples in each other."""
    return tuple(map(_tensors, arrays)) if isinstance(arrays, tuple) else torch.from_numpy(arrays)


def _read(path: Path) -> dict[str, NDArray[Any]]:
    if path.suffix == ".npz":
        with np.load(path) as file:
            return {name: file[name] for name in file.files}
    if path.suffix == ".parquet":
        from pyarrow import parquet

        table = parquet.read_table(path)
    else:
        from pyarrow import csv

        table = csv.read_csv(path)
    return {name: table.column(name).to_numpy() for name in table.column_names}


if __name__ == "__main__":
    main()
