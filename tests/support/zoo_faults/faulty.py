"""The zoo's counting model; files ask a pod to take all memory, or a job to be slow no more."""

import os
import time
from pathlib import Path

from counting.counting_torch import (
    CustomModel as CountingModel,
)
from counting.counting_torch import dataset_fn, eval_metrics_fn, loss  # noqa: F401
from counting.counting_torch import optimizer as counting_optimizer

CONTROL = Path("/control")


class CustomModel(CountingModel):
    """Counts, or eats; as slow in evaluation and prediction as in training."""

    is_hurried = False

    def forward(self, index):
        wish = CONTROL / f"eat-{os.environ.get('ELASTIC_POD_UID')}"
        if wish.exists():
            wish.unlink(missing_ok=True)
            _eat()
        hurry = CONTROL / f"hurry-{os.environ.get('ELASTIC_JOB_NAME')}"
        if not self.is_hurried and hurry.exists():
            self.is_hurried, self.delay_s = True, 0.0
        if not self.training:
            # Training is slowed down by the model itself.
            time.sleep(self.delay_s)
        return super().forward(index)


def optimizer(parameters):
    """Counts, or eats: the master asks for it."""
    if (CONTROL / f"eat-master-{os.environ.get('ELASTIC_JOB_NAME')}").exists():
        _eat()
    return counting_optimizer(parameters)


def _eat():
    hoard = []
    while True:
        hoard.append(bytearray(os.urandom(1 << 20) * 16))
