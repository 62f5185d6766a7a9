"""A counting model whose counts are parameters and rows of an embedding alike.

An optimizer that divides each gradient by its own size adds 1 to whatever is in an update, however
large the update is: `RMSprop` with nothing kept of gradients before. So both count updates, and a
record is in one for each epoch.
"""

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from waiting import Steps, wait_until_open

from elastic.embedding import Embedding

sys.path.append(str(Path(__file__).parents[3] / "model_zoo"))

from counting.counting_torch import dataset_fn, loss  # noqa: F401

NUM_PARTS = 3
TABLE = "counted"


class CustomModel(nn.Module):
    """Record i is row i // 3 of part i % 3, and row i of the table.

    Args:
        num_records: Of the data.
        delay_ms: Of each step.
        gate: Where a worker waits once `free_records` have counted.
        free_records: See there.
        steps: Where a worker waits before each step of training.
        has_table: Else it is a model that has lost it.
        life: Of the rows: arguments of the layer.
    """

    def __init__(
        self,
        num_records: int,
        delay_ms: float = 0.0,
        gate: str = "",
        free_records: int = 0,
        steps: str = "",
        has_table: bool = True,
        life: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__()
        self.parts = nn.ParameterList(
            torch.zeros(len(range(part, num_records, NUM_PARTS))) for part in range(NUM_PARTS)
        )
        rows = Embedding(2, initializer="zeros", name=TABLE, **(life or {}))
        self.rows = rows if has_table else None
        self.delay_s = delay_ms / 1000
        self.gate = gate
        self.free_records = free_records
        self._steps = Steps(steps) if steps else None

    def forward(self, index: Tensor) -> Tensor:
        """Map indices (n,) int64 to the counts of parameters and rows (n,).

        Their sum in training; else the difference, which is 0 where both are of one version.
        """
        if self.training:
            self._wait()
        firsts = torch.tensor([0, *(len(part) for part in self.parts)]).cumsum(0)
        counts = torch.cat(list(self.parts))[firsts[index % NUM_PARTS] + index // NUM_PARTS]
        if self.rows is None:
            return counts
        in_rows = self.rows(index).mean(dim=1)
        return counts + in_rows if self.training else counts - in_rows

    def _wait(self) -> None:
        if self._steps is not None:
            self._steps.begin()
        time.sleep(self.delay_s)
        if self.gate and sum(part.sum() for part in self.parts) >= self.free_records:
            wait_until_open(self.gate)


def eval_metrics_fn() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """How far apart the counts are, and which records were looked at."""
    return {
        "apart": lambda labels, predictions: predictions.abs().mean(),
        "index": lambda labels, predictions: labels.float().mean(),
    }


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Adds 1 to whatever has a gradient."""
    return torch.optim.RMSprop(parameters, lr=1.0, alpha=0.0, eps=1e-12)
