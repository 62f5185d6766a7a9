"""The zoo's digits in torch, whose model takes only the steps that a test allows it."""

import sys
from pathlib import Path

from torch import Tensor
from waiting import Steps

sys.path.append(str(Path(__file__).parents[3] / "model_zoo"))

from digits.digits_torch import *  # noqa: F403 - the rest of the module is that one's
from digits.digits_torch import CustomModel as Digits


class CustomModel(Digits):
    """Waits before its training steps."""

    def __init__(self, gate: str) -> None:
        super().__init__()
        self._steps = Steps(gate)

    def forward(self, image: Tensor) -> Tensor:
        """Map images (n, 1, 8, 8) to logits (n, 10)."""
        if self.training:
            self._steps.begin()
        return super().forward(image)
