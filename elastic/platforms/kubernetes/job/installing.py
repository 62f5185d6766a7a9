"""What a namespace needs before jobs can run in it: brought there, or looked at.

It is the master's account and its few rights: plain values, as the API takes them. `elastic
install` prints or applies them, one object at a time, and `manifests/` holds the same text for
those who keep their clusters in files.
"""

import ipaddress
import urllib.error
import urllib.request
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from elastic.errors import PlatformError
from elastic.platforms.images.build import DockerEngine
from elastic.platforms.images.context import DOCKER_HUB, ImageRequest, registry_host
from elastic.platforms.kubernetes.api.cluster import Cluster, RefusedError
from elastic.platforms.kubernetes.api.resources import (
    ACCESS_REVIEWS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    LEASES,
    NAMESPACES,
    PRIORITY_CLASSES,
    ROLE_BINDINGS,
    ROLES,
    SELF_ACCESS_REVIEWS,
    SERVICE_ACCOUNTS,
    Manifest,
    Resource,
)
from elastic.platforms.kubernetes.objects.names import (
    APP,
    APP_LABEL,
    GROUPS,
    TRAIN_JOBS,
    QueueSystem,
)
from elastic.platforms.registry import Check, Outcome

SUBMITTER: Final = "elastic-submitter"
_RBAC: Final = "rbac.authorization.k8s.io"

MASTER_RIGHTS: Final = {
    # Workers are pods; nothing else is started, and nobody's pod is entered or read from.
    "pods": ("get", "list", "watch", "create", "delete"),
    # The job's record is read, its status written.
    "configmaps": ("get", "list", "watch", "create", "patch"),
    # What happens to the job is told on the master's pod.
    "events": ("create",),
    # Of two masters of a job that a resource has made again, one at a time may act.
    f"leases.{LEASES.group}": ("get", "create", "patch"),
}
"""Resource → verbs, in the namespace of the job, that a master needs. There are no others."""

SUBMITTER_RIGHTS: Final = {
    "pods": ("get", "list", "create", "delete"),
    "pods/log": ("get",),
    # Curves are looked at through the API server.
    "pods/portforward": ("create",),
    "configmaps": ("get", "list", "create", "patch", "delete"),
    "secrets": ("create", "patch", "delete"),
    "services": ("create", "patch", "delete"),
    "serviceaccounts": ("get",),
    "persistentvolumeclaims": ("get",),
    "events": ("list",),
}
"""Resource → verbs that all commands on jobs together need of their user."""

CONTROLLED: Final = (
    "trainingjobs.paddlepaddle.org",
    "elasticjobs.elastic.pytorch.org",
    "tfjobs.kubeflow.org",
    f"{TRAIN_JOBS.plural}.{TRAIN_JOBS.group}",
)
"""Types of jobs that a controller looks after, where there is one."""

OBJECT_VERBS: Final = ("get", "list", "create", "patch", "delete")
"""What users do with objects of these types: with commands on `KIND/NAME`, and with kubectl."""

_KUEUE: Final = "kueue.x-k8s.io"

MASTER_QUEUE_RIGHTS: Final[Mapping[QueueSystem, Mapping[tuple[str, str], Sequence[str]]]] = {
    # Kueue holds what has ended of a group until its Workload is gone.
    QueueSystem.KUEUE: {(_KUEUE, "workloads"): ("delete",)},
}
"""(Group, resource) → verbs that a master needs besides where its jobs wait in these queues."""

SUBMITTER_QUEUE_RIGHTS: Final[Mapping[QueueSystem, Mapping[tuple[str, str], Sequence[str]]]] = {
    QueueSystem.KUEUE: {(_KUEUE, "workloads"): ("delete",), (_KUEUE, "localqueues"): ("get",)},
    **{
        system: {(group.group, group.plural): ("create", "patch", "delete")}
        for system, group in GROUPS.items()
    },
}
"""The same of users, who make the group of a job."""

PRIORITIES: Final = {"high": 1000, "low": 0}
"""The priority classes that a `--worker_pod_priority` between 0 and 1 means."""

