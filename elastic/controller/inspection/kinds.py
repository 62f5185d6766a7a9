"""All kinds as commands see them, and `KIND/NAME` as commands take it. Pure.

What a command asks a kind for is `Seen`, of which each kind is one; what they share comes before
them, and all of them, by their names, at the end. An ElasticTrainJob is seen here where it is an
object and no job of ours yet: as soon as its record is there, `elastic` knows it as any other job
of its own, which tells more.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from elastic.controller.kinds.common import GROUP_LABEL, INDEX_LABEL, JOB_LABEL, TYPE_LABEL, name_of
from elastic.controller.kinds.elastic_job.objects import STORE, WORKER
from elastic.controller.kinds.tf_job import SCHEDULED
from elastic.controller.kinds.tf_replicas import GROUP as TF_GROUP
from elastic.controller.kinds.tf_replicas import size_of
from elastic.controller.kinds.training_look import LABELS, status_of
from elastic.controller.resources import elastic_job, elastic_train_job, tf_job, training_job
from elastic.controller.resources.common import (
    Condition,
    ConditionStatus,
    Fields,
    Reading,
    ReplicaStatus,
    read_spec,
)
from elastic.controller.resources.definitions import DEFINITIONS
from elastic.errors import JobSpecError
from elastic.platforms.kubernetes.api.resources import Manifest, Resource
from elastic.platforms.kubernetes.objects.names import INDEX_LABEL as OWN_INDEX_LABEL
from elastic.platforms.kubernetes.objects.names import TYPE_LABEL as OWN_TYPE_LABEL
from elastic.platforms.kubernetes.objects.names import job_selector
from elastic.policy.replicas import ReplicaPhase
from elastic.spec.job import WorkerRange
from elastic.spec.roles import ROLES
from elastic.spec.roles import WORKER as OWN_WORKER
from elastic.spec.values import nearest

M = TypeVar("M", bound=BaseModel)
S = TypeVar("S", bound=Fields)

_DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
"""Annotation: which container is meant where nobody names one."""
_TF_PHASES: Final = ("Failed", "Succeeded", "Suspended", "Restarting", "Running", "Created")
"""Conditions by what they say of a job, the strongest first; `Suspended` is of Kubeflow's own."""


@dataclass(frozen=True, slots=True)
class Count:
    """The replicas that a job is sized by.

    Attributes:
        role: What they are.
        ready: How many run.
        wanted: How many there are to be; None where the spec cannot be read, as the others.
        minimum: The fewest.
        maximum: The most.
    """

    role: str
    ready: int = 0
    wanted: int | None = None
    minimum: int | None = None
    maximum: int | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """How an object stands, by its spec and its status alone.

    Attributes:
        phase: In the words of its kind; empty before a controller has seen it.
        reason: Why, in one word.
        message: Why, for people.
        conditions: Those of its status.
    """

    phase: str
    count: Count
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()


class Seen(Protocol):
    """One kind, as commands see it.

    Attributes:
        resource: Of its objects.
        roles: Of its pods, in the order in which they are shown.
        indexed_role: The one that an index without a role is of; None where pods have no index.
    """

    @property
    def resource(self) -> Resource: ...
    @property
    def roles(self) -> Sequence[str]: ...
    @property
    def indexed_role(self) -> str | None: ...

    def standing(self, job: Manifest) -> Standing:
        """How an object stands; never fails for what somebody wrote in it."""

    def selectors(self, name: str) -> Sequence[str]:
        """By which labels the pods of an object are listed; each is one list."""

    def role_of(self, pod: Manifest) -> tuple[str, int | None]:
        """What one of these pods is, and its index, where the kind counts them."""

    def container(self, pod: Manifest) -> str:
        """The container whose log is meant."""

    def resized(self, job: Manifest, size: int) -> Manifest:
        """The merge patch that has an object be of another size.

        Raises:
            JobSpecError: It cannot be; its range is named.
        """


