"""Puts a job into the cluster: anew, over one that has ended, or going on from it.

Before that it finds out who has the queue that the job is to wait in.
"""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Final, TypeAlias

from elastic.errors import ElasticError, JobExistsError, JobSpecError, PlatformError
from elastic.platforms.certificates import make_certificate
from elastic.platforms.images import ImageRequest
from elastic.platforms.kubernetes.api.cluster import Cluster, RefusedError, is_served
from elastic.platforms.kubernetes.api.resources import (
    CONFIGMAPS,
    PODS,
    SECRETS,
    SERVICES,
    Manifest,
    Resource,
)
from elastic.platforms.kubernetes.job.admission import KINDS, check_admission, explained
from elastic.platforms.kubernetes.job.ending import end_pods
from elastic.platforms.kubernetes.job.objects import JobObjects
from elastic.platforms.kubernetes.objects import manifests, names, tensorboard
from elastic.platforms.kubernetes.objects.hooks import read_hook
from elastic.platforms.kubernetes.objects.podspec import Job, job_group
from elastic.platforms.kubernetes.objects.queues import (
    KUEUE_QUEUES,
    QueueSystem,
    refusal,
    system_for,
    systems_served,
)
from elastic.policy.ended_jobs import resumed
from elastic.spec.job import JobSpec
from elastic.spec.settings.cluster_forms import STATE_MOUNT, state_volume
from elastic.spec.status import JobStatus

BuildImage: TypeAlias = Callable[[ImageRequest], str]
"""Makes sure that an image is where pods get it from, and returns its reference."""

ENDING_TIMEOUT_S: Final = 60.0
"""How long the pods of a job that has ended may take to leave before its name is used again."""

Undo: TypeAlias = list[Callable[[], object]]
"""What takes back the steps so far, first step first."""


def submit_job(objects: JobObjects, spec: JobSpec, build_image: BuildImage) -> None:
    """Check, build the image, and create what the job needs; the master's pod comes last.

    Raises:
        JobExistsError: A job of that name runs, or has ended and may not be touched.
        UserError: The job cannot run as it is.
        PlatformError: The cluster or the Docker engine does not take it. In all these cases
            nothing is left behind, and what was there is as it was.
    """
    earlier = objects.find_record()
    check_may_replace(objects, earlier, spec)
    hook = read_hook(spec.cluster_spec)
    pod_spec = manifests.spec_for_pods(spec, hook).model_copy(
        update={"namespace": objects.namespace}
    )
    first_image = spec.image or spec.image_base or "elastic"
    resumed_uid = find_kept_state(earlier, spec) if spec.resume else None
    job = Job(
        pod_spec,
        objects.namespace,
        secrets.token_hex(16),
        first_image,
        hook,
        resumed_uid,
        queue_system=find_queue(objects.cluster, objects.namespace, spec.queue),
    )
    # Before the image is built, which may take minutes.
    check_admission(objects.cluster, job)
    if not spec.image:
        job = replace(job, image=build_image(ImageRequest.of(spec)))
    with undoing(objects) as undo:
        _take_name(objects, job, earlier, undo)
        clear(objects, spec, job, earlier, undo)
        _create(objects, job, undo)


def _take_name(objects: JobObjects, job: Job, earlier: Manifest | None, undo: Undo) -> None:
    """Make the record ours, which only one of several who try at once can do."""
    record = manifests.record(
        job,
        manifests.Submission(
            job.submission_uid,
            objects.cluster.now_s(),
            job.image,
            queue_system=job.queue_system,
        ),
    )
    if earlier is None:
        # Before the request, whose answer may be lost.
        undo.append(partial(_give_name_back, objects, job))
        _create_one(objects, job, record)
        return
    path = CONFIGMAPS.path(objects.namespace, names.record_name(job.name))
    gone = dict.fromkeys(earlier["data"].keys() - record["data"].keys())
    change = {
        "metadata": {
            "labels": record["metadata"]["labels"],
            "resourceVersion": earlier["metadata"]["resourceVersion"],
        },
        "data": {**record["data"], **gone},
    }
    try:
        objects.cluster.patch(path, change)
    except RefusedError as error:
        if error.code != HTTPStatus.CONFLICT:
            raise
        # An earlier try may have got through, and only its answer was lost.
        if not _is_ours(objects, job):
            raise _in_other_hands(job) from error
    back = dict.fromkeys(record["data"].keys() - earlier["data"].keys())
    old = {
        "metadata": {"labels": earlier["metadata"]["labels"]},
        "data": {**earlier["data"], **back},
    }
    undo.append(partial(objects.cluster.patch, path, old))


