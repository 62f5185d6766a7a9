"""Asks the API server what it would say to a job, before anything of it is there."""

from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

from elastic.errors import ElasticError, JobSpecError, PlatformError
from elastic.platforms.kubernetes import manifests
from elastic.platforms.kubernetes.connection import Cluster, RefusedError
from elastic.platforms.kubernetes.names import (
    TYPE_LABEL,
    Manifest,
    collection_path,
    object_path,
)
from elastic.platforms.kubernetes.podspec import Job
from elastic.platforms.kubernetes.record import Submission
from elastic.spec.cluster_forms import parse_volumes

KINDS: Final = {
    "ConfigMap": "configmaps",
    "Secret": "secrets",
    "Service": "services",
    "Pod": "pods",
}
"""By the kind of an object, the name of its collection."""


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
    ):
        _try(cluster, job, manifest)
    _check_claims(cluster, job, {v.claim_name for v in parse_volumes(job.spec.volume)} - {None})


def _try(cluster: Cluster, job: Job, manifest: Manifest) -> None:
    path = collection_path(KINDS[manifest["kind"]], job.namespace)
    try:
        cluster.create(path, manifest, dry_run=True)
    except RefusedError as error:
        # One of that name is there, of the job that this one replaces: it was admitted before.
        if error.code == HTTPStatus.CONFLICT:
            return
        # A webhook that cannot take part in a dry run will be asked when it counts.
        if "does not support dry run" in error.detail:
            return
        raise explained(error, cluster, job, manifest) from error


def explained(error: RefusedError, cluster: Cluster, job: Job, manifest: Manifest) -> ElasticError:
    """A refusal to create an object, in the user's terms."""
    detail, namespace, spec = error.detail, job.namespace, job.spec
    role = manifest["metadata"]["labels"].get(TYPE_LABEL, "")
    if error.code == HTTPStatus.NOT_FOUND and "namespaces" in detail:
        return PlatformError(
            f"there is no namespace {namespace!r} in {cluster.server}: choose another --namespace, "
            f"or make it: elastic install -n {namespace} --create_namespace --apply"
        )
    if "error looking up service account" in detail:
        return PlatformError(
            f"namespace {namespace!r} has no service account {spec.service_account!r} for the "
            f"master: elastic install -n {namespace} --apply makes it and gives it its rights; "
            "--service_account names another"
        )
    if "quota" in detail:
        return PlatformError(
            f"the quota of namespace {namespace!r} has no room for a {role} pod: {detail}: lower "
            f"--{role}_resource_request, free something, or ask for more"
        )
    if "PriorityClass" in detail:
        return JobSpecError(
            f"--{role}_pod_priority={getattr(spec, f'{role}_pod_priority')}: {detail}: name "
            "another; elastic install --priority_classes --apply makes high and low"
        )
    if manifest["kind"] == "Pod" and "cannot create resource" not in detail:
        return PlatformError(f"the cluster refuses the {role} pod of the job: {detail}")
    return error


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
