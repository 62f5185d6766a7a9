"""Deletes the objects of a job that has ended, and none of one that takes its place meanwhile."""

from http import HTTPStatus
from typing import Final

from elastic.errors import JobExistsError
from elastic.platforms.kubernetes.api.cluster import RefusedError
from elastic.platforms.kubernetes.api.resources import PODS, Manifest
from elastic.platforms.kubernetes.job_objects import JobObjects
from elastic.platforms.kubernetes.killing import TERM_GRACE_S
from elastic.platforms.kubernetes.names import MASTER
from elastic.platforms.kubernetes.pods.containers import may_run, own_state
from elastic.platforms.kubernetes.pods.observation import role_of
from elastic.policy.fleet import WORKER

_AT_WORK: Final = frozenset({MASTER, WORKER})
"""The roles of pods that a job is done by; a TensorBoard only shows what they did."""


def forget_job(job: JobObjects) -> None:
    """Delete the pods, the belongings, the status and last the record of a job that has ended.

    Raises:
        JobNotFoundError: No such job.
        JobExistsError: It goes on, has a pod that does, or is submitted at this moment.
    """
    record = job.record()
    pods = job.pods()
    if left := sorted(pod["metadata"]["name"] for pod in pods if _is_at_work(pod)):
        raise JobExistsError(
            f"job {job.job_name!r} has running pods ({', '.join(left)}): `elastic kill` it first"
        )
    if not job.status(record).phase.is_final:
        raise JobExistsError(f"job {job.job_name!r} has not ended: `elastic kill` it first")
    for pod in pods:
        grace_s = TERM_GRACE_S if may_run(pod) else 0.0
        job.delete(PODS, pod["metadata"]["name"], grace_s, pod["metadata"]["uid"])
    # Whoever submits the job again takes its record first, and with it the names of all the rest.
    version = record["metadata"]["resourceVersion"]
    if job.record()["metadata"]["resourceVersion"] != version:
        raise _is_taken(job)
    job.delete_belongings()
    try:
        job.delete_memory(version)
    except RefusedError as error:
        if error.code != HTTPStatus.CONFLICT:
            raise
        raise _is_taken(job) from error


def _is_at_work(pod: Manifest) -> bool:
    """Whether a replica runs, whatever containers somebody has put beside it."""
    return role_of(pod) in _AT_WORK and may_run(pod) and "terminated" not in own_state(pod)


def _is_taken(job: JobObjects) -> JobExistsError:
    return JobExistsError(
        f"job {job.job_name!r} is being submitted by somebody else at this moment: see "
        f"`elastic status {job.job_name} -n {job.namespace}`"
    )
