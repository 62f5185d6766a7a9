"""The counting model with its counts in rows, and in three parameters, which servers share."""

import os
import time
from pathlib import Path

import torch
from counting.counting_torch import dataset_fn, loss  # noqa: F401
from torch import nn

from elastic.embedding import Embedding

CONTROL = Path("/control")
NUM_PARTS = 3


class CustomModel(nn.Module):
    """Record i is row i // 3 of part i % 3, and row i of the table.

    It is slow until a file asks the job to hurry.
    """

    def __init__(self, num_records, delay_ms):
        super().__init__()
        self.parts = nn.ParameterList(
            torch.zeros(len(range(part, num_records, NUM_PARTS))) for part in range(NUM_PARTS)
        )
        self.rows = Embedding(2, initializer="zeros", name="counted")
        self.delay_s = delay_ms / 1000

    def forward(self, index):
        if self.training and not (CONTROL / f"hurry-{os.environ.get('ELASTIC_JOB_NAME')}").exists():
            time.sleep(self.delay_s)
        firsts = torch.tensor([0, *(len(part) for part in self.parts)]).cumsum(0)
        counts = torch.cat(list(self.parts))[firsts[index % NUM_PARTS] + index // NUM_PARTS]
        return counts + self.rows(index).mean(dim=1)


def optimizer(parameters):
    """Adds 1 to whatever has a gradient."""
    return torch.optim.RMSprop(parameters, lr=1.0, alpha=0.0, eps=1e-12)
