"""What a namespace needs before jobs can run in it: the master's account and its few rights.

Pure values, as the API takes them; `elastic install` prints or applies them, and `manifests/`
holds the same text for those who keep their clusters in files.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.names import APP, APP_LABEL

SUBMITTER: Final = "elastic-submitter"
_RBAC: Final = "rbac.authorization.k8s.io"

MASTER_RIGHTS: Final = {
    # Workers are pods; nothing else is started, and nobody's pod is entered or read from.
    "pods": ("get", "list", "watch", "create", "delete"),
    # The job's record is read, its status written.
    "configmaps": ("get", "list", "watch", "create", "patch"),
    # What happens to the job is told on the master's pod.
    "events": ("create",),
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

PRIORITIES: Final = {"high": 1000, "low": 0}
"""The priority classes that a `--worker_pod_priority` between 0 and 1 means."""


def namespace(name: str) -> Manifest:
    """A namespace for jobs."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def master_access(namespace: str, service_account: str) -> list[Manifest]:
    """The account of masters, its role and the binding of the two."""
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": _metadata(service_account, namespace),
        },
        _role(service_account, namespace, MASTER_RIGHTS),
        _binding(
            service_account,
            namespace,
            [{"kind": "ServiceAccount", "name": service_account, "namespace": namespace}],
        ),
    ]


def submitter_access(namespace: str, users: Sequence[str]) -> list[Manifest]:
    """A role for people who run jobs, and its binding."""
    subjects = [{"apiGroup": _RBAC, "kind": "User", "name": user} for user in users]
    return [
        _role(SUBMITTER, namespace, SUBMITTER_RIGHTS),
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


def _role(name: str, namespace: str, rights: Mapping[str, Sequence[str]]) -> Manifest:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "Role",
        "metadata": _metadata(name, namespace),
        "rules": [
            {"apiGroups": [""], "resources": [resource], "verbs": list(verbs)}
            for resource, verbs in rights.items()
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
