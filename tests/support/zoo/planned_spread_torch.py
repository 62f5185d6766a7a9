"""The spread counting model, with a rate that is planned over all updates of the job."""

import torch
from spread_counting_torch import *  # noqa: F403 - the rest of the module is that one's
from torch.optim.lr_scheduler import LinearLR, LRScheduler


def lr_scheduler(optimizer: torch.optim.Optimizer, total_steps: int) -> LRScheduler:
    """From the whole rate to a hundredth of it, which the last update has."""
    return LinearLR(optimizer, 1.0, 0.01, total_iters=total_steps - 1)
