"""Reads what the logs of a job's pods hold now."""

import time
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Final

from elastic.errors import PlatformError
from elastic.platforms.base import LogLine
from elastic.platforms.kubernetes.api.cluster import Cluster, RefusedError
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.log_selection import in_order, is_named, selected
from elastic.platforms.kubernetes.pod_log import ExcuseError, PodLog
from elastic.platforms.kubernetes.pods.containers import own_status
from elastic.platforms.kubernetes.pods.observation import replica_name, why_pending

_EXCUSE_PAUSES_S: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
"""A busy node takes its time to link the log of a container that it has just begun."""


def read_logs(
    cluster: Cluster,
    pods: Sequence[Manifest],
    replicas: Sequence[str],
    tail: int | None,
    since_s: float | None = None,
) -> Iterator[LogLine]:
    """What the logs hold now, replica by replica, the master first.

    Raises:
        PlatformError: A replica was named that has no log, or nobody has one.
    """
    known = ", ".join(map(replica_name, in_order(pods))) or "none"
    for name in replicas:
        if not any(is_named(replica_name(pod), [name]) for pod in pods):
            raise PlatformError(f"{name!r} has no pod: name one of: {known}")
    if not pods:
        raise PlatformError("the job has no pods any more, and their logs went with them")
    wanted = selected(pods, replicas)
    for pod in wanted:
        if not pod["spec"].get("nodeName"):
            # Of a pod without a node the API server gives an empty log, as if it were silent.
            if replicas or len(wanted) == 1:
                raise PlatformError(
                    f"{replica_name(pod)} has written nothing yet: "
                    f"{why_pending(pod) or 'it waits for a node'}"
                )
            continue
        try:
            yield from _read_now(PodLog(cluster, pod, since_s, tail), previous=False)
        except RefusedError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                continue
            if error.code != HTTPStatus.BAD_REQUEST:
                raise
            if replicas or len(wanted) == 1:
                raise PlatformError(
                    f"{replica_name(pod)} has written nothing yet: {error.detail}"
                ) from error


def read_previous_logs(
    cluster: Cluster,
    pods: Sequence[Manifest],
    last_words: Mapping[str, str],
    replicas: Sequence[str],
    tail: int | None,
    since_s: float | None = None,
) -> Iterator[LogLine]:
    """What is left of the lives before the present ones, the master's first.

    The log of a container that was restarted in place is whole. Of a worker that was replaced
    there are its last words, of which nobody knows when they were written.

    Raises:
        PlatformError: Nothing is left of what was asked for.
    """
    restarted = [pod for pod in selected(pods, replicas) if own_status(pod).get("restartCount", 0)]
    replaced = [name for name in sorted(last_words) if is_named(name, replicas)]
    if not restarted and not replaced:
        raise PlatformError(
            "nothing is left of an earlier life: no container was restarted in place, and no "
            "worker that was replaced had written why it ended; the log of a master holds all "
            "that its container has had: leave out --previous"
        )
    for pod in restarted:
        try:
            yield from _read_now(PodLog(cluster, pod, since_s, tail), previous=True)
        except RefusedError as error:
            # The node keeps one earlier container at most, and may need its disk.
            if error.code not in (HTTPStatus.NOT_FOUND, HTTPStatus.BAD_REQUEST):
                raise
    for name in replaced:
        lines = last_words[name].splitlines()
        for text in lines if tail is None else lines[max(0, len(lines) - tail) :]:
            yield LogLine(name, text)


def _read_now(log: PodLog, previous: bool) -> Iterator[LogLine]:
    for pause_s in _EXCUSE_PAUSES_S:
        try:
            yield from log.lines(previous=previous or None)
        except ExcuseError:
            time.sleep(pause_s)
        else:
            return
    yield from log.lines(previous=previous or None)
