"""The single-pass model with a processor as ElasticDL has it."""

import os
from pathlib import Path
from typing import Any

from single_pass import *  # noqa: F403 - the rest of the module is that one's


class PredictionOutputsProcessor:
    """Counts the predictions of each worker."""

    def process(self, predictions: Any, worker_id: int) -> None:
        """Append how many there were."""
        with (Path(os.environ["PROCESSED_DIR"]) / f"worker-{worker_id}").open("a") as file:
            file.write(f"{len(predictions)}\n")
