"""Launch numbers that the next master must not give again, whichever pod and node it is in.

Where somebody makes a master's pod again, its launches are not in a file that the next one finds.
So the number of a launch is in the ConfigMap of the status before the launch has a pod. A first
launch costs nothing: whoever follows another master takes number 1 for given.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from elastic.platforms.base import Fence
from elastic.platforms.kubernetes.api.cluster import Cluster, RefusedError
from elastic.platforms.kubernetes.api.resources import CONFIGMAPS, Manifest
from elastic.platforms.kubernetes.objects import names
from elastic.platforms.kubernetes.objects.podspec import Job
from elastic.platforms.kubernetes.objects.record import StatusUnreadableError, status_of
from elastic.policy.fleet import NO_LAUNCHES, TakenLaunches
from elastic.policy.replicas import ReplicaId, ReplicaPhase, told_id

PREFIX: Final = "launch."
"""Of the keys, which go on with the name of a replica."""


@dataclass(frozen=True, slots=True)
class Past:
    """What the masters before this one have left in the API server.

    Attributes:
        taken: Launch numbers that are not given again.
        running: Launches that were told to run.
    """

    taken: TakenLaunches = NO_LAUNCHES
    running: Sequence[ReplicaId] = ()


class LaunchNumbers:
    """The numbers of one job, kept beside its status. Not thread-safe."""

    def __init__(self, cluster: Cluster, job: Job, fence: Fence) -> None:
        self._cluster = cluster
        self._fence = fence
        self._submission_uid = job.submission_uid
        self._path = CONFIGMAPS.path(job.namespace, names.status_name(job.name))
        self._kept: dict[str, int] = {}

    def load(self, has_predecessor: bool) -> Past:
        """Read what was kept.

        Args:
            has_predecessor: A master in another pod may have launched something before.

        Raises:
            PlatformError: The API server is away or refuses.
        """
        least = int(has_predecessor)
        try:
            config_map = self._cluster.get(self._path)
        except RefusedError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
            return Past(TakenLaunches({}, least))
        labels = config_map["metadata"].get("labels") or {}
        if labels.get(names.SUBMISSION_LABEL) != self._submission_uid:
            return Past(TakenLaunches({}, least))
        self._kept = _kept(config_map)
        newest, running = dict(self._kept), []
        for told, phase in _told(config_map):
            newest[told.name] = max(told.launch, newest.get(told.name, 0))
            if phase == ReplicaPhase.RUNNING:
                running.append(told)
        return Past(TakenLaunches(newest, least), running)

    def take(self, replica: ReplicaId) -> None:
        """Keep the number of a launch that is about to get a pod.

        Raises:
            PlatformError: The API server is away or refuses: the launch must wait.
            FencedError: Another master may act for the job.
        """
        if replica.launch <= max(1, self._kept.get(replica.name, 0)):
            return
        self._fence.check()
        key = f"{PREFIX}{replica.name}"
        self._cluster.patch(self._path, {"data": {key: str(replica.launch)}})
        self._kept[replica.name] = replica.launch


def _kept(config_map: Manifest) -> dict[str, int]:
    data = config_map.get("data") or {}
    return {
        key.removeprefix(PREFIX): int(text)
        for key, text in data.items()
        if key.startswith(PREFIX) and str(text).isdecimal()
    }


def _told(config_map: Manifest) -> list[tuple[ReplicaId, str]]:
    """Each replica as the last status told it."""
    try:
        status = status_of(config_map)
    except StatusUnreadableError:
        return []
    return [] if status is None else [(told_id(row), row.phase) for row in status.workers]
