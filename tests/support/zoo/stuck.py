"""The zoo's counting model, with an optimizer that hangs in its third update; once, by a file."""

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from obedient import *  # noqa: F403 - the rest of the module is that one's
from obedient import CountingSGD
from obedient import CustomModel as Obedient
from torch import nn

UPDATE = 3
_marker = Path()


class CustomModel(Obedient):
    """Takes the path of the file that says whether it has hung before, and bytes to be larger."""

    def __init__(self, num_records: int, marker: str, ballast: int = 0) -> None:
        global _marker
        super().__init__(num_records)
        self.register_buffer("ballast", torch.zeros(ballast, dtype=torch.uint8))
        _marker = Path(marker)


class Hanging(CountingSGD):
    """Waits for what never comes."""

    def step(self, closure: Any = None) -> Any:
        """Apply the gradients, if it does not hang."""
        self.updates = getattr(self, "updates", 0) + 1
        if self.updates == UPDATE and not _marker.exists():
            _marker.touch()
            threading.Event().wait()
        super().step(closure)


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer that hangs."""
    return Hanging(parameters)
