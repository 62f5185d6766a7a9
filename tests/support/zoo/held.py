"""The obedient model, which takes only the steps that a test allows it."""

from obedient import *  # noqa: F403 - the rest of the module is that one's
from obedient import CustomModel as Obedient
from torch import Tensor
from waiting import Steps


class CustomModel(Obedient):
    """Waits before its steps of one mode, `training` or `evaluation`.

    The first step of an evaluating worker is the one that checks the new model.
    """

    def __init__(self, num_records: int, gate: str, mode: str = "training") -> None:
        super().__init__(num_records)
        self._steps = Steps(gate)
        self._waits_in_training = mode == "training"

    def forward(self, features: Tensor) -> Tensor:
        """Map (n, 2) pairs of index and deed to counts (n,)."""
        if self.training == self._waits_in_training:
            self._steps.begin()
        return super().forward(features)
