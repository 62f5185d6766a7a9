"""The counting model with its counts in parameters and in rows of an embedding alike."""

import os
import time
from pathlib import Path

import torch
from counting.counting_torch import dataset_fn, loss  # noqa: F401
from torch import nn

from elastic.embedding import Embedding

CONTROL = Path("/control")


class CustomModel(nn.Module):
    """Record i is number i of the parameter, and row i; slow until a file asks the job to hurry."""

    def __init__(self, num_records, delay_ms):
        super().__init__()
        self.counts = nn.Parameter(torch.zeros(num_records))
        self.rows = Embedding(2, initializer="zeros", name="counted")
        self.delay_s = delay_ms / 1000

    def forward(self, index):
        if self.training and not (CONTROL / f"hurry-{os.environ.get('ELASTIC_JOB_NAME')}").exists():
            time.sleep(self.delay_s)
        return self.counts[index] + self.rows(index).mean(dim=1)


def optimizer(parameters):
    """Adds 1 to whatever has a gradient."""
    return torch.optim.RMSprop(parameters, lr=1.0, alpha=0.0, eps=1e-12)
