"""A torch model that notes when each of its training steps begins and ends."""

import os
import time
from pathlib import Path

import torch
from torch import nn


class CustomModel(nn.Module):
    """Takes `step_s` a step, and appends `begin end` to a file per process below `folder`."""

    def __init__(self, folder, step_s):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.path = Path(folder) / str(os.getpid())
        self.step_s = step_s

    def forward(self, features):
        if self.training:
            begin = time.monotonic()
            time.sleep(self.step_s)
            with self.path.open("a") as file:
                file.write(f"{begin} {time.monotonic()}\n")
        return features * self.weight


def loss(labels, predictions):
    return predictions.mean()


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.0)


def dataset_fn(dataset, mode):
    for record in dataset:
        value = torch.as_tensor(record["index"]).float()
        yield value, value
