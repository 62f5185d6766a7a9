"""The types of objects that an API server keeps, and the paths by which it is asked for them. Pure.

Those that we use have a constant here; any other, such as a custom resource, is one more value.
"""

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

Manifest: TypeAlias = dict[str, Any]
"""A Kubernetes object, as JSON has it."""

_RBAC: Final = "rbac.authorization.k8s.io"


@dataclass(frozen=True, slots=True)
class Resource:
    """One type of object.

    Attributes:
        group: Of the API; empty for the core.
        plural: Its name in paths, lower case.
        kind: Its name in objects.
        namespaced: Whether each object is in a namespace, and not of the whole cluster.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, namespace: str | None = None, name: str | None = None, part: str | None = None
    ) -> str:
        """Of the collection in a namespace, or of one object in it.

        Args:
            namespace: None for those of all namespaces, which can be listed and watched together,
                and for what is in none.
            name: Of the object; None for the collection.
            part: A subresource of the object, such as `log` or `status`.
        """
        assert namespace is None or self.namespaced, f"{self.plural} are in no namespace"
        assert name is None or namespace is not None or not self.namespaced, f"where is {name}?"
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        within = "" if namespace is None else f"/namespaces/{namespace}"
        parts = "".join(f"/{each}" for each in (name, part) if each is not None)
        return f"{root}{within}/{self.plural}{parts}"


CONFIGMAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
EVENTS: Final = Resource("", "v1", "events", "Event")
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False)
PERSISTENT_VOLUME_CLAIMS: Final = Resource(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"
)
PODS: Final = Resource("", "v1", "pods", "Pod")
SECRETS: Final = Resource("", "v1", "secrets", "Secret")
SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount")
SERVICES: Final = Resource("", "v1", "services", "Service")

BATCH_JOBS: Final = Resource("batch", "v1", "jobs", "Job")
CUSTOM_RESOURCE_DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False
)
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")
PRIORITY_CLASSES: Final = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)
REPLICA_SETS: Final = Resource("apps", "v1", "replicasets", "ReplicaSet")
ROLES: Final = Resource(_RBAC, "v1", "roles", "Role")
ROLE_BINDINGS: Final = Resource(_RBAC, "v1", "rolebindings", "RoleBinding")
CLUSTER_ROLES: Final = Resource(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS: Final = Resource(
    _RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
SELF_ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    namespaced=False,
)
