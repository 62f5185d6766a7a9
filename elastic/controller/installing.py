"""What a controller needs in a cluster: types of jobs, an account, its rights, itself. Pure.

The rights follow from what its kinds say they watch and make, and no others are given.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from elastic.controller.autoscaling import RESIZED_SPECS
from elastic.controller.machinery.registration import definition_of
from elastic.controller.reconciling import Kind
from elastic.controller.settings import DEFAULTS, IMAGE, NAME, NO_AUTOSCALING, Autoscaling
from elastic.platforms.kubernetes.api.resources import (
    EVENTS,
    LEASES,
    NODES,
    PODS,
    Manifest,
    Resource,
)
from elastic.platforms.kubernetes.objects.names import (
    APP,
    APP_LABEL,
    GROUPS,
    KUEUE_QUEUES,
    KUEUE_WORKLOADS,
    METRICS_PORT_NAME,
    TMP_PATH,
    TMP_VOLUME,
    USER_ID,
    QueueSystem,
)

COMPONENT_LABEL: Final = "elastic-component"
COMPONENT: Final = "controller"
NUM_REPLICAS: Final = 2
"""One acts, one stands by."""

GRACE_S: Final = 45
"""For the passes in work, which wait for answers, and then for the lease to be let go."""

JOB_VERBS: Final = ("get", "list", "watch", "delete")
"""Of jobs: they are read again before a child is adopted, and removed when their time has come."""

SIZE_VERBS: Final = ("patch",)
"""Of jobs whose size is in their spec, where somebody decides the sizes of all."""

STATUS_VERBS: Final = ("patch",)
FINALIZER_VERBS: Final = ("update",)
"""Of the job, whose deletion what it owns may hold up (`blockOwnerDeletion`)."""

CHILD_VERBS: Final = ("get", "list", "watch", "create", "patch", "delete")
UNWATCHED_VERBS: Final = ("get", "create")
"""Of what is made and not looked at again, but to see whose it is where its name is taken: one that
is known by name can be read, and none can be found."""

EVENT_VERBS: Final = ("create", "patch")
LEASE_VERBS: Final = ("get", "patch")
VIEW_VERBS: Final = ("list", "watch")
"""Of all nodes and pods, for kinds that place pods themselves or count the room there is."""

_RBAC: Final = "rbac.authorization.k8s.io"
_LABELS: Final = {APP_LABEL: APP, COMPONENT_LABEL: COMPONENT}


@dataclass(frozen=True, slots=True)
class Installation:
    """A controller in a cluster.

    Attributes:
        namespace: Where it runs; those of its jobs too, unless `all_namespaces`.
        kinds: What it looks after, by the names that `--kinds` takes.
        definitions: Theirs, and perhaps others.
        are_all: Whether these are all kinds there are, so that it need not be told.
        all_namespaces: Whether it looks after the jobs of all namespaces.
        image: With elastic, and without a framework.
        queues: Names of the systems of queues that its jobs may wait in.
        autoscaling: Who decides the sizes of jobs.
    """

    namespace: str
    kinds: Mapping[str, Kind]
    definitions: Sequence[Manifest]
    are_all: bool = True
    all_namespaces: bool = False
    image: str = IMAGE
    queues: Collection[str] = ()
    autoscaling: Autoscaling = NO_AUTOSCALING

    @property
    def cluster_name(self) -> str:
        """Of what is in no namespace, where another controller may have its own."""
        return f"{NAME}-{self.namespace}"


def manifests(installation: Installation) -> list[Manifest]:
    """All objects, each after those that it needs.

    The first is one in the namespace: where there is no such namespace, it is refused before
    anything of the whole cluster has been changed.
    """
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": _metadata(NAME, installation.namespace),
        },
        *definitions(installation),
        *_access(installation),
        deployment(installation),
    ]


def everything_but_groups(queues: Collection[str]) -> Callable[[Resource], bool]:
    """Of a cluster that knows all types, but groups of pods only for some systems of queues.

    Args:
        queues: Names of `QueueSystem`: rights to groups are given to those alone who use them.
    """
    kept = {group for system, group in GROUPS.items() if system in queues}
    return lambda resource: resource in kept or resource not in GROUPS.values()


def queue_rules(queues: Collection[str]) -> list[Manifest]:
    """Rights to have queues let go of pods that are to go, and to see which queues there are.

    See `everything_but_groups`.
    """
    if QueueSystem.KUEUE not in queues:
        return []
    rights = ((KUEUE_WORKLOADS[0], ["delete"]), (KUEUE_QUEUES[0], list(VIEW_VERBS)))
    return [
        {"apiGroups": [each.group], "resources": [each.plural], "verbs": verbs}
        for each, verbs in rights
    ]


def definitions(installation: Installation) -> Iterator[Manifest]:
    """The types of its jobs, with the label that tells them from another controller's."""
    for kind in installation.kinds.values():
        made = definition_of(kind.resource, installation.definitions)
        metadata = made["metadata"]
        labels = {**_LABELS, **(metadata.get("labels") or {})}
        yield {**made, "metadata": {**metadata, "labels": labels}}


