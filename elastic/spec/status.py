"""What a job tells about itself: published by the master, read by everybody.

Here are also the same for programs, what is told of objects of other kinds, such as a TFJob, and
what is told while an image is made.
"""

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    WrapValidator,
)

from elastic.errors import TransitionError
from elastic.spec.platforms import JobKind
from elastic.spec.settings import WorkerRange


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


SCHEMA_VERSION: Final = 1
"""Of a status as documents; see `docs/status.md` for when it rises."""


class JobPhase(StrEnum):
    """Life of a job.

    `Pending` until a master runs, `Starting` until the first gradient counts, then `Running`.
    `Recovering` while a restarted master goes back to its last cut, or no worker is left.
    `Suspended` while its user wants it to have no processes.
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
        return not TRANSITIONS[self]

    def to(self, phase: "JobPhase") -> "JobPhase":
        """Enter a phase; the one that it is in may be entered again, for another reason.

        Raises:
            TransitionError: It cannot follow.
        """
        if phase is not self and phase not in TRANSITIONS[self]:
            raise TransitionError(f"a job that is {self} cannot become {phase}")
        return phase


TRANSITIONS: Final[Mapping[JobPhase, frozenset[JobPhase]]] = {
    JobPhase.PENDING: frozenset(
        {
            JobPhase.STARTING, JobPhase.RECOVERING, JobPhase.SUSPENDED,
            JobPhase.FAILED, JobPhase.CANCELLED,
        }
    ),
    # It may have nothing left to do: all was done before it was resumed.
    JobPhase.STARTING: frozenset(
        {
            JobPhase.RUNNING, JobPhase.RECOVERING, JobPhase.SUSPENDED,
            JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.CANCELLED,
        }
    ),
    JobPhase.RUNNING: frozenset(
        {
            JobPhase.RECOVERING, JobPhase.SUSPENDED,
            JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.CANCELLED,
        }
    ),
    JobPhase.RECOVERING: frozenset(
        {
            JobPhase.RUNNING, JobPhase.SUSPENDED,
            JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.CANCELLED,
        }
    ),
    # Told by whoever makes no master, or has ended it, until the next one tells that it recovers.
    JobPhase.SUSPENDED: frozenset({JobPhase.RECOVERING, JobPhase.FAILED, JobPhase.CANCELLED}),
    JobPhase.SUCCEEDED: frozenset(),
    JobPhase.FAILED: frozenset(),
    JobPhase.CANCELLED: frozenset(),
}  # fmt: skip
"""What may be published next, within one submission; one that is resumed begins anew as `Pending`,
see `policy.resumption`. Readers who find a job without a master say `Recovering` by this table too.
"""

FINAL_PHASES: Final = frozenset(phase for phase in JobPhase if phase.is_final)


class _Published(BaseModel):
    # A metric may be NaN, and has to be read back as that.
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        ser_json_inf_nan="constants",
        # Whoever reads a status may rely on every field.
        json_schema_serialization_defaults_required=True,
    )


Metric = Annotated[
    float, WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "null"}]}, mode="serialization")
]
"""JSON has no number for a metric that is not one: `null` stands for it."""


class WorkerStatus(_Published):
    """One replica that the master launches."""

    role: str = Field(
        default="worker", description="What it is: `worker`, or `ps` for a parameter server."
    )
    index: int = Field(description="Its number, from 0.")
    launch: int = Field(description="How often it was started.")
    phase: str = Field(
        description="`Pending`, `Running`, `Succeeded` or `Failed`; `Ending` for one that is alive "
        "though its job has ended."
    )
    pid: int | None = Field(default=None, description="Its process, on the machine it runs on.")
    records_done: int = Field(
        default=0,
        description="Records whose gradients of this launch were accepted, by all lives of the "
        "master: what was lost with the time since its last cut, and accepted again, counts again.",
    )
    samples_per_s: float = Field(
        default=0.0,
        description="Its speed now, in records a second; 0 unless the job is `Running`.",
    )
    last_exit: str = Field(default="", description="How its launch before this one ended.")
    message: str = Field(
        default="", description="Why it does not run yet; empty where it does, or nobody knows."
    )


class EpochAudit(_Published):
    """The ledger's account of finished epochs that went alike.

    `committed + skipped + left_out == records`.
    The counts are those of each of the `num_epochs` epochs that begin with `epoch`: a job of many
    thousand epochs has to fit where its status is kept.
    """

    epoch: int = Field(description="The first of these epochs, from 0.")
    num_epochs: int = Field(default=1, description="How many epochs had these counts.")
    records: int = Field(description="Records of an epoch.")
    committed: int = Field(description="Those that counted, each once.")
    skipped: int = Field(description="Those that failed for good, as `skip_bad_records` allows.")
    left_out: int = Field(
        default=0, description="Those of a short last minibatch, where `drop_last` is set."
    )


class CutShort(_Published):
    """The account of an epoch that ended before its last record; the others are left out."""

    epoch: int = Field(description="Which epoch, from 0.")
    records: int = Field(description="Records of a whole epoch.")
    committed: int = Field(description="Those that counted, each once.")
    skipped: int = Field(description="Those that failed for good.")


class Progress(_Published):
    """How far the job has come, as committed by the ledger."""

    epoch: int = Field(default=0, description="The epoch under way, from 0.")
    num_epochs: int = Field(default=0, description="Epochs of the job; 0 before its master runs.")
    records_done: int = Field(default=0, description="Records that have counted, over all epochs.")
    records_total: int = Field(
        default=0, description="Records of all epochs; 0 before the data has been read."
    )
    skipped: int = Field(default=0, description="Records that failed for good.")
    computed_again: int = Field(
        default=0,
        description="Records of gradients that were refused, and records that had counted and came "
        "again when the job went back to a cut, by the status before; nobody knows what a lost "
        "process had in work.",
    )
    model_version: int = Field(default=0, description="Updates of the model so far.")
    max_steps: int = Field(
        default=0, description="Updates after which training ends; 0 where all epochs are trained."
    )
    loss: float | None = Field(
        default=None, description="Of the newest minibatch; `null` before the first."
    )
    mean_loss: Metric | None = Field(
        default=None,
        description="The mean over the records that have counted in the epoch under way, or over "
        "the epoch before until one has; `null` before the first.",
    )
    samples_per_s: float = Field(
        default=0.0, description="The speed now, in records a second; 0 unless it is `Running`."
    )
    rejected_gradients: int = Field(default=0, description="Gradients that were refused.")
    minibatches_tried_again: int = Field(
        default=0,
        description="Minibatches that the user's code failed on, and which were tried again whole.",
    )
    records_computed_alone: int = Field(
        default=0,
        description="Times that one record was computed by itself, in search of what makes a "
        "minibatch fail.",
    )
    shrunk_minibatch_size: int | None = Field(
        default=None,
        description="Records of a minibatch that the job has come to, since it fails at "
        "`minibatch_size`; `null` where it does not.",
    )


class EvaluationProgress(_Published):
    """How far the evaluation that goes on has come."""

    model_version: int = Field(description="The version of the model that is evaluated.")
    records_done: int = Field(description="Records evaluated.")
    records_total: int = Field(description="Records to evaluate.")
    samples_per_s: float = Field(default=0.0, description="The speed since its beginning.")


class EpochStatus(_Published):
    """What one finished epoch came to."""

    epoch: int = Field(description="Which one, from 0.")
    version: int = Field(description="Updates of the model at its end.")
    records: int = Field(description="Records that have counted in it.")
    loss: Metric = Field(
        description="The mean training loss of these records; `null` where there are none."
    )
    seconds: float = Field(
        description="What it took, without the time that a lost master cost, and without callbacks "
        "between epochs."
    )
    samples_per_s: float = Field(description="Its records a second.")
    metrics: dict[str, Metric] = Field(
        default_factory=dict,
        description="The metrics of `eval_metrics_fn` over these records, each by the predictions "
        "behind its gradient; empty without `train_metrics`.",
    )


class EvaluationStatus(_Published):
    """The metrics of one version of the model."""

    version: int = Field(description="Updates that had made it.")
    epoch: int = Field(description="The epoch that it was of, from 0.")
    metrics: dict[str, Metric] = Field(
        description="By the names of `eval_metrics_fn`; `null` for NaN."
    )


class BestStatus(_Published):
    """The best of the evaluated versions, by the metric that a callback watches."""

    version: int = Field(description="Updates that had made it.")
    epoch: int = Field(description="The epoch that it was of, from 0.")
    monitor: str = Field(description="The metric.")
    value: Metric = Field(description="Its value.")
    checkpoint: str = Field(description="The folder that keeps the version.")


class JobEvent(_Published):
    """Something that happened once: a worker lost, a cut written, a master restarted."""

    time_s: float = Field(description="When.")
    kind: str = Field(description="What, in one word such as `WorkerLost`; more may be added.")
    message: str = Field(description="What happened, for people.")


class MasterHistory(_Published):
    """How the masters of a job ended, as far as that decides what follows the next end."""

    crashes: int = Field(
        default=0, description="Ends in a row by the master's own fault, without progress between."
    )
    ends: int = Field(default=0, description="The same with ends from outside.")
    best_version: int = Field(
        default=-1, description="The newest version that one ended at; -1 where none has ended."
    )
    has_worked: bool = Field(
        default=False, description="Whether one ended that had come beyond its preparation."
    )


NO_MASTERS: Final = MasterHistory()
"""None has ended yet."""


class SizeSpeed(_Published):
    """How fast a job was at one size."""

    workers: int = Field(description="Workers that took part.")
    nodes: int = Field(description="On how many nodes they were; 0 where nobody knows.")
    samples_per_s: float = Field(description="Records a second of all of them together.")
    batch: int | None = Field(
        default=None,
        description="Records of an update then; `null` without `elastic_batch`.",
    )


class BatchStatus(_Published):
    """The batch of a job whose master chooses it (`elastic_batch`)."""

    records: int = Field(description="Records of an update now.")
    minimum: int = Field(description="The smallest, which the learning rate is for.")
    maximum: int = Field(description="The largest.")
    grad_sqr: float = Field(
        default=0.0, description="Squared length of the true gradient, as estimated."
    )
    grad_var: float = Field(
        default=0.0, description="Variance of the gradient of one record, as estimated."
    )
    first_grad_sqr: float = Field(
        default=0.0,
        description="The squared length as estimated from the first updates alone, by which jobs "
        "of the same program begin.",
    )
    first_grad_var: float = Field(
        default=0.0, description="The variance as estimated from the first updates alone."
    )
    updates_measured: int = Field(default=0, description="Updates that both were estimated from.")
    measured_at: int = Field(
        default=0, description="Records of those updates: after a change, of the batch before."
    )
    noise_growth: float = Field(
        default=0.0,
        description="The power of the batch by which the noise has grown with it, in the mean of "
        "all changes of the batch in which that was seen.",
    )
    changes_measured: int = Field(default=0, description="In how many it was.")
    noise_scale: float | None = Field(
        default=None,
        description="Records of an update in which noise and gradient weigh the same: far smaller "
        "batches waste nothing; `null` until it is known.",
    )


class ScalingStatus(_Published):
    """What was measured of a job's sizes, over all lives of its master."""

    speeds: tuple[SizeSpeed, ...] = Field(
        default=(), description="By size, the one that was measured last at the end."
    )
    rescale_s: float | None = Field(
        default=None,
        description="Seconds of work that a change of size costs; `null` before one was measured.",
    )
    batch: BatchStatus | None = Field(
        default=None, description="The batch; `null` without `elastic_batch`."
    )


