"""The zoo's counting model; files ask it to take all memory, or to be slow no more."""

import os
from pathlib import Path

from counting.counting_torch import (
    CustomModel as CountingModel,
)
from counting.counting_torch import dataset_fn, eval_metrics_fn, loss, optimizer  # noqa: F401

CONTROL = Path("/control")


class CustomModel(CountingModel):
    """Counts, or eats."""

    is_hurried = False

    def forward(self, index):
        replica = os.environ.get("ELASTIC_REPLICA", "").rpartition("-")[0]
        wish = CONTROL / f"eat-{replica}"
        if wish.exists():
            wish.unlink(missing_ok=True)
            hoard = []
            while True:
                hoard.append(bytearray(os.urandom(1 << 20) * 16))
        if not self.is_hurried and (CONTROL / "hurry").exists():
            self.is_hurried, self.delay_s = True, 0.0
        return super().forward(index)