def lenient(model: type[M], job: Manifest) -> M:
    """The status of an object, or an empty one where somebody else's controller writes another."""
    try:
        return model.model_validate(job.get("status") or {})
    except ValidationError:
        return model.model_validate({})


def newest(conditions: Sequence[Condition]) -> Condition | None:
    """The condition that came to hold last; None where none holds."""
    holding = [each for each in conditions if each.status is ConditionStatus.TRUE]
    return holding[-1] if holding else None


def labels_of(item: Manifest) -> Mapping[str, str]:
    """Its labels; empty where it has none."""
    labels: Mapping[str, str] = item["metadata"].get("labels") or {}
    return labels


def replica_of(
    pod: Manifest, type_label: str = TYPE_LABEL, index_label: str = INDEX_LABEL
) -> tuple[str, int | None]:
    """What a pod is whose labels say its role and its index, as far as they do."""
    labels = labels_of(pod)
    index = str(labels.get(index_label, ""))
    return labels.get(type_label, "pod"), int(index) if index.isdecimal() else None


def selector_of(name: str, group: str) -> str:
    """Selects the pods of an object whose replicas its controller makes itself."""
    return f"{JOB_LABEL}={name},{GROUP_LABEL}={group}"


def readable(reference: str, reading: Reading[S]) -> S:
    """The spec that was read.

    Raises:
        JobSpecError: It is wrong.
    """
    if reading.spec is None:
        raise JobSpecError(f"{reference} has a spec that is wrong: {reading.problem}")
    return reading.spec


def default_container(pod: Manifest) -> str:
    """The one that its annotation names, or else the first, as kubectl has it."""
    containers: Sequence[Mapping[str, Any]] = pod["spec"].get("containers") or ()
    names = [str(each["name"]) for each in containers]
    named = str((pod["metadata"].get("annotations") or {}).get(_DEFAULT_CONTAINER))
    return named if named in names else next(iter(names), "")


def told_range(low: int, high: int | None) -> str:
    """`2:8`, `3`, or `2 and more`, as messages have a range."""
    if high is None:
        return f"{low} and more"
    return str(low) if low == high else f"{low}:{high}"


def check_size(reference: str, size: int, low: int, high: int | None, fields: str) -> None:
    """Check a size that somebody asks for.

    Args:
        reference: The object, for people.
        size: Replicas wanted.
        low: The fewest.
        high: The most; None without a limit.
        fields: Of the spec, which set the range.

    Raises:
        JobSpecError: It is outside of the range.
    """
    if size < low or (high is not None and size > high):
        raise JobSpecError(
            f"{size} is outside the range {told_range(low, high)} of {reference}: choose a number "
            f"within it, or edit {fields}"
        )


@dataclass(frozen=True, slots=True)
class SeenTrainingJobs:
    """See `Seen`."""

    resource: Resource = training_job.RESOURCE
    roles: Sequence[str] = tuple(training_job.Role)
    indexed_role: str | None = None

    def standing(self, job: Manifest) -> Standing:
        """By its phase; a job of this kind has no conditions."""
        status, spec = status_of(job), training_job.read_job(job).spec
        return Standing(status.phase.value, _trainer_count(spec, status), message=status.reason)

    def selectors(self, name: str) -> Sequence[str]:
        """Each role has a label of its own, whose value is the job."""
        return tuple(f"{LABELS[role]}={name}" for role in training_job.Role)

    def role_of(self, pod: Manifest) -> tuple[str, int | None]:
        """By its label; pods of ReplicaSets and of such a Job have no index."""
        labels = labels_of(pod)
        return next((role for role, label in LABELS.items() if label in labels), "pod"), None

    def container(self, pod: Manifest) -> str:
        """There is one."""
        return default_container(pod)

    def resized(self, job: Manifest, size: int) -> Manifest:
        """Another least number of trainers, which is what a job runs at.

        Raises:
            JobSpecError: It is above the most, or the trainers of the job cannot change in number.
        """
        reference = f"trainingjob/{name_of(job)}"
        spec, status = readable(reference, training_job.read_job(job)), status_of(job)
        if reason := _why_fixed(spec, status):
            now = spec.trainer.min_instance
            raise JobSpecError(f"{reference} stays at its {now} trainers: {reason}")
        fields = "trainer.min-instance and trainer.max-instance"
        check_size(reference, size, 1, spec.trainer.max_instance, fields)
        return {"spec": {"trainer": {"min-instance": size}}}