class TableStatus(_Published):
    """A table of an embedding."""

    name: str = Field(description="The name of its layer.")
    dim: int = Field(description="Numbers of a row.")
    rows: int = Field(description="Rows that updates have changed; others are nowhere.")
    size_bytes: int = Field(
        description="What these rows are, with their ids and what the optimizer keeps of each."
    )
    candidates: int = Field(default=0, description="Ids that are counted, and have no row yet.")
    expired: int = Field(
        default=0,
        description="Rows that went untrained for too long, since the master began or went back "
        "to a cut.",
    )
    evicted: int = Field(
        default=0,
        description="Rows that went to make room, since the master began or went back to a cut.",
    )


class JobStatus(_Published):
    """All of a job at one moment. `_s` ends durations in seconds, and moments in seconds since the
    Unix epoch: `submitted_s`, `started_s`, `ended_s`, `updated_s`, `until_s` and `time_s`.
    """

    schema_version: int = Field(
        default=SCHEMA_VERSION, description="Raised when a field is removed or means another thing."
    )
    job_name: str = Field(description="The name of the job.")
    kind: JobKind = Field(
        default=JobKind.TRAIN, description="What it does, as soon as its master runs."
    )
    phase: JobPhase = Field(default=JobPhase.PENDING, description="Where it is in its life.")
    reason: str = Field(
        default="", description="Why, in one word such as `WorkerFailed`; may be empty."
    )
    message: str = Field(default="", description="Why, for people.")
    submitted_s: float | None = Field(default=None, description="When it was submitted.")
    started_s: float | None = Field(default=None, description="When its first master started.")
    ended_s: float | None = Field(default=None, description="When it ended; `null` until then.")
    updated_s: float | None = Field(default=None, description="When its master last told of it.")
    desired_workers: int = Field(default=0, description="How many workers it is to have.")
    workers: tuple[WorkerStatus, ...] = Field(
        default=(), description="Its workers, by index; of those that were replaced, the newest."
    )
    progress: Progress = Field(default_factory=Progress, description="How far training has come.")
    audits: tuple[EpochAudit, ...] = Field(
        default=(), description="The accounts of the epochs that finished last."
    )
    audits_left_out: int = Field(
        default=0,
        description="How many of the oldest finished epochs are not in `audits`, since epochs went "
        "too differently for all to be kept.",
    )
    cut_short: CutShort | None = Field(
        default=None,
        description="The account of the epoch that training ended in, where that was not with its "
        "last record.",
    )
    metrics: dict[str, Metric] = Field(
        default_factory=dict,
        description="The newest evaluation, by the names of `eval_metrics_fn`; `null` for NaN.",
    )
    epochs: tuple[EpochStatus, ...] = Field(
        default=(), description="What the newest finished epochs came to, oldest first."
    )
    evaluations: tuple[EvaluationStatus, ...] = Field(
        default=(), description="The newest evaluations, oldest first."
    )
    best: BestStatus | None = Field(
        default=None, description="The best evaluated version; `null` where no callback watches."
    )
    checkpoint: str | None = Field(default=None, description="The newest checkpoint's folder.")
    checkpoint_problem: str = Field(
        default="", description="Why the final checkpoint is not where the user wants checkpoints."
    )
    export: str | None = Field(default=None, description="The exported model, once there is one.")
    predictions: str | None = Field(
        default=None, description="The folder of all predictions, once it is whole."
    )
    master_restarts: int = Field(
        default=0,
        description="How often the master was replaced, once it had told anything.",
    )
    master_history: MasterHistory = Field(
        default_factory=MasterHistory,
        description="How the masters before the present one ended; of jobs on Kubernetes.",
    )
    worker_failures: int = Field(
        default=0, description="Ends of workers that count against `max_worker_failures`."
    )
    workers_lost: int = Field(default=0, description="All ends of workers that were replaced.")
    servers_lost: int = Field(
        default=0, description="All ends of parameter servers that were replaced."
    )
    redis_lost: int = Field(
        default=0, description="All ends of the job's own Redis that was replaced."
    )
    events: tuple[JobEvent, ...] = Field(
        default=(), description="What happened, oldest first; rare things stay longest."
    )
    evaluation: EvaluationProgress | None = Field(
        default=None, description="The evaluation that goes on, or `null`."
    )
    tables: tuple[TableStatus, ...] = Field(
        default=(), description="The tables of the model's embeddings."
    )
    scaling: ScalingStatus = Field(
        default_factory=ScalingStatus, description="How fast it was at each size that it has had."
    )
    time_split: TimeSplit = Field(
        default_factory=TimeSplit, description="What the time of the job was spent on."
    )

    def entering(self, phase: JobPhase, reason: str, message: str, **change: Any) -> "JobStatus":
        """The same job in its next phase.

        Raises:
            TransitionError: The phase cannot follow the present one.
        """
        why = {"phase": self.phase.to(phase), "reason": reason, "message": message}
        return self.model_copy(update=why | change)