_RESOURCES: Final = {
    each.kind: each
    for each in (
        NAMESPACES,
        SERVICE_ACCOUNTS,
        ROLES,
        ROLE_BINDINGS,
        CLUSTER_ROLES,
        CLUSTER_ROLE_BINDINGS,
        PRIORITY_CLASSES,
        CUSTOM_RESOURCE_DEFINITIONS,
        DEPLOYMENTS,
    )
}

_MAX_TRIES: Final = 5


def namespace(name: str) -> Manifest:
    """A namespace for jobs."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def master_access(
    namespace: str, service_account: str, queues: Collection[QueueSystem] = ()
) -> list[Manifest]:
    """The account of masters, its role and the binding of the two.

    Args:
        namespace: Where they are.
        service_account: Its name.
        queues: Those that jobs are to wait in.
    """
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": _metadata(service_account, namespace),
        },
        _role(service_account, namespace, MASTER_RIGHTS, MASTER_QUEUE_RIGHTS, queues),
        _binding(
            service_account,
            namespace,
            [{"kind": "ServiceAccount", "name": service_account, "namespace": namespace}],
        ),
    ]


def submitter_access(
    namespace: str, users: Sequence[str], queues: Collection[QueueSystem] = ()
) -> list[Manifest]:
    """A role for people who run jobs, and its binding; see `master_access`."""
    subjects = [{"apiGroup": _RBAC, "kind": "User", "name": user} for user in users]
    return [
        _role(
            SUBMITTER,
            namespace,
            {**SUBMITTER_RIGHTS, **dict.fromkeys(CONTROLLED, OBJECT_VERBS)},
            SUBMITTER_QUEUE_RIGHTS,
            queues,
        ),
        _binding(SUBMITTER, namespace, subjects),
    ]


def priority_classes() -> list[Manifest]:
    """The classes behind a fraction of high-priority workers; they belong to the whole cluster."""
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name, "labels": {APP_LABEL: APP}},
            "value": value,
            "globalDefault": False,
            "description": f"Workers of elastic jobs with {name} priority",
        }
        for name, value in PRIORITIES.items()
    ]


def split_right(resource: str) -> tuple[str, str]:
    """A resource of a table of rights, and its group, which follows the first dot."""
    name, _, group = resource.partition(".")
    return name, group


def _role(
    name: str,
    namespace: str,
    rights: Mapping[str, Sequence[str]],
    queue_rights: Mapping[QueueSystem, Mapping[tuple[str, str], Sequence[str]]],
    queues: Collection[QueueSystem],
) -> Manifest:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "Role",
        "metadata": _metadata(name, namespace),
        "rules": [
            {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
            for (resource, group), verbs in zip(
                map(split_right, rights), rights.values(), strict=True
            )
        ]
        + [
            {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
            for system in QueueSystem
            if system in queues
            for (group, resource), verbs in queue_rights.get(system, {}).items()
        ],
    }


def _binding(name: str, namespace: str, subjects: Sequence[Manifest]) -> Manifest:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": _metadata(name, namespace),
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": name},
        "subjects": list(subjects),
    }


def _metadata(name: str, namespace: str) -> Manifest:
    return {"name": name, "namespace": namespace, "labels": {APP_LABEL: APP}}


def apply(cluster: Cluster, manifests: Iterable[Manifest]) -> Iterator[str]:
    """Create what is missing and change what differs; says what was done with each.

    Whoever has a right already keeps it: subjects of bindings and rules of roles are only added.

    Raises:
        PlatformError: The namespace is not there.
        RefusedError: The API server does not let this user do so.
        AwayError: It does not answer.
    """
    for manifest in manifests:
        yield f"{manifest['kind']} {manifest['metadata']['name']}: {_apply(cluster, manifest)}"


def _apply(cluster: Cluster, manifest: Manifest) -> str:
    num_tries = 0
    while True:
        num_tries += 1
        try:
            return _apply_once(cluster, manifest)
        except RefusedError as error:
            if _lacks_namespace(error):
                raise _no_namespace(cluster, manifest) from error
            # Somebody else has changed it since it was read: another install, or a controller.
            if error.code != HTTPStatus.CONFLICT or num_tries == _MAX_TRIES:
                raise


def apply_as_owner(cluster: Cluster, manifests: Iterable[Manifest], owner: str) -> Iterator[str]:
    """Have objects be just what is wanted; says what was done with each.

    Unlike with `apply`, what was wanted by an earlier version and is no more is removed: rules of
    roles, too. Fields that only others have set stay.

    Args:
        owner: See `Cluster.apply`; fields of the same name are taken over from others.

    Raises:
        PlatformError: The namespace is not there.
        RefusedError: The API server does not let this user do so.
        AwayError: It does not answer.
    """
    for manifest in manifests:
        metadata = manifest["metadata"]
        path = _RESOURCES[manifest["kind"]].path(metadata.get("namespace"), metadata["name"])
        before = find(cluster, path)
        try:
            after = cluster.apply(path, manifest, owner, force=True)
        except RefusedError as error:
            if _lacks_namespace(error):
                raise _no_namespace(cluster, manifest) from error
            raise
        yield f"{manifest['kind']} {metadata['name']}: {_outcome(before, after)}"


def find(cluster: Cluster, path: str) -> Manifest | None:
    """An object, or None where there is none.

    Raises:
        RefusedError: The API server does not let this user do so.
        AwayError: It does not answer.
    """
    try:
        return cluster.get(path)
    except RefusedError as error:
        if error.code == HTTPStatus.NOT_FOUND:
            return None
        raise


def _outcome(before: Manifest | None, after: Manifest) -> str:
    if before is None:
        return "created"
    is_same = _version(before) == _version(after)
    return "unchanged" if is_same else "changed"


def _version(there: Manifest) -> tuple[Any, ...]:
    """Changes with what is wanted; where the server counts that, not with the status."""
    metadata = there["metadata"]
    number = metadata.get("generation") or metadata.get("resourceVersion")
    return number, metadata.get("labels"), metadata.get("annotations")


def _lacks_namespace(error: RefusedError) -> bool:
    return error.code == HTTPStatus.NOT_FOUND and error.kind == "namespaces"


def _no_namespace(cluster: Cluster, manifest: Manifest) -> PlatformError:
    namespace = manifest["metadata"]["namespace"]
    return PlatformError(
        f"there is no namespace {namespace!r} in {cluster.server}: choose another "
        "--namespace, or add --create_namespace"
    )


def _apply_once(cluster: Cluster, manifest: Manifest) -> str:
    metadata = manifest["metadata"]
    collection = _RESOURCES[manifest["kind"]].path(metadata.get("namespace"))
    path = f"{collection}/{metadata['name']}"
    is_new = False
    try:
        there = cluster.get(path)
    except RefusedError as error:
        if error.code != HTTPStatus.NOT_FOUND:
            raise
        # What another install has made in the meantime is given for ours, and may lack a subject.
        there, is_new = cluster.create(collection, manifest), True
    if there.get("roleRef") != manifest.get("roleRef"):
        # The API lets nobody point a binding at another role, whose subjects it was not made for.
        cluster.delete(path)
        cluster.create(collection, manifest)
        return "changed"
    wanted, added = _with_subjects_of(there, _with_rules_of(there, manifest))
    if _holds(there, wanted):
        return "created" if is_new else "unchanged"
    version = {"resourceVersion": there["metadata"].get("resourceVersion")}
    cluster.patch(path, {**wanted, "metadata": {**metadata, **version}})
    return f"changed: added {', '.join(added)}" if added else "changed"


def _with_rules_of(there: Manifest, wanted: Manifest) -> Manifest:
    """What is wanted, with the rules that a role has already: some clusters need more than ours."""
    if "rules" not in wanted:
        return wanted
    rules = there.get("rules") or []
    return {**wanted, "rules": [*rules, *(rule for rule in wanted["rules"] if rule not in rules)]}


def _with_subjects_of(there: Manifest, wanted: Manifest) -> tuple[Manifest, list[str]]:
    """What is wanted, with the subjects that a binding has already; and those it has not, by name.

    The API replaces lists whole, so a binding of one submitter would end the rights of all others.
    """
    if "subjects" not in wanted:
        return wanted, []
    subjects = list(there.get("subjects") or [])
    known = {_identity(subject) for subject in subjects}
    added = []
    for subject in wanted["subjects"]:
        if _identity(subject) not in known:
            known.add(_identity(subject))
            subjects.append(subject)
            added.append(f"{subject['kind']} {subject['name']}")
    return {**wanted, "subjects": subjects}, added


def _identity(subject: Manifest) -> tuple[Any, ...]:
    return subject.get("kind"), subject.get("name"), subject.get("namespace")


def _holds(there: object, wanted: object) -> bool:
    """Whether an object has all that is wanted; what others have added does not matter."""
    if isinstance(wanted, dict) and isinstance(there, dict):
        return all(_holds(there.get(key), value) for key, value in wanted.items())
    return there == wanted or (not there and not wanted)


# What `elastic doctor` looks at of a cluster, Docker engine and registry. Nothing is changed.


OLDEST_KUBERNETES: Final = (1, 20)
OTHER_CLUSTER: Final = (
    "choose a cluster with --kubeconfig or --context, or this machine with --platform local"
)
"""What to do where a cluster cannot be used at all."""


def check_cluster(cluster: Cluster, namespace: str, service_account: str) -> Iterator[Check]:
    """The API server, the namespace, this user's rights, and the master's account and rights.

    Each check is told as soon as it is done; one that makes the rest pointless is the last.
    """
    try:
        yield _check_version(cluster)
        found = _check_namespace(cluster, namespace)
        yield found
        if found.outcome is Outcome.FAILURE:
            return
        yield _check_own_rights(cluster, namespace)
        found = _check_account(cluster, namespace, service_account)
        yield found
        if found.outcome is not Outcome.FAILURE:
            yield _check_master_rights(cluster, namespace, service_account)
    except PlatformError as error:
        yield Check("cluster", Outcome.FAILURE, str(error), OTHER_CLUSTER)


def _check_version(cluster: Cluster) -> Check:
    version = cluster.get("/version")
    text = f"Kubernetes {version['gitVersion']} at {cluster.server}"
    numbers = tuple(int("".join(filter(str.isdigit, version[k]))) for k in ("major", "minor"))
    if numbers < OLDEST_KUBERNETES:
        fix = f"use a cluster of at least {'.'.join(map(str, OLDEST_KUBERNETES))}"
        return Check("cluster", Outcome.WARNING, f"{text} is older than any tested", fix)
    return Check("cluster", Outcome.OK, text)


def _check_namespace(cluster: Cluster, namespace: str) -> Check:
    try:
        cluster.get(NAMESPACES.path(name=namespace))
    except RefusedError as error:
        if error.code == HTTPStatus.NOT_FOUND:
            fix = (
                "choose another with --namespace, or make it: "
                f"elastic install -n {namespace} --create_namespace --apply"
            )
            return Check("namespace", Outcome.FAILURE, f"there is no namespace {namespace}", fix)
        if error.code != HTTPStatus.FORBIDDEN:
            raise
        text = f"{namespace} (you may not look at it, which jobs do not need)"
        return Check("namespace", Outcome.OK, text)
    return Check("namespace", Outcome.OK, namespace)


def _check_own_rights(cluster: Cluster, namespace: str) -> Check:
    missing = [
        f"{verb} {resource}"
        for resource, verb, attributes in _attributes(SUBMITTER_RIGHTS, namespace)
        if not _is_allowed(cluster, SELF_ACCESS_REVIEWS, {"resourceAttributes": attributes})
    ]
    if not missing:
        return Check("your rights", Outcome.OK, f"enough to run jobs in {namespace}")
    return Check(
        "your rights",
        Outcome.FAILURE,
        f"in namespace {namespace} you may not {', '.join(missing)}",
        f"have an administrator run: elastic install -n {namespace} --submitter YOU --apply "
        f"(the role {SUBMITTER})",
    )


def _check_account(cluster: Cluster, namespace: str, service_account: str) -> Check:
    subject, install = "master account", f"elastic install -n {namespace} --apply"
    try:
        cluster.get(SERVICE_ACCOUNTS.path(namespace, service_account))
    except RefusedError as error:
        if error.code == HTTPStatus.NOT_FOUND:
            text = f"namespace {namespace} has no service account {service_account}"
            return Check(subject, Outcome.FAILURE, text, install)
        if error.code != HTTPStatus.FORBIDDEN:
            raise
        text = f"you may not look for the service account {service_account}"
        return Check(subject, Outcome.WARNING, text, f"if jobs miss it: {install}")
    return Check(subject, Outcome.OK, f"service account {service_account}")


def _check_master_rights(cluster: Cluster, namespace: str, service_account: str) -> Check:
    subject, install = "master rights", f"elastic install -n {namespace} --apply"
    who = {
        "user": f"system:serviceaccount:{namespace}:{service_account}",
        "groups": [
            "system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated",
        ],
    }  # fmt: skip
    missing = []
    try:
        for resource, verb, attributes in _attributes(MASTER_RIGHTS, namespace):
            spec = {**who, "resourceAttributes": attributes}
            if not _is_allowed(cluster, ACCESS_REVIEWS, spec):
                missing.append(f"{verb} {resource}")
    except RefusedError as error:
        if error.code != HTTPStatus.FORBIDDEN:
            raise
        text = f"you may not ask what {service_account} may do"
        return Check(subject, Outcome.SKIPPED, text, f"if masters lack rights: {install}")
    if missing:
        text = f"service account {service_account} may not {', '.join(missing)}"
        return Check(subject, Outcome.FAILURE, text, install)
    return Check(subject, Outcome.OK, f"{service_account} may do what masters do")


def _attributes(
    rights: Mapping[str, Sequence[str]], namespace: str
) -> Iterator[tuple[str, str, Manifest]]:
    for resource, verbs in rights.items():
        whole_name, group = split_right(resource)
        name, _, subresource = whole_name.partition("/")
        for verb in verbs:
            yield resource, verb, {
                "namespace": namespace, "verb": verb, "group": group, "resource": name,
                "subresource": subresource,
            }  # fmt: skip


def _is_allowed(cluster: Cluster, review: Resource, spec: Manifest) -> bool:
    head = {"apiVersion": review.api_version, "kind": review.kind, "metadata": {}}
    answer = cluster.create(review.path(), {**head, "spec": spec})
    return bool(answer["status"]["allowed"])


REGISTRY_TIMEOUT_S: Final = 5.0
_DOCKER_HUB_API: Final = "registry-1.docker.io"
"""Where Docker Hub answers as a registry; at its own name is a web site."""


def check_engine(docker_base_url: str) -> Check:
    """Whether images can be built here; a job with a ready image needs no engine."""
    request = ImageRequest(Path(), docker_base_url=docker_base_url)
    try:
        with closing(DockerEngine.connect(request)):
            return Check("Docker engine", Outcome.OK, "images can be built")
    except PlatformError as error:
        what, _, fix = str(error).partition("\n")
        return Check("Docker engine", Outcome.WARNING, what, fix)


def check_registry(repository: str) -> Check:
    """Whether the registry of a repository answers, and whether it wants a login."""
    host = registry_host(repository)
    address = _DOCKER_HUB_API if host == DOCKER_HUB else host
    url = f"{'http' if _is_loopback(host) else 'https'}://{address}/v2/"
    try:
        with urllib.request.urlopen(url, timeout=REGISTRY_TIMEOUT_S):  # noqa: S310 - a scheme of ours
            return Check("registry", Outcome.OK, f"{host} answers")
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.UNAUTHORIZED:
            text = f"{host} answers and wants to know who you are"
            login = f"unless you have done so: docker login {host}"
            return Check("registry", Outcome.OK, text, login)
        text = f"{host} answers with {error.code} {error.reason}, so it may be no registry"
    except (OSError, ValueError) as error:
        text = f"{host} does not answer: {getattr(error, 'reason', error)}"
    fix = "correct --docker_image_repository (HOST/PATH), or start the registry"
    return Check("registry", Outcome.FAILURE, text, fix)


def _is_loopback(host: str) -> bool:
    """Whether Docker talks to it without TLS, as to every registry of the same machine."""
    name = host.rpartition(":")[0] or host
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