def _is_ours(objects: JobObjects, job: Job) -> bool:
    record = objects.find_record()
    return record is not None and manifests.submission_of(record).uid == job.submission_uid


def _give_name_back(objects: JobObjects, job: Job) -> None:
    if _is_ours(objects, job):
        objects.delete(CONFIGMAPS, names.record_name(job.name))


def _create(objects: JobObjects, job: Job, undo: Undo) -> None:
    """Token, Service, group and master, to which the others belong: it is known only then."""
    belongings: dict[Resource, tuple[str, Manifest]] = {
        SECRETS: (names.token_name(job.name), _secret(job)),
        SERVICES: (names.master_name(job.name), manifests.service(job)),
    }
    if group := job_group(job):
        # Before the first pod that names it.
        belongings[group[0]] = (group[1]["metadata"]["name"], group[1])
    for resource, (name, manifest) in belongings.items():
        undo.append(partial(objects.delete, resource, name))
        _create_one(objects, job, manifest, resource)
    undo.append(partial(objects.delete, PODS, names.master_name(job.name), 0.0))
    pod = _create_one(objects, job, manifests.master_pod(job))
    owner = names.Owner.of(pod).reference()
    for resource, (name, _) in belongings.items():
        change = {"metadata": {"ownerReferences": [owner]}}
        objects.cluster.patch(resource.path(objects.namespace, name), change)
    for manifest in tensorboard.objects(job, names.Owner.of(pod)):
        name = manifest["metadata"]["name"]
        undo.append(partial(objects.delete, KINDS[manifest["kind"]], name, 0.0))
        _create_one(objects, job, manifest)


def _secret(job: Job) -> Manifest:
    certificate = make_certificate(secrets.token_hex(32)) if job.spec.tls else None
    return manifests.token_secret(job, secrets.token_hex(32), certificate=certificate)


def _create_one(
    objects: JobObjects, job: Job, manifest: Manifest, resource: Resource | None = None
) -> Manifest:
    path = (resource or KINDS[manifest["kind"]]).path(objects.namespace)
    try:
        return objects.cluster.create(path, manifest)
    except RefusedError as error:
        if error.is_taken:
            raise _in_other_hands(job) from error
        raise explained(error, objects.cluster.server, job, manifest) from error


def _in_other_hands(job: Job) -> ElasticError:
    return JobExistsError(
        f"job {job.name!r} is being submitted by somebody else at this moment: see "
        f"`elastic status {job.name} -n {job.namespace}`"
    )


def check_may_replace(objects: JobObjects, earlier: Manifest | None, spec: JobSpec) -> None:
    """Refuse a name that somebody needs.

    Raises:
        JobExistsError: A job of that name runs, or has ended and may not be touched.
        JobSpecError: There is nothing to resume from.
    """
    name = spec.job_name
    if earlier is None:
        if not spec.overwrite and objects.pods():
            raise JobExistsError(
                f"pods of an earlier job {name!r} are there, and its record is not: pass "
                "--overwrite to delete them, or choose another --job_name"
            )
        return
    _check_has_no_resource(objects, earlier)
    status = objects.status(earlier)
    if not status.phase.is_final:
        raise JobExistsError(
            f"job {name!r} is there and has not ended ({status.phase}): choose another "
            f"--job_name, or `elastic kill {name} -n {objects.namespace}` first"
        )
    if not spec.overwrite and not spec.resume:
        raise JobExistsError(
            f"job {name!r} has ended as {status.phase}: pass --resume to go on from its newest "
            "checkpoint, or --overwrite to remove it and start anew"
            if spec.kind.can_resume
            else f"job {name!r} has ended as {status.phase}: pass --overwrite to start anew"
        )
    if spec.resume and not spec.checkpoint_dir and find_kept_state(earlier, spec) is None:
        raise JobSpecError(
            "--resume finds nothing to go on from: what the earlier master kept went with its "
            f"pod, since it had no --volume at {STATE_MOUNT}, or not this one, and no "
            "--checkpoint_dir on a --volume is given: pass one, or --overwrite"
        )


