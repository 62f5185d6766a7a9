"""Whom the objects of a job belong to: Kubernetes removes what belongs to nobody any more."""

from dataclasses import dataclass
from typing import Final

from elastic.platforms.kubernetes.api.resources import Manifest, Resource

TRAIN_JOBS: Final = Resource("elastic.dev", "v1", "elastictrainjobs", "ElasticTrainJob")
"""Resources that jobs are made from."""


def _reference(api_version: str, kind: str, name: str, uid: str, controller: bool) -> Manifest:
    """An entry for `metadata.ownerReferences`.

    Without `blockOwnerDeletion`, which only a deletion in the foreground heeds: where admission
    checks owner references, as in OpenShift, it takes a right to the `finalizers` of the owner.
    """
    reference: Manifest = {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid}
    return reference | {"controller": True} if controller else reference


@dataclass(frozen=True, slots=True)
class Owner:
    """The master's pod, with which the objects that it owns are removed."""

    name: str
    uid: str

    @classmethod
    def of(cls, pod: Manifest) -> "Owner":
        """The owner that a stored pod is."""
        return cls(pod["metadata"]["name"], pod["metadata"]["uid"])

    def reference(self, controller: bool = True) -> Manifest:
        """The entry for `metadata.ownerReferences`.

        Args:
            controller: Whether this owner, of all, is the one that looks after the object.
        """
        return _reference("v1", "Pod", self.name, self.uid, controller)


@dataclass(frozen=True, slots=True)
class ResourceOwner:
    """The resource that a job was made from, such as an ElasticTrainJob.

    Whoever keeps it true makes the job's master again, so what belongs to it outlives masters.
    """

    api_version: str
    kind: str
    name: str
    uid: str

    def reference(self, controller: bool = True) -> Manifest:
        """The entry for `metadata.ownerReferences`.

        Args:
            controller: Whether this owner, of all, is the one that looks after the object.
        """
        return _reference(self.api_version, self.kind, self.name, self.uid, controller)

    @property
    def submission_uid(self) -> str:
        """The submission that the resource is: the same for every master that is made for it."""
        return self.uid.replace("-", "")


def references_of_belonging(resource: ResourceOwner | None, master: Owner | None) -> list[Manifest]:
    """Whom a Service, a Secret or a TensorBoard belongs to: one of the two, if there is any.

    Args:
        resource: That the job was made from.
        master: Its master's pod, which matters where there is no resource.
    """
    owner = resource or master
    return [] if owner is None else [owner.reference()]


def references_of_replica(resource: ResourceOwner | None, master: Owner | None) -> list[Manifest]:
    """Whom a worker belongs to: the resource, and the master that has launched it.

    Kubernetes collects it when both are gone: a worker outlives its master where there is a
    resource, for the next master to take it over.
    """
    if resource is None or master is None:
        return references_of_belonging(resource, master)
    return [resource.reference(), master.reference(controller=False)]
