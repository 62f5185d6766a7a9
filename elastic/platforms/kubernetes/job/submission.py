"""Puts a job into the cluster: anew, over one that has ended, or going on from it.

Before that it finds out who has the queue that the job is to wait in, asks the API server what it
would say to the job, and tells it in the user's terms. A refusal is told by the API server's own
phrases, where they stand in its message: the names of jobs, quotas and namespaces are quoted there,
and may hold any of the same words.
"""

import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
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
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    SECRETS,
    SERVICES,
    Manifest,
    Resource,
)
from elastic.platforms.kubernetes.job.objects import JobObjects, end_pods
from elastic.platforms.kubernetes.objects import manifests, names
from elastic.platforms.kubernetes.objects.names import (
    KUEUE_QUEUES,
    TENSORBOARD,
    TYPE_LABEL,
    QueueSystem,
    queue_refusal,
    system_for,
    systems_served,
)
from elastic.platforms.kubernetes.objects.podspec import Job, check_fields, job_group, read_hook
from elastic.policy.accounts import resumed
from elastic.spec.job import JobSpec
from elastic.spec.roles import FLEET, ROLES, Role
from elastic.spec.settings.cluster import STATE_MOUNT, parse_volumes, state_volume
from elastic.spec.status import JobStatus

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
        *manifests.board_objects(job, None),
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
    for manifest in manifests.board_objects(job, names.Owner.of(pod)):
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
    if problem := queue_refusal(systems, queue):
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
