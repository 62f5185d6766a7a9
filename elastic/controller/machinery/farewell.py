"""What is left to do when a job is no more: Kubernetes removes all that was its own but one thing.

Kueue holds the pods of a group for others to take their place, until its Workload is deleted. The
pods are the only trace of such a job, so whoever looks after its kind sees to it.
"""

from elastic.controller.machinery.adoption import is_still_there
from elastic.controller.machinery.index import JobKey, controller_uid
from elastic.controller.machinery.informers import Informers
from elastic.platforms.kubernetes.api.cluster import Cluster
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.objects.queues import groups_among
from elastic.platforms.kubernetes.pods.groups import end_group


class Farewell:
    """Has queues let go of pods. Safe to use from several threads, one job at a time."""

    def __init__(self, cluster: Cluster, informers: Informers) -> None:
        self._cluster = cluster
        self._informers = informers

    def say(self, key: JobKey) -> None:
        """See to what a job has left that is no more, or is about to be.

        Raises:
            RefusedError: The API server refuses.
            AwayError: It does not answer.
        """
        held: dict[str, list[Manifest]] = {}
        for pod in self._informers.leaving_pods(key):
            if uid := controller_uid(pod):
                held.setdefault(uid, []).append(pod)
        for uid, pods in held.items():
            groups = groups_among(pods)
            # By the API server itself: another job of that name may have begun.
            if groups and not is_still_there(self._cluster, key, uid):
                for group in groups:
                    end_group(self._cluster, key.namespace, group)
