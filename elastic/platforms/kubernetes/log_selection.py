"""Which of a job's pods are meant by the names that a user gives."""

from collections.abc import Iterable, Sequence

from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.names import MASTER
from elastic.platforms.kubernetes.pods.observation import replica_name


def selected(pods: Iterable[Manifest], names: Sequence[str]) -> list[Manifest]:
    """The pods that the names mean, the master's first."""
    return in_order(pod for pod in pods if is_named(replica_name(pod), names))


def in_order(pods: Iterable[Manifest]) -> list[Manifest]:
    """The master first, then by role and index."""

    def order(pod: Manifest) -> tuple[bool, str, int]:
        role, _, index = replica_name(pod).rpartition("-")
        return role != MASTER, role, int(index) if index.isdecimal() else 0

    return sorted(pods, key=order)


def is_named(replica: str, names: Sequence[str]) -> bool:
    """Whether `worker-0` is meant by the names: itself, its role, or everybody."""
    return not names or replica in names or replica.rsplit("-", 1)[0] in names
