"""What a job can do with its records, and which settings that takes.

`import elastic` brings this module, so it imports nothing large.
"""

from enum import StrEnum
from typing import Final


class Mode(StrEnum):
    """What `dataset_fn(dataset, mode)` is asked to prepare records for."""

    TRAINING = "training"
    EVALUATION = "evaluation"
    PREDICTION = "prediction"


class JobKind(StrEnum):
    """What a job does; each is a command of that name."""

    TRAIN = "train"
    EVALUATE = "evaluate"
    PREDICT = "predict"

    @property
    def mode(self) -> Mode:
        """What `dataset_fn` prepares the records of such a job for."""
        return _MODES[self]

    @property
    def can_resume(self) -> bool:
        """Whether such a job keeps anything that another can go on from."""
        return self is not JobKind.EVALUATE

    @property
    def data_setting(self) -> str:
        """The setting that names the records of such a job."""
        return f"{self.mode}_data_dir"


_MODES: Final = {
    JobKind.TRAIN: Mode.TRAINING,
    JobKind.EVALUATE: Mode.EVALUATION,
    JobKind.PREDICT: Mode.PREDICTION,
}
EVERY_KIND: Final = tuple(JobKind)
TRAIN: Final = (JobKind.TRAIN,)
EVALUATE: Final = (JobKind.EVALUATE,)
PREDICT: Final = (JobKind.PREDICT,)
