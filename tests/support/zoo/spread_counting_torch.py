"""The counting model with its counts in several parameters, so that servers can share them."""

import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from waiting import wait_until_open

sys.path.append(str(Path(__file__).parents[3] / "model_zoo"))

from counting.counting_torch import *  # noqa: F403 - the rest of the module is that one's

NUM_PARTS = 3


class CustomModel(nn.Module):
    """Record i is row i // 3 of part i % 3; waits once `free_records` have counted."""

    steps: Tensor

    def __init__(
        self, num_records: int, delay_ms: float = 0.0, gate: str = "", free_records: int = 0
    ) -> None:
        super().__init__()
        self.parts = nn.ParameterList(
            torch.zeros(len(range(part, num_records, NUM_PARTS))) for part in range(NUM_PARTS)
        )
        self.register_buffer("steps", torch.zeros(()))
        self.register_buffer("frozen", torch.ones(5))
        self.delay_s = delay_ms / 1000
        self.gate = gate
        self.free_records = free_records

    def forward(self, index: Tensor) -> Tensor:
        """Map indices (n,) int64 to their counts (n,)."""
        if self.training:
            self.steps += 1
            time.sleep(self.delay_s)
            if self.gate and sum(part.sum() for part in self.parts) >= self.free_records:
                wait_until_open(self.gate)
        firsts = torch.tensor([0, *(len(part) for part in self.parts)]).cumsum(0)
        return torch.cat(list(self.parts))[firsts[index % NUM_PARTS] + index // NUM_PARTS]
