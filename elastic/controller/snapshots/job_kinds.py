"""Jobs of all kinds as policies see them: their ranges, and which pods are theirs. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias

from pydantic import ValidationError

from elastic.controller.kinds.conditions import ended_as
from elastic.controller.kinds.pods import (
    GROUP_LABEL,
    JOB_LABEL,
    TYPE_LABEL,
    index_of,
    replica_name,
)
from elastic.controller.kinds.training_children import LABELS, child_of
from elastic.controller.kinds.training_telling import status_of
from elastic.controller.resources import elastic_job, tf_job, training_job
from elastic.controller.resources.base import read_spec
from elastic.controller.resources.common import seconds_of
from elastic.controller.snapshots.hands import is_held
from elastic.controller.snapshots.pods import Role
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.policy.cluster.snapshot import Telling

_WORKER: Final = "worker"


@dataclass(frozen=True, slots=True)
class JobReading:
    """One job as its kind reads it.

    Attributes:
        kind: Its kind, as users write it.
        workers: The role that comes and goes.
        labels: By which the pods of each role are found, by the name of the role.
        scaled_s: When its size was last changed; None where nobody knows.
        is_frozen: Whether it stays as it is, whatever its range: nothing of it is made any more.
        is_stoppable: Whether it may have no worker for a while, and goes on later.
        telling: What it tells of itself.
        program: See `Job`.
    """

    kind: str
    name: str
    submitted_s: float
    workers: Role
    ps: Role | None
    others: tuple[Role, ...]
    labels: Mapping[str, Mapping[str, str]]
    scaled_s: float | None = None
    is_frozen: bool = False
    is_stoppable: bool = False
    telling: Telling = field(default_factory=Telling)
    program: str | None = None


@dataclass(frozen=True, slots=True)
class Beside:
    """What a job is read with, beside its object.

    Attributes:
        now_s: The moment, in seconds since the epoch.
        config_maps: Those of our own jobs, by namespace and name.
    """

    now_s: float
    config_maps: Mapping[tuple[str, str], Manifest] = field(default_factory=dict)


ReadJob: TypeAlias = Callable[[Manifest, Beside], JobReading | None]
"""None for a job that has ended, cannot be read, or has no size to be decided."""


def created_s(manifest: Manifest) -> float:
    """When an object was made, in seconds since the epoch."""
    return seconds_of(str(manifest["metadata"]["creationTimestamp"]))


def read_training_job(manifest: Manifest, _beside: Beside) -> JobReading | None:
    """See `ReadJob`."""
    spec, status = read_spec(training_job.TrainingJobSpec, manifest).spec, status_of(manifest)
    if spec is None or status.phase.is_final:
        return None
    name = str(manifest["metadata"]["name"])

    def role(which: training_job.Role, low: int, high: int, wanted: int) -> Role:
        template = child_of(name, which, spec, low)["spec"]["template"]
        # Without fault tolerance the job is not elastic.
        return Role(which.value, template, low, high if spec.fault_tolerant else low, wanted)

    scale = status.scale_status
    trainer, pserver = spec.trainer, spec.pserver
    roles = training_job.Role
    master = (role(roles.MASTER, 1, 1, 1),) if spec.master is not None else ()
    time = scale.trainer.time
    succeeded = {each.training_resource_type: each.succeeded for each in status.replica_statuses}
    return JobReading(
        training_job.RESOURCE.kind,
        name,
        created_s(manifest),
        role(roles.TRAINER, trainer.min_instance, trainer.most, scale.trainer.wanted),
        role(roles.PSERVER, pserver.min_instance, pserver.most, scale.pserver.wanted),
        master,
        {each.value: {LABELS[each]: name} for each in roles},
        None if time is None else seconds_of(str(time)),
        # Kubernetes starts no trainer after the first success.
        is_frozen=bool(succeeded.get(roles.TRAINER)),
    )


def read_elastic_job(manifest: Manifest, beside: Beside) -> JobReading | None:
    """See `ReadJob`."""
    spec = read_spec(elastic_job.ElasticJobSpec, manifest).spec
    status = _elastic_status(manifest)
    if spec is None or ended_as(status.conditions) is not None:
        return None
    name, size = str(manifest["metadata"]["name"]), spec.replicas
    low, high = spec.min_size, spec.max_size
    if is_held(manifest, size, beside.now_s):
        low = high = size
    first = replica_name(name, _WORKER, 0)
    workers = Role(_WORKER, spec.worker.template, low, high, size, size, first)
    labels = {JOB_LABEL: name, GROUP_LABEL: elastic_job.GROUP, TYPE_LABEL: _WORKER}
    return JobReading(
        elastic_job.RESOURCE.kind,
        name,
        created_s(manifest),
        workers,
        None,
        (),
        {_WORKER: labels},
        # Who has ended well is not made again, and those left end soon.
        is_frozen=bool(status.succeeded_workers),
    )


def _elastic_status(manifest: Manifest) -> elastic_job.ElasticJobStatus:
    try:
        return elastic_job.ElasticJobStatus.model_validate(manifest.get("status") or {})
    except ValidationError:
        return elastic_job.ElasticJobStatus.model_validate({})


SEAT_S: Final = 60.0
"""How long a place is kept for a pod that is to be made there; then another one is looked for."""


def fresh_seats(status: tf_job.TFJobStatus, now_s: float) -> Mapping[str, tf_job.SeatStatus]:
    """Places that are kept, by the names of pods, whether or not these are there."""
    at = status.last_scale_time
    is_fresh = at is not None and now_s - seconds_of(at) < SEAT_S
    return status.seats if is_fresh else {}


def read_tf_job(manifest: Manifest, beside: Beside) -> JobReading | None:
    """See `ReadJob`."""
    spec = tf_job.read_tf_job(manifest).spec
    status = tf_job.read_status(manifest)
    if spec is None or ended_as(status.conditions) is not None:
        return None
    name = str(manifest["metadata"]["name"])
    low, first, high = spec.worker_range
    size, scaled = status.size or 0, status.last_scale_time
    seats = fresh_seats(status, beside.now_s)

    def role(which: tf_job.Role, replicas: tf_job.TFReplicaSpec) -> Role:
        task, count = which.task_type, replicas.replicas
        begins = replica_name(name, task, 0)
        kept = {
            pod: (seat.node, seat.card)
            for pod, seat in seats.items()
            if index_of(pod, name, task) is not None
        }
        if which is tf_job.Role.WORKER:
            return Role(task, replicas.template, low, high, size, first, begins, seats=kept)
        wanted = count if size else 0
        return Role(task, replicas.template, count, count, wanted, first=begins, seats=kept)

    roles = {which: role(which, replicas) for which, replicas in spec.roles.items()}
    workers = roles.pop(tf_job.Role.WORKER, None)
    if workers is None:
        # A chief that works alone has no size to be decided.
        return None
    ps = roles.pop(tf_job.Role.PS, None)
    labels = {
        which.task_type: {
            JOB_LABEL: name,
            GROUP_LABEL: tf_job.RESOURCE.group,
            TYPE_LABEL: which.task_type,
        }
        for which in tf_job.Role
    }
    return JobReading(
        tf_job.RESOURCE.kind,
        name,
        created_s(manifest),
        workers,
        ps,
        tuple(roles.values()),
        labels,
        None if scaled is None else seconds_of(scaled),
    )


READERS: Final[Mapping[str, ReadJob]] = MappingProxyType(
    {
        "trainingjob": read_training_job,
        "elasticjob": read_elastic_job,
        "tfjob": read_tf_job,
    }
)
"""By the lower-case names of the kinds of their objects."""

RESOURCES: Final = MappingProxyType(
    {
        "trainingjob": training_job.RESOURCE,
        "elasticjob": elastic_job.RESOURCE,
        "tfjob": tf_job.RESOURCE,
    }
)
"""The types of jobs that are objects of their own, by the lower-case names of their kinds."""
