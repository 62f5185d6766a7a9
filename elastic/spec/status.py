"""What a job tells about itself: published by the master, read by everybody."""

import copy
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    WrapValidator,
)

from elastic.spec.time_split import TimeSplit


class JobPhase(StrEnum):
    """Life of a job.

    `Pending` until a master runs, `Starting` until the first gradient counts, then `Running`.
    `Recovering` while a restarted master goes back to its last cut, or no worker is left.
    The last three are final.
    """

    PENDING = "Pending"
    STARTING = "Starting"
    RUNNING = "Running"
    RECOVERING = "Recovering"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"

    @property
    def is_final(self) -> bool:
        return self in FINAL_PHASES


FINAL_PHASES: Final = frozenset({JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.CANCELLED})


class _Published(BaseModel):
    # A metric may be NaN, and has to be read back as that.
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="constants")


class WorkerStatus(_Published):
    """One worker index; `launch` counts how often it was started.

    `message` says why one that is Pending does not run yet; empty where nobody knows.
    """

    index: int
    launch: int
    phase: str
    pid: int | None = None
    records_done: int = 0
    samples_per_s: float = 0.0
    last_exit: str = ""
    message: str = ""


class EpochAudit(_Published):
    """The ledger's account of finished epochs that went alike; `committed + skipped == records`.

    The counts are those of each of the `num_epochs` epochs that begin with `epoch`: a job of many
    thousand epochs has to fit where its status is kept.
    """

    epoch: int
    num_epochs: int = 1
    records: int
    committed: int
    skipped: int


class Progress(_Published):
    """How far training has come, as committed by the ledger.

    `computed_again` counts the records of gradients that were refused; nobody knows what a lost
    process had in work.
    """

    epoch: int = 0
    num_epochs: int = 0
    records_done: int = 0
    records_total: int = 0
    skipped: int = 0
    computed_again: int = 0
    model_version: int = 0
    loss: float | None = None
    samples_per_s: float = 0.0
    rejected_gradients: int = 0


class JobEvent(_Published):
    """Something that happened once: a worker lost, a cut written, a master restarted."""

    time_s: float
    kind: str
    message: str


class JobStatus(_Published):
    """All of a job at one moment. `time_s` values are seconds since the Unix epoch.

    `audits` are of the epochs finished last, without the oldest `audits_left_out` epochs where
    those went too differently to be kept.
    `checkpoint_problem` says why the final checkpoint is not where the user wants checkpoints.
    """

    job_name: str
    phase: JobPhase = JobPhase.PENDING
    reason: str = ""
    message: str = ""
    submitted_s: float | None = None
    started_s: float | None = None
    ended_s: float | None = None
    updated_s: float | None = None
    desired_workers: int = 0
    workers: tuple[WorkerStatus, ...] = ()
    progress: Progress = Field(default_factory=Progress)
    audits: tuple[EpochAudit, ...] = ()
    audits_left_out: int = 0
    metrics: dict[str, float] = Field(default_factory=dict)
    checkpoint: str | None = None
    checkpoint_problem: str = ""
    export: str | None = None
    master_restarts: int = 0
    worker_failures: int = 0
    workers_lost: int = 0
    events: tuple[JobEvent, ...] = ()
    time_split: TimeSplit = Field(default_factory=TimeSplit)


def _without_unknown(stored: Any, read: ModelWrapValidatorHandler[JobStatus]) -> JobStatus:
    try:
        return read(stored)
    except ValidationError as error:
        unknown = [
            problem["loc"] for problem in error.errors() if problem["type"] == "extra_forbidden"
        ]
        if not unknown:
            raise
    known = copy.deepcopy(stored)
    for *way, name in unknown:
        holder = known
        for step in way:
            holder = holder[step]
        del holder[name]
    return read(known)


StoredStatus = Annotated[JobStatus, WrapValidator(_without_unknown)]
"""A status as it is read back: what a newer version added to it is passed over."""
