"""What the pods of an object have written, as the logs of elastic's own jobs are read."""

from collections.abc import Iterator, Sequence

from elastic.controller.inspection.documents import replica_of
from elastic.controller.inspection.kinds import Reference, Seen
from elastic.controller.inspection.objects import Objects
from elastic.errors import JobNotFoundError, JobSpecError, PlatformError
from elastic.platforms.base import LogLine
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.job.logs import Manner, follow_logs, read_logs, read_previous_logs
from elastic.spec.values.since import Since


def replicas_named(reference: Reference, role: str | None, index: int | None) -> list[str]:
    """What is to be read; an index without a role is that of the first role of the kind with one.

    Raises:
        JobSpecError: The kind has no such role, or no indexes.
    """
    kind = reference.kind
    if role is not None and role not in kind.roles:
        raise JobSpecError(f"--role={role}: {reference} has the roles {', '.join(kind.roles)}")
    if index is None:
        return [role] if role else []
    if kind.indexed_role is None:
        raise JobSpecError(
            f"--index={index}: the pods of a {kind.resource.kind} have no index: `elastic status "
            f"{reference}` has their names; choose a --role"
        )
    return [f"{role or kind.indexed_role}-{index}"]


def read(
    objects: Objects,
    reference: Reference,
    replicas: Sequence[str],
    follow: bool,
    tail: int | None,
    previous: bool = False,
    since: Since | None = None,
) -> Iterator[LogLine]:
    """Lines of the named replicas or roles (all when empty), each with its replica.

    With `follow`, goes on until the object has ended or is gone; with `previous`, those of a
    container that was restarted in place; with `since`, those written from then on.

    Raises:
        JobNotFoundError: There is no such object.
        PlatformError: The pods may not be listed; without `follow`: a replica was named that has
            no log.
    """
    objects.get(reference)
    manner, cluster = _manner(reference.kind), objects.cluster
    since_s = None if since is None else since.at_s(cluster.now_s())
    if follow:

        def look() -> tuple[Sequence[Manifest], bool]:
            # Asked first: what pods have written by the end is in their logs when they are read.
            has_ended = _has_ended(objects, reference)
            return _pods(objects, reference), has_ended

        return follow_logs(cluster, look, replicas, tail, since_s, manner)
    pods = _pods(objects, reference)
    if previous:
        return read_previous_logs(cluster, pods, {}, replicas, tail, since_s, manner)
    return read_logs(cluster, pods, replicas, tail, since_s, manner)


def _manner(kind: Seen) -> Manner:
    return Manner(lambda pod: replica_of(kind, pod), kind.container, kind.roles)


def _pods(objects: Objects, reference: Reference) -> list[Manifest]:
    pods = objects.pods(reference)
    if pods is None:
        raise PlatformError(f"the pods of {reference} may not be listed by this account")
    return pods


def _has_ended(objects: Objects, reference: Reference) -> bool:
    try:
        return objects.brief(reference).is_final
    except JobNotFoundError:
        return True
