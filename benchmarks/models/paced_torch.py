"""A model whose every step takes a fixed time, and is noted: what each process does can be drawn.

Steps wait instead of computing, so that three processes make a picture on any machine; gradients,
updates and all that happens between processes are real.

Records: `x` float32 (8,), `y` float32 (1,).
"""

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


class CustomModel(nn.Module):
    """One layer.

    Args:
        delay_s: How long a training step takes.
        log_dir: Folder that gets a file for each process, with a line for each of its steps.
    """

    def __init__(self, delay_s: float, log_dir: str) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 1)
        self._delay_s = delay_s
        self._log = Path(log_dir) / f"{os.getpid()}.jsonl"

    def forward(self, features: Tensor) -> Tensor:
        name = worker_name()
        if self.training and name:
            time.sleep(self._delay_s)
            line = {"time_s": time.time(), "worker": name, "records": len(features)}
            with self._log.open("a") as file:
                file.write(json.dumps(line) + "\n")
        output: Tensor = self.layer(features)
        return output


def worker_name() -> str:
    """`worker-1` for the second worker of a job or of torchrun; nothing in another process."""
    rank = os.environ.get("RANK")
    if rank is not None:
        return f"worker-{rank}"
    role, index, *_ = [*os.environ.get("ELASTIC_REPLICA", "").split("-"), "", ""]
    return f"worker-{index}" if role == "worker" else ""


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    return nn.functional.mse_loss(predictions, labels)


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01)


def dataset_fn(dataset: Iterable[Mapping[str, Any]], _mode: str) -> Iterator[tuple[Tensor, Tensor]]:
    for record in dataset:
        yield torch.as_tensor(record["x"]), torch.as_tensor(record["y"])
