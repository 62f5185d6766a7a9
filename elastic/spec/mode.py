"""The three things a job does with a record."""

from enum import StrEnum


class Mode(StrEnum):
    """What `dataset_fn(dataset, mode)` is asked to prepare records for."""

    TRAINING = "training"
    EVALUATION = "evaluation"
    PREDICTION = "prediction"
