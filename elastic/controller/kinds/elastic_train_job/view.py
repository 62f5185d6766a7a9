"""The objects of one ElasticTrainJob, in their roles, and how its master stands. Pure.

First as they are made, which are those of the command line, by the same functions; then as they are
at one moment (`View`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cached_property
from typing import Final

from pydantic import ValidationError

from elastic.controller.kinds.common import (
    Queues,
    failures_in_a_row,
    name_of,
    pod_ended_s,
    queue_of,
    ran_s,
    uid_of,
)
from elastic.controller.reconciling import Create, Note, Observed, Patch
from elastic.controller.resources.common import Reading, read_spec, seconds_of
from elastic.controller.resources.elastic_train_job import RESOURCE, ElasticTrainJobSpec, Remembered
from elastic.errors import JobSpecError, PlatformError
from elastic.platforms.base import JobControl
from elastic.platforms.certificates import make_certificate
from elastic.platforms.kubernetes.api.resources import (
    CONFIGMAPS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    SECRETS,
    SERVICES,
    Manifest,
    Resource,
)
from elastic.platforms.kubernetes.masters import published_status
from elastic.platforms.kubernetes.objects import manifests, names
from elastic.platforms.kubernetes.objects.manifests import (
    StatusUnreadableError,
    Submission,
    control_of,
    spec_of,
    submission_of,
)
from elastic.platforms.kubernetes.objects.names import QueueSystem, ResourceOwner, group_change
from elastic.platforms.kubernetes.objects.podspec import Job, gang_of, job_group
from elastic.platforms.kubernetes.pods import OVERDUE_S, has_failed, is_deleted, is_node_silent
from elastic.spec.job import JobSpec
from elastic.spec.status import JobPhase, JobStatus

_RESOURCES: Final = {
    each.kind: each for each in (CONFIGMAPS, PERSISTENT_VOLUME_CLAIMS, PODS, SECRETS, SERVICES)
}


def job_of_resource(resource: Manifest, asked: JobSpec, system: QueueSystem | None) -> Job:
    """The job that a resource asks for.

    Args:
        resource: The ElasticTrainJob.
        asked: What it says.
        system: Of the queue that it names, if any.
    """
    owner = _owner(resource)
    spec = manifests.spec_for_pods(asked, None)
    uid = owner.submission_uid
    return Job(spec, asked.namespace, uid, asked.image, owner=owner, queue_system=system)


def job_of_record(resource: Manifest, record: Manifest) -> Job:
    """The job as it was submitted.

    Raises:
        PlatformError: Its record is damaged, or of another version.
    """
    spec, submission = spec_of(record), submission_of(record)
    namespace = resource["metadata"]["namespace"]
    return Job(
        spec,
        namespace,
        submission.uid,
        submission.image,
        owner=_owner(resource),
        queue_system=submission.queue_system,
    )


def _owner(resource: Manifest) -> ResourceOwner:
    return ResourceOwner(RESOURCE.api_version, RESOURCE.kind, name_of(resource), uid_of(resource))


def create_record(job: Job, resource: Manifest) -> Create:
    """The record, which comes first: by its name, jobs of one name exclude each other."""
    submitted_s = seconds_of(resource["metadata"]["creationTimestamp"])
    submission = Submission(job.submission_uid, submitted_s, job.image, job.owner, job.queue_system)
    advice = (
        f"job {job.name!r} was submitted without a resource, and is left alone: rename this one, "
        f"or end the other with `elastic kill {job.name} -n {job.namespace} --forget`"
    )
    return _create(manifests.record(job, submission), advice)


def create_claim(job: Job, name: str, template: Manifest) -> Create:
    """The claim of its state."""
    return _create(manifests.state_claim(job, name, template))


def create_status(job: Job) -> Create:
    """Where its masters publish."""
    return _create(manifests.empty_status(job))


def create_service(job: Job) -> Create:
    """The name that every master has."""
    return _create(manifests.service(job))


def group_action(job: Job, there: Manifest | None) -> Create | Patch | None:
    """What has its group in the cluster's queue be there, and as it is to be; None for nothing.

    Args:
        job: The job.
        there: The group, if it is.
    """
    made, gang = job_group(job), gang_of(job)
    if made is None or gang is None or job.queue_system is None:
        return None
    if there is None:
        return _create(made[1], resource=made[0])
    change = group_change(job.queue_system, gang, there)
    return None if change is None else Patch(made[0], gang.name, change)


def create_token(job: Job, random_hex: str, is_first: bool) -> Create:
    """The secret of all its replicas; one that is there stays, whatever is in this one.

    Args:
        job: The job.
        random_hex: See `Observed`.
        is_first: Whether the job has none yet for certain, so that it is told.
    """
    # Who learns the token shall not know the key.
    half = len(random_hex) // 2
    token, seed = random_hex[:half], random_hex[half:]
    certificate = make_certificate(seed) if job.spec.tls else None
    create = _create(manifests.token_secret(job, token, certificate=certificate))
    return create if is_first else replace(create, note=None)


def create_master(job: Job) -> Create:
    """The pod of a master."""
    return _create(manifests.master_pod(job))


def create_board(job: Job) -> Iterator[Create]:
    """The service of its TensorBoard, and the pod where it has one of its own."""
    for manifest in manifests.board_objects(job, None):
        yield _create(manifest)


def _create(manifest: Manifest, if_taken: str = "", resource: Resource | None = None) -> Create:
    resource = resource or _RESOURCES[manifest["kind"]]
    # Whoever makes it says whose it is.
    metadata = {key: each for key, each in manifest["metadata"].items() if key != _OWNERS}
    note = Note(
        f"SuccessfulCreate{resource.kind}",
        f"Created {resource.kind.lower()}: {name_of(manifest)}",
    )
    return Create(resource, {**manifest, "metadata": metadata}, note, if_taken)


_OWNERS: Final = "ownerReferences"


class Life(Enum):
    """How a master's pod stands, as far as the API server tells.

        ABSENT ──▶ ALIVE ──▶ LEAVING ──▶ ABSENT
                     │          └──▶ OVERDUE ──▶ ABSENT, by force
                     └──▶ FAILED ──▶ ABSENT, after a pause

    ALIVE is also one that waits for its node, or whose container has ended and is started again;
    OVERDUE is one that nobody can tell the end of any more, and that a fence keeps from its work.
    """

    ABSENT = auto()
    ALIVE = auto()
    LEAVING = auto()
    OVERDUE = auto()
    FAILED = auto()


LOST: Final = frozenset({Life.ABSENT, Life.OVERDUE, Life.FAILED})
"""Of these pods no master comes back."""


@dataclass(frozen=True)
class View:
    """What there is of a job.

    Attributes:
        resource: The ElasticTrainJob.
        spec: Its own, as it is now; None where that cannot be read, as after a slip of an editor.
        asked: The job that the resource asks for now; None likewise.
        job: What all objects are made from: as recorded, and before there is a record as asked.
        written: The status as it was written last.
        before: What is remembered in it.
        objects: By type and name, what the job controls.
        queues: Those of the cluster.
        lacks_queue: Whether the queue in which it is to wait is not there.
        now_s: Seconds since the epoch.
        random_hex: See `Observed`.
    """

    resource: Manifest
    spec: ElasticTrainJobSpec | None
    asked: JobSpec | None
    job: Job
    written: Manifest
    before: Remembered
    objects: Mapping[Resource, Mapping[str, Manifest]]
    queues: Queues
    lacks_queue: bool
    now_s: float
    random_hex: str

    @property
    def generation(self) -> int:
        """Grows with each edit of the spec."""
        return int(self.resource["metadata"].get("generation", 1))

    @property
    def phase(self) -> JobPhase | None:
        """The phase that was written last."""
        return written_phase(self.written)

    @property
    def record(self) -> Manifest | None:
        """What the job was submitted with, and what users ask of it."""
        return self._find(CONFIGMAPS, names.record_name(self.job.name))

    @property
    def status_map(self) -> Manifest | None:
        """What the master publishes in."""
        return self._find(CONFIGMAPS, names.status_name(self.job.name))

    @property
    def master(self) -> Manifest | None:
        """The master's pod."""
        return self._find(PODS, names.master_name(self.job.name))

    @property
    def board(self) -> Manifest | None:
        """The pod of the TensorBoard, where it has one of its own."""
        return self._find(PODS, names.tensorboard_name(self.job.name))

    @property
    def group(self) -> Manifest | None:
        """By which the cluster's queue knows the pods that have to start together."""
        groups = [each for of in self.queues.groups for each in self.objects[of].values()]
        return groups[0] if groups else None

    @property
    def workers(self) -> list[Manifest]:
        """The pods that masters have launched."""
        others = {names.master_name(self.job.name), names.tensorboard_name(self.job.name)}
        return [pod for name, pod in self.objects[PODS].items() if name not in others]

    @property
    def pods(self) -> list[Manifest]:
        """All of them."""
        return list(self.objects[PODS].values())

    def has(self, resource: Resource, name: str) -> bool:
        """Whether the job has an object."""
        return self._find(resource, name) is not None

    @property
    def life(self) -> Life:
        """How the master's pod stands."""
        return life_of(self.master, self.now_s)

    @property
    def is_new_failure(self) -> bool:
        """Whether the master's pod has failed, and that is not counted yet."""
        pod = self.master
        if pod is None or self.life is not Life.FAILED:
            return False
        return uid_of(pod) != self.before.failed_master

    @property
    def master_failures(self) -> int:
        """Pods of the master that failed in a row, this one included."""
        before, pod = self.before.master_failures, self.master
        return failures_in_a_row(before, ran_s(pod)) if pod and self.is_new_failure else before

    @property
    def is_suspended(self) -> bool:
        """Whether the job is to have no pods; as before where its spec cannot be read."""
        return self.phase is JobPhase.SUSPENDED if self.spec is None else self.spec.suspend

    @cached_property
    def published(self) -> JobStatus | None:
        """What its masters have published last; None where nothing is there that can be read."""
        try:
            return published_status(self.status_map, self.job.submission_uid)
        except StatusUnreadableError:
            return None

    @property
    def control(self) -> JobControl:
        """What users have asked for since."""
        try:
            return JobControl() if self.record is None else control_of(self.record)
        except PlatformError:
            return JobControl()

    @property
    def claim(self) -> str | None:
        """The claim of its state; None where nothing outlives the master's pod."""
        return None if self.spec is None else self.spec.claim_name(self.job.name)

    def _find(self, resource: Resource, name: str) -> Manifest | None:
        return self.objects[resource].get(name)


