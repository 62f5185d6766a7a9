"""Where the time of a job goes, as its status tells it."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field


class TimeCategory(StrEnum):
    """What a job spends a moment on; every moment belongs to exactly one."""

    QUEUE = "queue"
    START = "start"
    TRAIN = "train"
    EVALUATE = "evaluate"
    CHECKPOINT = "checkpoint"
    RECOVER = "recover"
    STALL = "stall"


class TimeSplit(BaseModel):
    """Seconds of a job's life by what they were spent on; together, all of its life.

    The sum is `until_s` less the job's `submitted_s`, to the millisecond.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, json_schema_serialization_defaults_required=True
    )

    queue_s: float = Field(default=0.0, description="Before a master ran.")
    start_s: float = Field(
        default=0.0, description="From the first master's start until the first gradient counted."
    )
    train_s: float = Field(default=0.0, description="Gradients were computed and counted.")
    evaluate_s: float = Field(
        default=0.0, description="Workers evaluated or predicted, and none of them trained."
    )
    checkpoint_s: float = Field(
        default=0.0,
        description="Everything waited for a checkpoint, or for the exported model, to be written.",
    )
    recover_s: float = Field(
        default=0.0,
        description="No master or no worker was there, or none had counted since it came back.",
    )
    stall_s: float = Field(
        default=0.0,
        description="Nothing counted for long, or the job waited for its workers to leave.",
    )
    current: TimeCategory = Field(
        default=TimeCategory.QUEUE, description="What the time after `until_s` goes to."
    )
    until_s: float | None = Field(
        default=None, description="The moment up to which the seconds are counted."
    )