def _why_fixed(spec: training_job.TrainingJobSpec, status: training_job.TrainingJobStatus) -> str:
    """Why the trainers cannot become more or fewer; empty where they can."""
    if status.phase is not training_job.Phase.NONE and not spec.fault_tolerant:
        return (
            "without fault_tolerant they count on each other, and those that run are not told of "
            "another number; edit spec.trainer.min-instance where that is no matter"
        )
    if any(each.succeeded for each in _trainers(status)):
        return "Kubernetes starts no trainer after the first success"
    return ""


def _trainers(status: training_job.TrainingJobStatus) -> list[training_job.RoleStatus]:
    roles = status.replica_statuses
    return [each for each in roles if each.training_resource_type is training_job.Role.TRAINER]


def _trainer_count(
    spec: training_job.TrainingJobSpec | None, status: training_job.TrainingJobStatus
) -> Count:
    ready = sum(each.active for each in _trainers(status))
    if spec is None:
        return Count(training_job.Role.TRAINER, ready)
    # 0 stands for a job that was not looked at yet.
    wanted = status.scale_of(training_job.Role.TRAINER).wanted or spec.trainer.min_instance
    return Count(
        training_job.Role.TRAINER, ready, wanted, spec.trainer.min_instance, spec.trainer.most
    )


@dataclass(frozen=True, slots=True)
class SeenElasticJobs:
    """See `Seen`."""

    resource: Resource = elastic_job.RESOURCE
    roles: Sequence[str] = (WORKER, STORE)
    indexed_role: str | None = WORKER

    def standing(self, job: Manifest) -> Standing:
        """By its phase, and the condition that came to hold last."""
        status = lenient(elastic_job.ElasticJobStatus, job)
        spec = read_spec(elastic_job.ElasticJobSpec, job).spec
        why = newest(status.conditions)
        count = Count(WORKER, status.replica_statuses.worker.active)
        if spec is not None:
            limits = (spec.min_size, spec.max_size)
            count = Count(WORKER, count.ready, spec.replicas, *limits)
        return Standing(
            status.phase or "",
            count,
            why.reason if why else "",
            why.message if why else "",
            status.conditions,
        )

    def selectors(self, name: str) -> Sequence[str]:
        """By the labels of the job."""
        return (selector_of(name, elastic_job.GROUP),)

    def role_of(self, pod: Manifest) -> tuple[str, int | None]:
        """By its labels; the store where workers meet has no index."""
        return replica_of(pod)

    def container(self, pod: Manifest) -> str:
        """The first, unless the pod says otherwise."""
        return default_container(pod)

    def resized(self, job: Manifest, size: int) -> Manifest:
        """Another number of workers, within what the spec gives as limits.

        A limit that is left out follows the number.

        Raises:
            JobSpecError: It is outside of the limits, or they cannot be read.
        """
        reference = f"elasticjob/{name_of(job)}"
        spec = readable(reference, read_spec(elastic_job.ElasticJobSpec, job))
        low, high = spec.min_replicas or 1, spec.max_replicas
        check_size(reference, size, low, high, "minReplicas and maxReplicas")
        return {"spec": {"replicaSpecs": {"Worker": {"replicas": size}}}}