def with_present_speed(status: JobStatus) -> JobStatus:
    """The same status without the speed told last, where the job does not run any more."""
    if status.phase is JobPhase.RUNNING:
        return status
    at_rest = {"samples_per_s": 0.0}
    change = {
        "progress": status.progress.model_copy(update=at_rest),
        "workers": tuple(worker.model_copy(update=at_rest) for worker in status.workers),
    }
    return status.model_copy(update=change)


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


# A status for programs: in the values that JSON has.


_STATUS: Final[TypeAdapter[JobStatus]] = TypeAdapter(JobStatus)


def document(status: JobStatus) -> dict[str, Any]:
    """The status in JSON's values; `null` where JSON has no number."""
    plain: dict[str, Any] = _finite(_STATUS.dump_python(status, mode="json"))
    return plain


def _finite(value: Any) -> Any:
    match value:
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list():
            return [_finite(item) for item in value]
        case float() if not math.isfinite(value):
            return None
    return value


# What is told of objects of other kinds, such as a TFJob, and of all jobs in one list.
#
# `ObjectStatus` is what `elastic status KIND/NAME -o json` prints; `docs/status.md` says what
# programs may rely on.


_FINAL: Final = frozenset({"succeeded", "failed", "cancelled"})


class _Told(BaseModel):
    """Fields are only added within a schema version, and each is always there."""

    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)


