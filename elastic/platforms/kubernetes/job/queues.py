"""Finds out who has the queue that a job is to wait in."""

from functools import partial
from http import HTTPStatus

from elastic.errors import JobSpecError
from elastic.platforms.kubernetes.api.cluster import Cluster, RefusedError, is_served
from elastic.platforms.kubernetes.objects.queues import (
    KUEUE_QUEUES,
    QueueSystem,
    refusal,
    system_for,
    systems_served,
)


def find_queue(cluster: Cluster, namespace: str, queue: str) -> QueueSystem | None:
    """The system of a queue; None where no queue is asked for.

    Raises:
        JobSpecError: The cluster has no such queue, as far as this user may know.
        AwayError: The API server does not answer.
    """
    if not queue:
        return None
    systems = systems_served(partial(is_served, cluster))
    if problem := refusal(systems, queue):
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
