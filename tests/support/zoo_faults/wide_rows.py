"""The counting model with a table of many wide rows, hundreds of them for each record."""

import torch
from counting.counting_torch import dataset_fn, loss  # noqa: F401
from torch import nn

from elastic.embedding import Embedding


class CustomModel(nn.Module):
    """Record i is number i of `counts` and `others`, and the rows from i * rows_per_record on."""

    def __init__(self, num_records, rows_per_record, dim):
        super().__init__()
        # Two, so that two servers have one each.
        self.counts = nn.Parameter(torch.zeros(num_records))
        self.others = nn.Parameter(torch.zeros(num_records))
        self.rows = Embedding(dim, initializer="zeros", name="wide")
        self.rows_per_record = rows_per_record

    def forward(self, index):
        ids = index[:, None] * self.rows_per_record + torch.arange(self.rows_per_record)
        return self.counts[index] + self.others[index] + self.rows(ids).mean(dim=(1, 2))


def optimizer(parameters):
    """Adds 1 to whatever has a gradient."""
    return torch.optim.RMSprop(parameters, lr=1.0, alpha=0.0, eps=1e-12)
