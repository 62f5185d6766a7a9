"""A job in the place of one that has ended: whether it may be, and what stays of the other."""

import time
from functools import partial
from typing import Final

from elastic.errors import JobExistsError, JobSpecError
from elastic.platforms.kubernetes.job_objects import JobObjects
from elastic.platforms.kubernetes.killing import end_pods
from elastic.platforms.kubernetes.names import (
    STATE_KEY,
    Manifest,
    collection_path,
    status_name,
)
from elastic.platforms.kubernetes.podspec import Job
from elastic.platforms.kubernetes.record import (
    StatusUnreadableError,
    spec_of,
    status_of,
    submission_of,
)
from elastic.platforms.kubernetes.undoing import Undo
from elastic.policy.resumption import resumed
from elastic.spec.job import JobSpec
from elastic.spec.settings.cluster_forms import STATE_MOUNT, state_volume
from elastic.spec.status import JobStatus

ENDING_TIMEOUT_S: Final = 60.0
"""How long the pods of a job that has ended may take to leave before its name is used again."""


def check_may_replace(objects: JobObjects, earlier: Manifest | None, spec: JobSpec) -> None:
    """Refuse a name that somebody needs.

    Raises:
        JobExistsError: A job of that name runs, or has ended and may not be touched.
        JobSpecError: There is nothing to resume from.
    """
    name = spec.job_name
    if earlier is None:
        if not spec.overwrite and objects.pods():
            raise JobExistsError(
                f"pods of an earlier job {name!r} are there, and its record is not: pass "
                "--overwrite to delete them, or choose another --job_name"
            )
        return
    status = objects.status(earlier)
    if not status.phase.is_final:
        raise JobExistsError(
            f"job {name!r} is there and has not ended ({status.phase}): choose another "
            f"--job_name, or `elastic kill {name} -n {objects.namespace}` first"
        )
    if not spec.overwrite and not spec.resume:
        raise JobExistsError(
            f"job {name!r} has ended as {status.phase}: pass --resume to go on from its newest "
            "checkpoint, or --overwrite to remove it and start anew"
            if spec.kind.can_resume
            else f"job {name!r} has ended as {status.phase}: pass --overwrite to start anew"
        )
    if spec.resume and not spec.checkpoint_dir and find_kept_state(earlier, spec) is None:
        raise JobSpecError(
            "--resume finds nothing to go on from: what the earlier master kept went with its "
            f"pod, since it had no --volume at {STATE_MOUNT}, or not this one, and no "
            "--checkpoint_dir on a --volume is given: pass one, or --overwrite"
        )


def find_kept_state(earlier: Manifest | None, spec: JobSpec) -> str | None:
    """The submission whose cuts are on the volume that both jobs name for them, if they do.

    Raises:
        PlatformError: The earlier job's record is damaged.
    """
    volume = state_volume(spec.volume)
    if earlier is None or volume is None or state_volume(spec_of(earlier).volume) != volume:
        return None
    uid: str | None = earlier["data"].get(STATE_KEY)
    return uid


def clear(
    objects: JobObjects, spec: JobSpec, job: Job, earlier: Manifest | None, undo: Undo
) -> None:
    """Remove what is left of an earlier job, but for what a resumed one goes on from."""
    end_pods(objects, time.monotonic(), ENDING_TIMEOUT_S)
    objects.delete_belongings()
    status_map = objects.find("configmaps", status_name(job.name))
    if status_map is None:
        return
    undo.append(partial(_restore_status, objects, status_map))
    published = _readable(status_map)
    if earlier is None or not spec.resume or published is None:
        objects.delete("configmaps", status_name(job.name))
        return
    reached = resumed(published, submission_of(earlier).submitted_s)
    objects.write_status(reached, job.submission_uid)


def _readable(status_map: Manifest) -> JobStatus | None:
    try:
        return status_of(status_map)
    except StatusUnreadableError:
        # Counts and events are lost with it; checkpoints are kept elsewhere.
        return None


def _restore_status(objects: JobObjects, status_map: Manifest) -> None:
    metadata = {k: status_map["metadata"][k] for k in ("name", "namespace", "labels")}
    objects.delete("configmaps", metadata["name"])
    objects.cluster.create(
        collection_path("configmaps", objects.namespace),
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": status_map["data"],
        },
    )
