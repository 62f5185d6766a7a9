"""What a master does when its pod is deleted: keeps its last version, and takes its workers along.

Kubernetes would remove the workers as well, but only when the master's pod is gone, which a
kubelet may take ten seconds to report, and each with a grace in which it would look for its master.
"""

import logging
import os
import signal
import threading
import time
from typing import Final

from elastic.errors import PlatformError
from elastic.platforms.kubernetes.api.cluster import Cluster
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.master.runner import KubernetesReplicaRunner
from elastic.platforms.kubernetes.objects.manifests import Owner
from elastic.platforms.surroundings import Departure

logger = logging.getLogger(__name__)

PATIENCE_S: Final = 6.0
"""For the API server to say whether the pod is to go."""

SPARE_S: Final = 4.0
"""Of the pod's grace, for the workers' end; after it, Kubernetes does it its own way."""


def leave_on_sigterm(
    cluster: Cluster,
    runner: KubernetesReplicaRunner,
    pod_path: str,
    own: Owner,
    departure: Departure,
) -> None:
    """From now on, end the job's pods on SIGTERM if the master's is being deleted.

    A container that is stopped while its pod stays is restarted, and finds its workers at work.

    Args:
        cluster: Where the pod is.
        runner: Of the workers.
        pod_path: Of the master's pod.
        own: The same, as an owner.
        departure: Asked for before anything is ended.
    """

    def leave(number: int, began_s: float, limit: threading.Timer) -> None:
        try:
            metadata = cluster.get(pod_path)["metadata"]
            if "deletionTimestamp" in metadata:
                left_s = began_s + _grace_s(metadata) - SPARE_S - time.monotonic()
                limit.cancel()
                _end_in(left_s + SPARE_S / 2, number)
                logger.info("the master's pod is being deleted, and its workers with it")
                if not departure.ask(left_s):
                    logger.warning("the newest version could not be kept in %.0f s", left_s)
                _tell(runner)
                runner.end_all()
                # All that was to be done is done, and nobody need wait until a kubelet says so.
                cluster.delete(pod_path, grace_s=0.0, uid=own.uid)
        except PlatformError as error:
            logger.warning("%s", error)
        finally:
            os._exit(128 + number)

    def on_signal(number: int, _: object) -> None:
        # Not here: the interrupted code may hold any lock.
        limit = _end_in(PATIENCE_S, number)
        arguments = (number, time.monotonic(), limit)
        threading.Thread(target=leave, args=arguments, daemon=True).start()

    signal.signal(signal.SIGTERM, on_signal)


def _tell(runner: KubernetesReplicaRunner) -> None:
    try:
        runner.tell_now()
    except PlatformError as error:
        logger.warning("%s", error)


def _grace_s(metadata: Manifest) -> float:
    return max(float(metadata.get("deletionGracePeriodSeconds") or 0.0), PATIENCE_S + SPARE_S)


def _end_in(delay_s: float, number: int) -> threading.Timer:
    limit = threading.Timer(max(delay_s, 0.0), os._exit, (128 + number,))
    limit.daemon = True
    limit.start()
    return limit
