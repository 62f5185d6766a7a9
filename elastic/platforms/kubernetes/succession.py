"""A job in the place of one that has ended: whether it may be, and what stays of the other."""

import time
from functools import partial
from typing import Final

from elastic.errors import JobExistsError, JobSpecError
from elastic.platforms.kubernetes.job_objects import JobObjects
from elastic.platforms.kubernetes.killing import end_pods
from elastic.platforms.kubernetes.names import Manifest, collection_path, status_name
from elastic.platforms.kubernetes.podspec import Job
from elastic.platforms.kubernetes.record import status_of
from elastic.platforms.kubernetes.undoing import Undo
from elastic.spec.job import JobSpec
from elastic.spec.status import JobPhase

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
        )
    if spec.resume and not spec.checkpoint_dir:
        raise JobSpecError(
            "--resume finds nothing to go on from: what the earlier master kept went with its "
            "pod, and no --checkpoint_dir on a --volume is given: pass one, or --overwrite"
        )


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
    published = status_of(status_map)
    if earlier is None or not spec.resume or published is None:
        objects.delete("configmaps", status_name(job.name))
        return
    # What was reached stays; how it ended does not.
    reached = published.model_copy(
        update={
            "phase": JobPhase.PENDING, "reason": "", "message": "", "ended_s": None, "workers": (),
        }
    )  # fmt: skip
    objects.write_status(reached, job.submission_uid)


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
