"""What an ElasticTrainJob is made of: the objects of the command line, by the same functions.

They differ in whom they belong to alone: all of them to the resource, and none to a master's pod.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from elastic.controller.kinds.pods import name_of, uid_of
from elastic.controller.reconciling import Create, Note, Patch
from elastic.controller.resources.common import seconds_of
from elastic.controller.resources.elastic_train_job import RESOURCE
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
from elastic.platforms.kubernetes.objects import manifests, tensorboard
from elastic.platforms.kubernetes.objects.manifests import Submission, spec_of, submission_of
from elastic.platforms.kubernetes.objects.names import ResourceOwner
from elastic.platforms.kubernetes.objects.podspec import Job, gang_of, job_group
from elastic.platforms.kubernetes.objects.queues import QueueSystem, group_change
from elastic.spec.job import JobSpec

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
    for manifest in tensorboard.objects(job, None):
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