def _check_has_no_resource(objects: JobObjects, earlier: Manifest) -> None:
    owner = manifests.submission_of(earlier).owner
    if owner is not None:
        raise JobExistsError(
            f"job {objects.job_name!r} is made from {owner.kind} {owner.name}, which keeps it as "
            f"it says: change that, or remove it with `elastic kill {objects.job_name} "
            f"-n {objects.namespace} --forget`, or choose another --job_name"
        )


def find_kept_state(earlier: Manifest | None, spec: JobSpec) -> str | None:
    """The submission whose cuts are on the volume that both jobs name for them, if they do.

    Raises:
        PlatformError: The earlier job's record is damaged.
    """
    volume = state_volume(spec.volume)
    if (
        earlier is None
        or volume is None
        or state_volume(manifests.spec_of(earlier).volume) != volume
    ):
        return None
    uid: str | None = earlier["data"].get(names.STATE_KEY)
    return uid


def clear(
    objects: JobObjects, spec: JobSpec, job: Job, earlier: Manifest | None, undo: Undo
) -> None:
    """Remove what is left of an earlier job, but for what a resumed one goes on from."""
    end_pods(objects, time.monotonic(), ENDING_TIMEOUT_S)
    objects.delete_belongings()
    status_map = objects.find(CONFIGMAPS, names.status_name(job.name))
    if status_map is None:
        return
    undo.append(partial(_restore_status, objects, status_map))
    published = _readable(status_map)
    if earlier is None or not spec.resume or published is None:
        objects.delete(CONFIGMAPS, names.status_name(job.name))
        return
    reached = resumed(published, manifests.submission_of(earlier).submitted_s, spec.kind)
    objects.write_status(reached, job.submission_uid)


def _readable(status_map: Manifest) -> JobStatus | None:
    try:
        return manifests.status_of(status_map)
    except manifests.StatusUnreadableError:
        # Counts and events are lost with it; checkpoints are kept elsewhere.
        return None


def _restore_status(objects: JobObjects, status_map: Manifest) -> None:
    metadata = {k: status_map["metadata"][k] for k in ("name", "namespace", "labels")}
    objects.delete(CONFIGMAPS, metadata["name"])
    objects.cluster.create(
        CONFIGMAPS.path(objects.namespace),
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": status_map["data"],
        },
    )


@contextmanager
def undoing(objects: JobObjects) -> Iterator[Undo]:
    """Undo what was done so far where something fails, Ctrl-C included."""
    undo: Undo = []
    try:
        yield undo
    except BaseException as error:
        try:
            # The name is given back last: as long as something is there, `kill` must find it.
            for step in reversed(undo):
                step()
        except PlatformError as second:
            raise PlatformError(
                f"{error}; and what was created so far could not be removed ({second}): "
                f"elastic kill {objects.job_name} -n {objects.namespace} --forget"
            ) from error
        raise


def find_queue(cluster: Cluster, namespace: str, queue: str) -> QueueSystem | None:
    """The system of a queue; None where no queue is asked for.

    Raises:
        JobSpecError: The cluster has no such queue, as far as this user may know.
        AwayError: The API server does not answer.
    """
    if not queue:
        return None
    systems = systems_served(partial(is_served, cluster))
    if problem := refusal(systems, queue):
        raise JobSpecError(f"--queue={queue} {problem}")
    system = system_for(systems, queue)
    if system is QueueSystem.KUEUE:
        _check_local_queue(cluster, namespace, queue)
    return system


def _check_local_queue(cluster: Cluster, namespace: str, queue: str) -> None:
    """Kueue would hold the pods for ever, and say nothing that a user looks at."""
    served = next(each for each in KUEUE_QUEUES if is_served(cluster, each))
    try:
        cluster.get(served.path(namespace, queue))
    except RefusedError as error:
        if error.code == HTTPStatus.NOT_FOUND:
            raise JobSpecError(
                f"--queue={queue} is not known here: namespace {namespace!r} has no LocalQueue of "
                "that name: correct it, or ask who looks after the queues (kubectl get localqueues)"
            ) from error
        # Who may not look is told by the job's status what it waits for.
        if error.code != HTTPStatus.FORBIDDEN:
            raise
