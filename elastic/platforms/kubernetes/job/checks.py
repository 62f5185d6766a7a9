"""What `elastic doctor` looks at of a cluster, Docker engine and registry. Nothing is changed."""

import ipaddress
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from http import HTTPStatus
from pathlib import Path
from typing import Final

from elastic.errors import PlatformError
from elastic.platforms.images.engine import DockerEngine
from elastic.platforms.images.request import DOCKER_HUB, ImageRequest, registry_host
from elastic.platforms.kubernetes.api.cluster import Cluster, RefusedError
from elastic.platforms.kubernetes.api.resources import (
    ACCESS_REVIEWS,
    NAMESPACES,
    SELF_ACCESS_REVIEWS,
    SERVICE_ACCOUNTS,
    Manifest,
    Resource,
)
from elastic.platforms.kubernetes.job.installing import (
    MASTER_RIGHTS,
    SUBMITTER,
    SUBMITTER_RIGHTS,
    split_right,
)
from elastic.platforms.registry import Check, Outcome

OLDEST: Final = (1, 20)
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
    if numbers < OLDEST:
        fix = f"use a cluster of at least {'.'.join(map(str, OLDEST))}"
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


TIMEOUT_S: Final = 5.0
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
        with urllib.request.urlopen(url, timeout=TIMEOUT_S):  # noqa: S310 - a scheme of ours
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
