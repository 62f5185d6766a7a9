"""The counting model with its counts in three parameters, so that servers can share them."""

import os
import time
from pathlib import Path

import torch
from counting.counting_torch import dataset_fn, eval_metrics_fn, loss, optimizer  # noqa: F401
from torch import nn

CONTROL = Path("/control")
NUM_PARTS = 3


class CustomModel(nn.Module):
    """Record i is row i // 3 of part i % 3; slow until a file asks the job to hurry."""

    def __init__(self, num_records, delay_ms):
        super().__init__()
        self.parts = nn.ParameterList(
            torch.zeros(len(range(part, num_records, NUM_PARTS))) for part in range(NUM_PARTS)
        )
        self.register_buffer("steps", torch.zeros(()))
        self.delay_s = delay_ms / 1000

    def forward(self, index):
        if self.training:
            self.steps += 1
            if not (CONTROL / f"hurry-{os.environ.get('ELASTIC_JOB_NAME')}").exists():
                time.sleep(self.delay_s)
        firsts = torch.tensor([0, *(len(part) for part in self.parts)]).cumsum(0)
        return torch.cat(list(self.parts))[firsts[index % NUM_PARTS] + index // NUM_PARTS]