class ConditionStatus(_Told):
    """One thing that is, or was, the case with an object."""

    type: str = Field(description="What is the case, such as `Running`.")
    status: str = Field(description="Whether it is: `True`, `False` or `Unknown`.")
    reason: str = Field(default="", description="Why, in one word; may be empty.")
    message: str = Field(default="", description="Why, for people.")
    changed_s: float | None = Field(
        default=None, description="When `status` last changed; `null` where nobody noted it."
    )


class PodStatus(_Told):
    """One pod of an object."""

    replica: str = Field(
        description="What `elastic logs` calls it, such as `worker-0`; where pods have no index, "
        "the role and the end of the pod's name."
    )
    role: str = Field(description="What it is to the job, such as `worker`, `ps` or `trainer`.")
    index: int | None = Field(
        default=None, description="Its number within its role; `null` where the kind has none."
    )
    pod: str = Field(description="The name of the pod.")
    phase: str = Field(
        description="As Kubernetes has it: `Pending`, `Running`, `Succeeded`, `Failed` or "
        "`Unknown`; `Terminating` for one that was asked to end."
    )
    is_ready: bool = Field(description="Whether it runs and answers.")
    restarts: int = Field(description="How often containers were started again in it.")
    node: str = Field(default="", description="Where it is; empty before it has a node.")
    message: str = Field(
        default="", description="Why it does not run, for people; empty where it does."
    )
    created_s: float | None = Field(default=None, description="When it was made.")