def is_ours(definition: Manifest) -> bool:
    """Whether a type of jobs in a cluster is of elastic, and not of another controller."""
    return (definition["metadata"].get("labels") or {}).get(APP_LABEL) == APP


def _access(installation: Installation) -> Iterator[Manifest]:
    namespace, kinds = installation.namespace, list(installation.kinds.values())
    sees_cluster = installation.autoscaling.is_on or any(kind.sees_cluster for kind in kinds)
    view = view_rules() if sees_cluster else []
    of_queues = queue_rules(installation.queues)
    of_jobs = [*job_rules(kinds), *of_queues, *_size_rules(installation)]
    if installation.all_namespaces:
        yield from _cluster_role(installation, [*of_jobs, *view])
        yield from _role(namespace, lease_rules())
    else:
        yield from _role(namespace, [*of_jobs, *lease_rules()])
        if view:
            yield from _cluster_role(installation, view)


def job_rules(kinds: Iterable[Kind]) -> list[Manifest]:
    """Rights on the jobs of some kinds, on what is made for them, and to tell of it."""
    rights: dict[tuple[str, tuple[str, ...]], list[str]] = {}

    def add(group: str, resource: str, verbs: tuple[str, ...]) -> None:
        resources = rights.setdefault((group, verbs), [])
        if resource not in resources:
            resources.append(resource)

    for kind in kinds:
        job = kind.resource
        add(job.group, job.plural, JOB_VERBS)
        add(job.group, f"{job.plural}/status", STATUS_VERBS)
        add(job.group, f"{job.plural}/finalizers", FINALIZER_VERBS)
    for kind in kinds:
        for child in kind.children:
            add(child.group, child.plural, CHILD_VERBS)
    for kind in kinds:
        for made in kind.unwatched:
            add(made.group, made.plural, UNWATCHED_VERBS)
    add(EVENTS.group, EVENTS.plural, EVENT_VERBS)
    return [
        {"apiGroups": [group], "resources": resources, "verbs": list(verbs)}
        for (group, verbs), resources in rights.items()
    ]


def _size_rules(installation: Installation) -> list[Manifest]:
    """Rights to change the sizes of jobs, beyond those to their status."""
    if not installation.autoscaling.policy:
        return []
    resources = [kind.resource for kind in installation.kinds.values()]
    return [
        {"apiGroups": [each.group], "resources": [each.plural], "verbs": list(SIZE_VERBS)}
        for each in resources
        if each in RESIZED_SPECS
    ]


def view_rules() -> list[Manifest]:
    """Rights to see what room the whole cluster has."""
    return [
        {
            "apiGroups": [NODES.group],
            "resources": [NODES.plural, PODS.plural],
            "verbs": list(VIEW_VERBS),
        }
    ]