@dataclass(frozen=True, slots=True)
class SeenTFJobs:
    """See `Seen`."""

    resource: Resource = tf_job.RESOURCE
    roles: Sequence[str] = tuple(role.task_type for role in tf_job.Role)
    indexed_role: str | None = tf_job.Role.WORKER.task_type

    def standing(self, job: Manifest) -> Standing:
        """By its conditions: the order in which they came to hold says less than what they say."""
        status, spec = tf_job.read_status(job), tf_job.read_tf_job(job).spec
        holding = {
            each.type: each for each in status.conditions if each.status is ConditionStatus.TRUE
        }
        last = newest(status.conditions)
        phase = next((each for each in _TF_PHASES if each in holding), last.type if last else "")
        why = _waits(status) if phase == "Created" else None
        why = why or holding.get(phase)
        return Standing(
            phase,
            _tf_count(spec, status),
            why.reason if why else "",
            why.message if why else "",
            status.conditions,
        )

    def selectors(self, name: str) -> Sequence[str]:
        """By the labels of the job."""
        return (selector_of(name, TF_GROUP),)

    def role_of(self, pod: Manifest) -> tuple[str, int | None]:
        """By its labels."""
        return replica_of(pod)

    def container(self, pod: Manifest) -> str:
        """The one that decides how a replica has ended."""
        names = [each["name"] for each in pod["spec"].get("containers") or ()]
        return tf_job.CONTAINER if tf_job.CONTAINER in names else default_container(pod)

    def resized(self, job: Manifest, size: int) -> Manifest:
        """Another number of workers.

        Raises:
            JobSpecError: There are none, or the number is outside of what its pods know of.
        """
        reference = f"tfjob/{name_of(job)}"
        spec = readable(reference, tf_job.read_tf_job(job))
        if tf_job.Role.WORKER not in spec.roles:
            raise JobSpecError(f"{reference} has no workers, and other roles keep their size")
        # Without a maximum the pods that run were told of no more workers than there were to be.
        has_begun = tf_job.read_status(job).start_time is not None
        high = spec.max_instances or (spec.worker_range[1] if has_begun else None)
        check_size(reference, size, spec.min_instances or 1, high, "min-instances, max-instances")
        return {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": size}}}}


def _waits(status: tf_job.TFJobStatus) -> Condition | None:
    """Why a job has no place yet."""
    return next(
        (
            each
            for each in status.conditions
            if each.type == SCHEDULED and each.status is ConditionStatus.FALSE
        ),
        None,
    )


def _tf_count(spec: tf_job.TFJobSpec | None, status: tf_job.TFJobStatus) -> Count:
    """Of the workers; of the one that trains alone where there are none."""
    role = tf_job.Role.WORKER
    if spec is not None and tf_job.Role.WORKER not in spec.roles:
        role = next(
            (each for each in (tf_job.Role.CHIEF, tf_job.Role.MASTER) if each in spec.roles), role
        )
    told = status.replica_statuses.get(role.value) or ReplicaStatus.model_validate({})
    ready = told.active
    if spec is None:
        return Count(role.task_type, ready)
    if role is not tf_job.Role.WORKER:
        return Count(role.task_type, ready, 1, 1, 1)
    low, _, high = spec.worker_range
    return Count(role.task_type, ready, size_of(spec, status), low, high)


@dataclass(frozen=True, slots=True)
class SeenTrainJobs:
    """See `Seen`."""

    resource: Resource = elastic_train_job.RESOURCE
    roles: Sequence[str] = tuple(ROLES)
    indexed_role: str | None = OWN_WORKER

    def standing(self, job: Manifest) -> Standing:
        """By what its controller has copied of the job's status."""
        status = _status_of(job)
        limits = _workers_of(job)
        count = Count(OWN_WORKER)
        if limits is not None:
            wanted = limits.maximum if status is None else status.desired_workers
            count = Count(OWN_WORKER, 0, wanted, limits.minimum, limits.maximum)
        if status is None:
            return Standing("", count)
        running = sum(each.phase == ReplicaPhase.RUNNING for each in status.workers)
        return Standing(
            status.phase.value,
            replace(count, ready=running),
            status.reason,
            status.message,
            status.conditions,
        )

    def selectors(self, name: str) -> Sequence[str]:
        """By the labels of all jobs of ours."""
        return (job_selector(name),)

    def role_of(self, pod: Manifest) -> tuple[str, int | None]:
        """By its labels."""
        return replica_of(pod, OWN_TYPE_LABEL, OWN_INDEX_LABEL)

    def container(self, pod: Manifest) -> str:
        """The first, unless the pod says otherwise."""
        return default_container(pod)

    def resized(self, job: Manifest, size: int) -> Manifest:  # noqa: ARG002 - see Raises
        """Its master does so, as for any job of ours.

        Raises:
            JobSpecError: Always: it has no master yet.
        """
        raise JobSpecError(f"elastictrainjob/{name_of(job)} has no master yet that could scale it")


def _workers_of(job: Manifest) -> WorkerRange | None:
    spec = read_spec(elastic_train_job.ElasticTrainJobSpec, job).spec
    if spec is None:
        return None
    metadata = job["metadata"]
    try:
        return spec.job_spec(metadata["name"], metadata["namespace"]).num_workers
    except JobSpecError:
        return None


def _status_of(job: Manifest) -> elastic_train_job.ElasticTrainJobStatus | None:
    """What its controller has told; None where it has not, or it cannot be read."""
    try:
        return elastic_train_job.ElasticTrainJobStatus.model_validate(
            {"job_name": name_of(job)} | job["status"]
        )
    except (KeyError, TypeError, ValidationError):
        return None


TRAIN_JOBS: Final[Seen] = SeenTrainJobs()
"""Those whose objects are jobs of ours as well."""

KINDS: Final[tuple[Seen, ...]] = (
    SeenTrainingJobs(),
    SeenElasticJobs(),
    SeenTFJobs(),
    TRAIN_JOBS,
)
"""In the order in which they are listed."""


@dataclass(frozen=True, slots=True)
class Reference:
    """One object, as commands name it."""

    kind: Seen
    name: str

    def __str__(self) -> str:
        return f"{self.kind.resource.kind.lower()}/{self.name}"


_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def is_name(text: str) -> bool:
    """Whether an object can have this name."""
    return _NAME.fullmatch(text) is not None


def _by_word() -> dict[str, Seen]:
    """All that kubectl takes for a kind: its name, plural or short name, with or without group."""
    words: dict[str, Seen] = {}
    for kind in KINDS:
        resource = kind.resource
        full = (resource.kind.lower(), resource.plural)
        words |= dict.fromkeys(full, kind)
        words |= dict.fromkeys((f"{word}.{resource.group}" for word in full), kind)
        words |= dict.fromkeys(DEFINITIONS[resource.kind].short_names, kind)
    return words


_WORDS: Final[Mapping[str, Seen]] = _by_word()


def kind_named(word: str) -> Seen | None:
    """The kind that a word means, in any case of letters; None where there is none."""
    return _WORDS.get(word.lower())


def parse_reference(text: str) -> Reference:
    """Read `KIND/NAME`; the kind by its name, plural or short name, in any case of letters.

    Raises:
        JobSpecError: There is no such kind, or no object can have the name.
    """
    word, _, name = text.partition("/")
    kind = kind_named(word)
    known = [each.resource.kind.lower() for each in KINDS]
    if kind is None:
        near = nearest(word.lower(), _WORDS)
        raise JobSpecError(
            f"{text}: there is no kind {word!r}"
            + (f": did you mean {near}/{name}?" if near else f": use {', '.join(known)}")
        )
    if not is_name(name):
        raise JobSpecError(
            f"{text}: {name!r} is no name of an object: those have lower-case letters, digits, "
            "'-' and '.' only"
        )
    return Reference(kind, name)