CHILDREN: Final = (PODS, SERVICES, CONFIGMAPS, PERSISTENT_VOLUME_CLAIMS)
"""What jobs are made of and shows how they are; a Secret is made as well, and never looked at."""


def life_of(pod: Manifest | None, now_s: float) -> Life:
    """How a master's pod stands.

    Args:
        pod: None where there is none.
        now_s: Seconds since the epoch, by the API server's clock.
    """
    if pod is None:
        return Life.ABSENT
    if is_deleted(pod):
        is_over = is_node_silent(pod) or now_s >= overdue_s(pod)
        return Life.OVERDUE if is_over else Life.LEAVING
    return Life.FAILED if has_failed(pod) else Life.ALIVE


def overdue_s(pod: Manifest) -> float:
    """When a pod that is to be removed should have been gone for long: its time includes grace."""
    return seconds_of(pod["metadata"]["deletionTimestamp"]) + OVERDUE_S


def failed_s(view: View) -> float:
    """When the master's pod, which has failed, did so."""
    assert view.master is not None, "a pod that has failed is there"
    return pod_ended_s(view.master)


def read_resource(resource: Manifest) -> tuple[Reading[ElasticTrainJobSpec], JobSpec | None]:
    """The spec of a resource and the job that it asks for, or why there is none."""
    reading = read_spec(ElasticTrainJobSpec, resource)
    if reading.spec is None:
        return reading, None
    metadata = resource["metadata"]
    try:
        queue = queue_of(resource)
        return reading, reading.spec.job_spec(metadata["name"], metadata["namespace"], queue)
    except JobSpecError as error:
        return Reading(None, str(error), reading.unknown), None