def lease_rules() -> list[Manifest]:
    """Rights to be elected; what does not exist yet cannot be named."""
    about = {"apiGroups": [LEASES.group], "resources": [LEASES.plural]}
    return [
        {**about, "verbs": ["create"]},
        {**about, "resourceNames": [NAME], "verbs": list(LEASE_VERBS)},
    ]


def _role(namespace: str, rules: list[Manifest]) -> list[Manifest]:
    metadata = _metadata(NAME, namespace)
    return [
        {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": rules},
        _binding("Role", metadata, namespace),
    ]


def _cluster_role(installation: Installation, rules: list[Manifest]) -> list[Manifest]:
    metadata = {"name": installation.cluster_name, "labels": _LABELS.copy()}
    return [
        {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules},
        _binding("ClusterRole", metadata, installation.namespace),
    ]


def _binding(role_kind: str, metadata: Manifest, namespace: str) -> Manifest:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{role_kind}Binding",
        "metadata": metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": role_kind, "name": metadata["name"]},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
    }


def deployment(installation: Installation) -> Manifest:
    """The controller itself."""
    annotations = {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(DEFAULTS.port),
        "prometheus.io/path": "/metrics",
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(NAME, installation.namespace),
        "spec": {
            "replicas": NUM_REPLICAS,
            "selector": {"matchLabels": _LABELS.copy()},
            "template": {
                "metadata": {"labels": _LABELS.copy(), "annotations": annotations},
                "spec": _pod_spec(installation),
            },
        },
    }


def _pod_spec(installation: Installation) -> Manifest:
    apart = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": _LABELS.copy()},
    }
    return {
        "serviceAccountName": NAME,
        "terminationGracePeriodSeconds": GRACE_S,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        # Wanted and not required: a cluster may have one node.
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 100, "podAffinityTerm": apart}
                ]
            }
        },
        "containers": [_container(installation)],
        "volumes": [{"name": TMP_VOLUME, "emptyDir": {}}],
    }


def _container(installation: Installation) -> Manifest:
    return {
        "name": COMPONENT,
        "image": installation.image,
        "command": ["python", "-m", "elastic", "controller"],
        "args": _arguments(installation),
        "ports": [{"name": METRICS_PORT_NAME, "containerPort": DEFAULTS.port}],
        # On a node that is busy Python takes minutes to start: no reason to begin once more.
        "startupProbe": _probe("/healthz", period_s=5, num_failures=60),
        "livenessProbe": _probe("/healthz", period_s=20),
        "readinessProbe": _probe("/readyz", period_s=5),
        # Copies of all objects that are watched: some 10,000 pods. Without a limit of CPU, which
        # would slow a burst down and save nobody anything.
        "resources": {
            "requests": {"cpu": "100m", "memory": "256Mi"},
            "limits": {"memory": "1Gi"},
        },
        "volumeMounts": [{"name": TMP_VOLUME, "mountPath": str(TMP_PATH)}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }


def _arguments(installation: Installation) -> list[str]:
    arguments = [f"--namespace={installation.namespace}"]
    if installation.all_namespaces:
        arguments.append("--all_namespaces")
    if not installation.are_all:
        arguments.append(f"--kinds={','.join(installation.kinds)}")
    return [*arguments, *installation.autoscaling.arguments()]


def _probe(path: str, period_s: int, num_failures: int = 3) -> Manifest:
    get: dict[str, Any] = {"path": path, "port": METRICS_PORT_NAME}
    return {
        "httpGet": get,
        "periodSeconds": period_s,
        "timeoutSeconds": 3,
        "failureThreshold": num_failures,
    }


def _metadata(name: str, namespace: str) -> Manifest:
    return {"name": name, "namespace": namespace, "labels": _LABELS.copy()}
