"""Asks the API server what it would say to a job, and tells it in the user's terms.

A refusal is told by the API server's own phrases, where they stand in its message: the names of
jobs, quotas and namespaces are quoted there, and may hold any of the same words.
"""

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

from elastic.errors import ElasticError, JobSpecError, PlatformError
from elastic.platforms.kubernetes.api.cluster import Cluster, RefusedError
from elastic.platforms.kubernetes.api.resources import (
    CONFIGMAPS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    SECRETS,
    SERVICES,
    Manifest,
)
from elastic.platforms.kubernetes.objects import manifests, tensorboard
from elastic.platforms.kubernetes.objects.hooks import check_fields
from elastic.platforms.kubernetes.objects.names import TENSORBOARD, TYPE_LABEL
from elastic.platforms.kubernetes.objects.podspec import Job
from elastic.spec.job import JobSpec
from elastic.spec.roles import FLEET, ROLES, Role
from elastic.spec.settings.cluster_forms import parse_volumes

KINDS: Final = {each.kind: each for each in (CONFIGMAPS, SECRETS, SERVICES, PODS)}
"""What a job is made of, by the kind of the object."""

_NO_DRY_RUN: Final = re.compile(r"admission webhook .* does not support dry run")

_NO_ACCOUNT: Final = re.compile(r"error looking up service account ")
_NO_PRIORITY: Final = re.compile(r"no PriorityClass with name \S+ was found")
_NO_ROOM: Final = re.compile(r"exceeded quota: (?P<quota>\S+), requested: (?P<requested>\S+),")
_UNSPECIFIED: Final = re.compile(r"failed quota: (?P<quota>\S+): must specify (?P<resources>.+)")
_LIMIT_RANGE: Final = re.compile(
    r"\[?((maximum|minimum) \S+ usage per (Container|Pod) is "
    r"|\S+ max limit to request ratio per (Container|Pod) is )"
)

_UNKNOWN_FIELD: Final = re.compile(r".* cannot be handled as a \w+: strict decoding error: (.*)")
_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")


def check_admission(cluster: Cluster, job: Job) -> None:
    """Find what would stop the job, without leaving anything behind.

    Raises:
        JobSpecError: A setting names what is not there.
        PlatformError: The namespace, its quota or the rights of this user do not allow the job.
    """
    submission = manifests.Submission(job.submission_uid, 0.0, job.image)
    for manifest in (
        manifests.master_pod(job),
        *(manifests.example_pod(job, role.name) for role in FLEET),
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
    path = KINDS[manifest["kind"]].path(job.namespace)
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
        cluster.create(SECRETS.path(job.namespace), empty, dry_run=True)
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
            cluster.get(PERSISTENT_VOLUME_CLAIMS.path(job.namespace, claim))
        except RefusedError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                raise JobSpecError(
                    f"--volume names the claim {claim!r}, and namespace {job.namespace!r} has no "
                    "persistent volume claim of that name: create it, or correct claim_name"
                ) from error
            # Who may not look is told by the scheduler, in the job's status.
            if error.code != HTTPStatus.FORBIDDEN:
                raise


def explained(error: RefusedError, server: str, job: Job, manifest: Manifest) -> ElasticError:
    """A refusal to create an object, in the user's terms."""
    namespace, spec, cause = job.namespace, job.spec, error.cause
    name = manifest["metadata"]["labels"].get(TYPE_LABEL, "")
    if error.code == HTTPStatus.NOT_FOUND and error.kind == "namespaces":
        return PlatformError(
            f"there is no namespace {namespace!r} in {server}: choose another --namespace, "
            f"or make it: elastic install -n {namespace} --create_namespace --apply"
        )
    if error.code == HTTPStatus.UNAUTHORIZED or error.is_denied:
        return error
    if manifest["kind"] != "Pod":
        return _of_another_kind(error, job, manifest)
    if _NO_ACCOUNT.match(cause):
        return PlatformError(
            f"namespace {namespace!r} has no service account {spec.service_account!r} for the "
            f"master: elastic install -n {namespace} --apply makes it and gives it its rights; "
            "--service_account names another"
        )
    if (unknown := _UNKNOWN_FIELD.match(error.detail)) and job.hook is not None:
        return JobSpecError(f"cluster_spec ({job.hook.key}): {unknown[1]} in the {name} pod")
    if name == TENSORBOARD:
        # No setting says what its pod asks for.
        return PlatformError(
            f"the cluster refuses the pod of the job's TensorBoard: {error.detail}: make room for "
            "it there, or leave out --tensorboard_log_dir"
        )
    role = ROLES[name]
    if _NO_PRIORITY.match(cause):
        return JobSpecError(
            f"--{role.priority}={getattr(spec, role.priority)}: {error.detail}: name another; "
            " elastic install --priority_classes --apply makes high and low"
        )
    return _of_a_quota(error, job, role) or _of_a_pod(error, role)


def _of_a_quota(error: RefusedError, job: Job, role: Role) -> ElasticError | None:
    if found := _NO_ROOM.match(error.cause):
        flags = _flags(job.spec, role, found["requested"])
        lower = f"lower {' and '.join(flags)}, free something" if flags else "end a job there"
        return PlatformError(
            f"the quota of namespace {job.namespace!r} has no room for a {role.name} pod: "
            f"{error.detail}: {lower}, or ask for more"
        )
    if found := _UNSPECIFIED.match(error.cause):
        flags = _flags(job.spec, role, found["resources"])
        name = f": name it in {' and '.join(flags)}" if flags else ""
        return PlatformError(
            f"the quota {found['quota']!r} of namespace {job.namespace!r} wants every pod to say "
            f"how much it needs of {found['resources']}, and the {role.name}'s does not{name}"
        )
    return None


def _of_a_pod(error: RefusedError, role: Role) -> ElasticError:
    message = f"the cluster refuses the {role.name} pod of the job: {error.detail}"
    if _LIMIT_RANGE.match(error.cause):
        flags = f"--{role.resource_request} or --{role.resource_limit}"
        message += f": change {flags} to what the LimitRange of the namespace allows"
    return PlatformError(message)


def _of_another_kind(error: RefusedError, job: Job, manifest: Manifest) -> ElasticError:
    what = f"the {manifest['kind']} {manifest['metadata']['name']!r} of the job"
    if found := _NO_ROOM.match(error.cause):
        return PlatformError(
            f"the quota {found['quota']!r} of namespace {job.namespace!r} has no room for {what}: "
            f"{error.cause}: delete what nobody needs there, or ask for more"
        )
    if error.code in (HTTPStatus.FORBIDDEN, HTTPStatus.UNPROCESSABLE_ENTITY):
        return PlatformError(f"the cluster refuses {what}: {error.detail}")
    return error


def _flags(spec: JobSpec, role: Role, resources: str) -> list[str]:
    """The settings behind the resources that a quota names; none for the number of pods."""
    request, limit = role.resource_request, role.resource_limit
    flags = []
    for name in re.split(r"[,;]\s*", resources):
        if name.startswith("limits."):
            # What has no limit of its own is limited to what it asks for.
            flags.append(limit if getattr(spec, limit) else request)
        elif name.startswith(("requests.", *_COMPUTE)):
            flags.append(request)
    return [f"--{flag}" for flag in dict.fromkeys(flags)]
