"""Puts a job into the cluster: anew, over one that has ended, or going on from it."""

import secrets
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import TypeAlias

from elastic.errors import ElasticError, JobExistsError
from elastic.platforms.images import ImageRequest
from elastic.platforms.kubernetes import manifests, tensorboard
from elastic.platforms.kubernetes.admission import KINDS, check_admission
from elastic.platforms.kubernetes.api.cluster import RefusedError
from elastic.platforms.kubernetes.api.resources import CONFIGMAPS, PODS, SECRETS, SERVICES, Manifest
from elastic.platforms.kubernetes.hooks import read_hook
from elastic.platforms.kubernetes.job_objects import JobObjects
from elastic.platforms.kubernetes.manifests import Owner
from elastic.platforms.kubernetes.names import (
    master_name,
    record_name,
    token_name,
)
from elastic.platforms.kubernetes.podspec import Job
from elastic.platforms.kubernetes.record import Submission, submission_of
from elastic.platforms.kubernetes.refusals import explained
from elastic.platforms.kubernetes.succession import check_may_replace, clear, find_kept_state
from elastic.platforms.kubernetes.undoing import Undo, undoing
from elastic.spec.job import JobSpec

BuildImage: TypeAlias = Callable[[ImageRequest], str]
"""Makes sure that an image is where pods get it from, and returns its reference."""


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
    job = Job(pod_spec, objects.namespace, secrets.token_hex(16), first_image, hook, resumed_uid)
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
        job, Submission(job.submission_uid, objects.cluster.now_s(), job.image)
    )
    if earlier is None:
        # Before the request, whose answer may be lost.
        undo.append(partial(_give_name_back, objects, job))
        _create_one(objects, job, record)
        return
    path = CONFIGMAPS.path(objects.namespace, record_name(job.name))
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
    return record is not None and submission_of(record).uid == job.submission_uid


def _give_name_back(objects: JobObjects, job: Job) -> None:
    if _is_ours(objects, job):
        objects.delete(CONFIGMAPS, record_name(job.name))


def _create(objects: JobObjects, job: Job, undo: Undo) -> None:
    """Token, Service and master; the first two belong to the third, which is known only then."""
    belongings = {
        SECRETS: (token_name(job.name), manifests.token_secret(job, secrets.token_hex(32))),
        SERVICES: (master_name(job.name), manifests.service(job)),
    }
    for resource, (name, manifest) in belongings.items():
        undo.append(partial(objects.delete, resource, name))
        _create_one(objects, job, manifest)
    undo.append(partial(objects.delete, PODS, master_name(job.name), 0.0))
    pod = _create_one(objects, job, manifests.master_pod(job))
    owner = Owner.of(pod).reference()
    for resource, (name, _) in belongings.items():
        change = {"metadata": {"ownerReferences": [owner]}}
        objects.cluster.patch(resource.path(objects.namespace, name), change)
    for manifest in tensorboard.objects(job, Owner.of(pod)):
        name = manifest["metadata"]["name"]
        undo.append(partial(objects.delete, KINDS[manifest["kind"]], name, 0.0))
        _create_one(objects, job, manifest)


def _create_one(objects: JobObjects, job: Job, manifest: Manifest) -> Manifest:
    path = KINDS[manifest["kind"]].path(objects.namespace)
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