class EventStatus(_Told):
    """One event of an object, as `kubectl describe` shows it."""

    time_s: float | None = Field(description="When it happened last.")
    type: str = Field(description="`Normal` or `Warning`.")
    reason: str = Field(description="What happened, in one word.")
    message: str = Field(description="What happened, for people.")
    count: int = Field(default=1, description="How often.")


class ObjectStatus(_Told):
    """One object of a kind that `elastic controller` looks after. Moments (`_s`) are seconds since
    the Unix epoch.
    """

    schema_version: int = Field(
        default=SCHEMA_VERSION, description="Raised when a field is removed or means another thing."
    )
    kind: str = Field(
        description="`TrainingJob`, `ElasticJob`, `TFJob` or `ElasticTrainJob`, which no job of "
        "elastic's own has."
    )
    api_version: str = Field(description="Group and version of its API.")
    namespace: str = Field(description="Where it is.")
    job_name: str = Field(description="Its name.")
    phase: str = Field(
        default="",
        description="Where it is in its life, in the words of its kind; empty before a controller "
        "has seen it. `succeeded`, `failed` and `cancelled`, in any case of letters, are final.",
    )
    reason: str = Field(default="", description="Why, in one word; may be empty.")
    message: str = Field(default="", description="Why, for people.")
    submitted_s: float | None = Field(default=None, description="When it was made.")
    scaled_role: str = Field(
        description="The role whose replicas are counted here: `worker`, `trainer` or `chief`."
    )
    replicas_ready: int = Field(default=0, description="How many of them run.")
    replicas_wanted: int | None = Field(
        default=None, description="How many there are to be; `null` where the spec cannot be read."
    )
    replicas_min: int | None = Field(default=None, description="The fewest; likewise.")
    replicas_max: int | None = Field(default=None, description="The most; likewise.")
    conditions: tuple[ConditionStatus, ...] = Field(
        default=(), description="As its controller has written them; some kinds have none."
    )
    pods: tuple[PodStatus, ...] | None = Field(
        default=None, description="Its pods; `null` in lists, and where they may not be listed."
    )
    events: tuple[EventStatus, ...] | None = Field(
        default=None, description="Its newest events, oldest first; `null` likewise."
    )

    @property
    def is_final(self) -> bool:
        """Whether it has ended."""
        return self.phase.lower() in _FINAL

    @property
    def reference(self) -> str:
        """What other commands take for it, such as `tfjob/mnist`."""
        return f"{self.kind.lower()}/{self.job_name}"


