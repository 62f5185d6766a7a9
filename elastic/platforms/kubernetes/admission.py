"""Asks the API server what it would say to a job, before anything of it is there."""

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

from elastic.errors import JobSpecError
from elastic.platforms.kubernetes import manifests, tensorboard
from elastic.platforms.kubernetes.connection import Cluster, RefusedError
from elastic.platforms.kubernetes.fields import check_fields
from elastic.platforms.kubernetes.names import Manifest, collection_path, object_path
from elastic.platforms.kubernetes.podspec import Job
from elastic.platforms.kubernetes.record import Submission
from elastic.platforms.kubernetes.refusals import explained
from elastic.spec.settings.cluster_forms import parse_volumes

KINDS: Final = {
    "ConfigMap": "configmaps",
    "Secret": "secrets",
    "Service": "services",
    "Pod": "pods",
}
"""By the kind of an object, the name of its collection."""

_NO_DRY_RUN: Final = re.compile(r"admission webhook .* does not support dry run")


def check_admission(cluster: Cluster, job: Job) -> None:
    """Find what would stop the job, without leaving anything behind.

    Raises:
        JobSpecError: A setting names what is not there.
        PlatformError: The namespace, its quota or the rights of this user do not allow the job.
    """
    submission = Submission(job.submission_uid, 0.0, job.image)
    for manifest in (
        manifests.master_pod(job),
        manifests.example_worker_pod(job),
        manifests.record(job, submission),
        manifests.token_secret(job, "none"),
        manifests.service(job),
        *tensorboard.objects(job, None),
    ):
        _try(cluster, job, manifest)
    for name in job.spec.env_secret:
        _check_secret(cluster, job, name)
    _check_claims(cluster, job, {v.claim_name for v in parse_volumes(job.spec.volume)} - {None})


def _try(cluster: Cluster, job: Job, manifest: Manifest) -> None:
    path = collection_path(KINDS[manifest["kind"]], job.namespace)
    try:
        taken = cluster.create(path, manifest, dry_run=True)
    except RefusedError as error:
        # One of that name is there, of the job that this one replaces: it was admitted before.
        if error.is_taken:
            return
        # A webhook that cannot take part in a dry run will be asked when it counts.
        if _NO_DRY_RUN.search(error.detail):
            return
        raise explained(error, cluster.server, job, manifest) from error
    if job.hook is not None and manifest["kind"] == "Pod":
        check_fields(job.hook.key, manifest, taken)


def _check_secret(cluster: Cluster, job: Job, name: str) -> None:
    """Find out whether there is a Secret by trying its name: to read one is a right of few."""
    metadata = {"name": name, "namespace": job.namespace, "labels": {}}
    empty = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
    try:
        cluster.create(collection_path("secrets", job.namespace), empty, dry_run=True)
    except RefusedError as error:
        # Where another cause than its name speaks against it, the job's status tells what is wrong.
        if error.is_taken or error.code in (HTTPStatus.FORBIDDEN, HTTPStatus.BAD_REQUEST):
            return
        raise
    raise JobSpecError(
        f"--env_secret names {name!r}, and namespace {job.namespace!r} has no Secret of that name: "
        f"correct it, or make it: kubectl create secret generic {name} -n {job.namespace} "
        "--from-literal=NAME=VALUE"
    )


def _check_claims(cluster: Cluster, job: Job, claims: Iterable[str | None]) -> None:
    for claim in sorted(filter(None, claims)):
        try:
            cluster.get(object_path("persistentvolumeclaims", job.namespace, claim))
        except RefusedError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                raise JobSpecError(
                    f"--volume names the claim {claim!r}, and namespace {job.namespace!r} has no "
                    "persistent volume claim of that name: create it, or correct claim_name"
                ) from error
            # Who may not look is told by the scheduler, in the job's status.
            if error.code != HTTPStatus.FORBIDDEN:
                raise
