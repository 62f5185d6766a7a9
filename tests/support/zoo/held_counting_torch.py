"""The zoo's counting model in torch, which stops short of its end until a test lets it go on."""

import sys
from pathlib import Path

from torch import Tensor
from waiting import wait_until_open

sys.path.append(str(Path(__file__).parents[3] / "model_zoo"))

from counting.counting_torch import *  # noqa: F403 - the rest of the module is that one's
from counting.counting_torch import CustomModel as Counting


class CustomModel(Counting):
    """Waits in each training step once `free_records` have counted."""

    def __init__(self, num_records: int, delay_ms: float, gate: str, free_records: int) -> None:
        super().__init__(num_records, delay_ms)
        self.gate = gate
        self.free_records = free_records

    def forward(self, index: Tensor) -> Tensor:
        """Map indices (n,) int64 to their counts (n,)."""
        if self.training and self.counts.sum() >= self.free_records:
            wait_until_open(self.gate)
        return super().forward(index)