class ListedJobStatus(JobStatus):
    """A job of elastic's own, as a list of jobs has it."""

    namespace: str = Field(
        default="", description="Where it is; empty where its platform has no namespaces."
    )


@dataclass(frozen=True, slots=True)
class ListedJob:
    """One of elastic's own jobs, in a list.

    Attributes:
        namespace: Where it is.
        workers: How many it may have; None where its record cannot be read.
        kind: That of the object which it belongs to; empty where it was submitted without one.
    """

    namespace: str
    status: JobStatus
    workers: WorkerRange | None
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """All jobs of a namespace, or of all of them.

    Attributes:
        jobs: Elastic's own, oldest first.
        objects: Of other kinds, kind by kind, oldest first.
    """

    jobs: tuple[ListedJob, ...]
    objects: tuple[ObjectStatus, ...]


# What is told while an image is made: the value between whoever makes it and whoever shows it.


@dataclass(frozen=True, slots=True)
class ImageProgress:
    """One thing that has happened to an image.

    Attributes:
        text: One line for people.
        fraction: How much of what runs now is done, 0 to 1; None where nobody can tell.
        is_detail: Output of a step that itself was told before; worth showing only while it is
            the newest.
    """

    text: str
    fraction: float | None = None
    is_detail: bool = False


OnProgress = Callable[[ImageProgress], None]
