"""Finds the TensorBoard of a job, and starts its pod again where that has ended."""

from elastic.errors import JobSpecError
from elastic.platforms.base import BoardInCluster, writes_no_events
from elastic.platforms.kubernetes.api.cluster import RefusedError
from elastic.platforms.kubernetes.api.resources import PODS, Manifest
from elastic.platforms.kubernetes.job.admission import explained
from elastic.platforms.kubernetes.job.objects import JobObjects
from elastic.platforms.kubernetes.objects import tensorboard
from elastic.platforms.kubernetes.objects.hooks import Hook
from elastic.platforms.kubernetes.objects.manifests import Owner
from elastic.platforms.kubernetes.objects.names import (
    HOOK_KEYS,
    TENSORBOARD_PORT,
    master_name,
    tensorboard_name,
)
from elastic.platforms.kubernetes.objects.podspec import Job
from elastic.platforms.kubernetes.objects.record import spec_of, submission_of
from elastic.platforms.kubernetes.pods.containers import own_state
from elastic.platforms.kubernetes.pods.observation import why_pending


def find_board(objects: JobObjects) -> BoardInCluster:
    """Where the curves of a job can be looked at.

    Raises:
        JobNotFoundError: No such job.
        JobSpecError: It writes no events, or they went with its master's pod.
        PlatformError: The pod cannot be started again.
    """
    record = objects.record()
    spec = spec_of(record)
    if not spec.tensorboard_log_dir:
        raise writes_no_events(objects.job_name)
    if not tensorboard.is_shared(spec):
        return _beside_master(objects)
    name = tensorboard_name(objects.job_name)
    pod = objects.find(PODS, name)
    if pod is None or pod["status"].get("phase") in ("Succeeded", "Failed"):
        if pod is not None:
            objects.delete(PODS, name, 0.0)
        pod = _start(objects, record)
    return BoardInCluster(objects.namespace, name, TENSORBOARD_PORT, _why_not_yet(pod))


def _beside_master(objects: JobObjects) -> BoardInCluster:
    master = objects.find_master()
    if master is None or "running" not in own_state(master):
        raise JobSpecError(
            f"the events of job {objects.job_name!r} are in its master's pod, which does not run: "
            "have them on a volume the next time: --volume claim_name=CLAIM,mount_path=/results "
            "--tensorboard_log_dir /results/events"
        )
    note = "where its events are too, which end with it"
    return BoardInCluster(objects.namespace, master_name(objects.job_name), TENSORBOARD_PORT, note)


def _start(objects: JobObjects, record: Manifest) -> Manifest:
    submission, master = submission_of(record), objects.find_master()
    hook = next(
        (Hook(k, record["data"][k]) for k in HOOK_KEYS.values() if k in record["data"]), None
    )
    job = Job(spec_of(record), objects.namespace, submission.uid, submission.image, hook)
    node = None if master is None else master["spec"].get("nodeName")
    owner = None if master is None else Owner.of(master)
    affinity = None if node is None else tensorboard.on_node(node)
    manifest = tensorboard.pod(job, owner, affinity)
    try:
        return objects.cluster.create(PODS.path(objects.namespace), manifest)
    except RefusedError as error:
        raise explained(error, objects.cluster.server, job, manifest) from error


def _why_not_yet(pod: Manifest) -> str:
    if "running" in own_state(pod):
        return ""
    return f"not yet: {why_pending(pod) or 'it is being started'}"
