"""The obedient model, which bears so many records of a minibatch only, or no single one."""

import os
import signal
from pathlib import Path

import torch
from obedient import *  # noqa: F403 - the rest of the module is that one's
from obedient import CustomModel as Obedient
from torch import Tensor, nn


class CustomModel(Obedient):
    """Fails on more than `limit` records; on fewer of them the first `num_failures` times."""

    def __init__(
        self,
        num_records: int,
        limit: int = 1000,
        folder: str = "",
        mode: str = "training",
        is_normalised: bool = False,
    ) -> None:
        """Prepare to fail.

        Args:
            limit: As many records have room.
            folder: Where files lie that make a step fail, or a process die at so many records.
            mode: The steps that fail, of `training`, `evaluation` or `any`, which is also a trial.
            is_normalised: It has a batch normalisation, of which nothing depends.
        """
        super().__init__(num_records)
        self._norm = nn.BatchNorm1d(1) if is_normalised else None
        self._limit = limit
        self._folder = folder
        self._is_any, self._has_gradient = mode == "any", mode == "training"

    def forward(self, features: Tensor) -> Tensor:
        """Map (n, 2) pairs of index and deed to counts (n,)."""
        # A new model is tried in neither mode: not to train, and with a gradient.
        if self._is_any or self.training == torch.is_grad_enabled() == self._has_gradient:
            self._misbehave(len(features))
            if len(features) > self._limit:
                raise MemoryError(f"no room for {len(features)} records")
        counts = super().forward(features)
        return counts if self._norm is None else counts + 0 * self._norm(counts[:, None])[:, 0]

    def _misbehave(self, num_records: int) -> None:
        """Do what the files of the folder ask for, each of them once."""
        for path in sorted(Path(self._folder).iterdir()) if self._folder else ():
            if path.suffix == ".fails":
                path.unlink()
                raise OSError("the network is away")
            if path.name == f"{num_records}.dies":
                path.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
