"""What a master does when its pod is deleted: it takes its workers along and is gone.

Kubernetes would remove the workers as well, but only when the master's pod is gone, which a
kubelet may take ten seconds to report, and each with a grace in which it would look for its master.
"""

import logging
import os
import signal
import threading
from typing import Final

from elastic.errors import PlatformError
from elastic.platforms.kubernetes.connection import Cluster
from elastic.platforms.kubernetes.manifests import Owner
from elastic.platforms.kubernetes.runner import KubernetesReplicaRunner

logger = logging.getLogger(__name__)

PATIENCE_S: Final = 6.0
"""Shorter than the pod's grace: then Kubernetes does it its own way."""


def leave_on_sigterm(
    cluster: Cluster, runner: KubernetesReplicaRunner, pod_path: str, own: Owner
) -> None:
    """From now on, end the job's pods on SIGTERM if the master's is being deleted.

    A container that is stopped while its pod stays is restarted, and finds its workers at work.
    """

    def leave(number: int) -> None:
        try:
            if "deletionTimestamp" in cluster.get(pod_path)["metadata"]:
                logger.info("the master's pod is being deleted, and its workers with it")
                runner.end_all()
                # All that was to be done is done, and nobody need wait until a kubelet says so.
                cluster.delete(pod_path, grace_s=0.0, uid=own.uid)
        except PlatformError as error:
            logger.warning("%s", error)
        finally:
            os._exit(128 + number)

    def on_signal(number: int, _: object) -> None:
        # Not here: the interrupted code may hold any lock.
        threading.Thread(target=leave, args=(number,), daemon=True).start()
        limit = threading.Timer(PATIENCE_S, os._exit, (128 + number,))
        limit.daemon = True
        limit.start()

    signal.signal(signal.SIGTERM, on_signal)