def view_of(
    observed: Observed, spec: ElasticTrainJobSpec | None, asked: JobSpec | None, queues: Queues
) -> View | None:
    """Sort what there is; None where neither a record nor the spec says what the job is.

    Args:
        observed: What there is.
        spec: See `View`.
        asked: See `View`.
        queues: See `View`.

    Raises:
        PlatformError: The record is damaged, or of another version.
    """
    objects = {
        resource: {name_of(item): item for item in observed.children.get(resource, ())}
        for resource in (*CHILDREN, *queues.groups)
    }
    resource = observed.job
    record = objects[CONFIGMAPS].get(names.record_name(name_of(resource)))
    job = None if record is None else job_of_record(resource, record)
    if job is None and asked is not None:
        job = job_of_resource(resource, asked, queues.system_of(asked.queue))
    if job is None:
        return None
    written = resource.get("status") or {}
    return View(
        resource=resource,
        spec=spec,
        asked=asked,
        job=job,
        written=written,
        before=remembered(written),
        objects=objects,
        queues=queues,
        lacks_queue=queues.lacks(job.spec.queue, observed),
        now_s=observed.now_s,
        random_hex=observed.random_hex,
    )


def remembered(written: Manifest) -> Remembered:
    """What is remembered in a status; nothing where somebody else has written it."""
    try:
        return Remembered.model_validate(written)
    except ValidationError:
        return Remembered.model_validate({})


def written_phase(written: Manifest) -> JobPhase | None:
    """The phase in a status; None where it has none that is known."""
    try:
        return JobPhase(written.get("phase", ""))
    except ValueError:
        return None
