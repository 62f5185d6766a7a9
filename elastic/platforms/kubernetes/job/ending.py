"""Ends all pods of a job: by asking its master, then by deleting them, then by force.

What is left of a job that has ended can be forgotten, and nothing of one that takes its place
meanwhile.
"""

import logging
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Final

from elastic.errors import JobExistsError
from elastic.platforms.base import StillAliveError, unheard
from elastic.platforms.kubernetes.api.cluster import RefusedError
from elastic.platforms.kubernetes.api.resources import PODS, Manifest
from elastic.platforms.kubernetes.job.objects import JobObjects
from elastic.platforms.kubernetes.job.status import STATUS_UNREADABLE
from elastic.platforms.kubernetes.objects.manifests import Submission, submission_of
from elastic.platforms.kubernetes.objects.queues import groups_among
from elastic.platforms.kubernetes.pods import states
from elastic.platforms.kubernetes.pods.groups import end_group
from elastic.platforms.kubernetes.pods.observation import needs_pods, role_of, with_seen_workers
from elastic.policy.masters import KEEPING
from elastic.spec.roles import MASTER, ROLES
from elastic.spec.status import JobPhase, JobStatus

logger = logging.getLogger(__name__)

POLL_S: Final = 0.25
MASTER_S: Final = 15.0
"""What a master gets that does not say that it keeps its newest version: one that hears nothing
should not use up a patient caller."""
TERM_GRACE_S: Final = 5.0
"""What a pod gets to end by itself: its work is thrown away, so only last words are waited for."""
HURRY_GRACE_S: Final = 1.0
"""Not 0, with which the API server forgets a pod before anybody knows that it has ended."""
SETTLE_S: Final = 3.0
"""Even a hurried caller waits this long for pods to leave."""


def kill_job(job: JobObjects, timeout_s: float, on_wait: Callable[[str], None] = unheard) -> None:
    """Cancel a job and wait until none of its pods is left.

    At most half of the time is the master's, to keep its newest version and to publish the end, and
    none where the end was asked for before; then all pods are asked to end, and with the last
    quarter they are not asked any more. A node that is busy may need long to
    say that a pod is gone. With no time at all the API server
    forgets them at once, whether or not their nodes answer.

    Raises:
        JobNotFoundError: No such job.
        StillAliveError: A pod was still there after `timeout_s`.
    """
    started_s = time.monotonic()
    submission = job.submission()
    found = job.status()
    if found.phase.is_final:
        # One that cannot be read stays for the version that can.
        if not _has_published_end(job) and found.reason != STATUS_UNREADABLE:
            # An end that only the pod tells of is lost with the pod.
            job.write_status(found, submission.uid, submission.owner)
    else:
        # Also where nobody waits for it: a master that ends later than its pod may publish once
        # more, and only what was asked tells then how the job has ended.
        was_asked = job.ask(cancelled=True).cancelled
        if timeout_s > 0 and not was_asked:
            _await_master(job, started_s, timeout_s / 2, on_wait)
        if submission.owner is not None:
            # Or the pod of the master is made again as soon as it is gone.
            _publish_cancelled(job, found, submission)
    end_pods(job, started_s, timeout_s, on_wait)
    if not found.phase.is_final:
        _publish_cancelled(job, found, submission)
    _keep_ends_of_workers(job, submission)
    job.delete_belongings()


def _has_published_end(job: JobObjects) -> bool:
    published = job.published()
    return published is not None and published.phase.is_final


def _publish_cancelled(job: JobObjects, found: JobStatus, submission: Submission) -> None:
    """Tell the end where the master has not."""
    published = job.published() or found
    if not published.phase.is_final:
        cancelled = _cancelled(published, found, job.cluster.now_s())
        job.write_status(cancelled, submission.uid, submission.owner)


def _keep_ends_of_workers(job: JobObjects, submission: Submission) -> None:
    """Have nobody look for their pods again: a master that is asked to end waits for none."""
    published = job.published()
    if published is not None and needs_pods(published):
        seen = with_seen_workers(published, job.pods())
        job.write_status(seen, submission.uid, submission.owner)


def _cancelled(published: JobStatus, found: JobStatus, now_s: float) -> JobStatus:
    """What the master told last, ended; what it may never have told is known from the job."""
    return published.entering(
        JobPhase.CANCELLED,
        "Cancelled",
        "cancelled by its user",
        workers=(),
        ended_s=now_s,
        submitted_s=found.submitted_s,
        desired_workers=found.desired_workers,
    )


def end_pods(
    job: JobObjects,
    started_s: float,
    timeout_s: float,
    on_wait: Callable[[str], None] = unheard,
) -> None:
    """Delete all pods of a job and wait until they are gone.

    Raises:
        StillAliveError: A pod was still there `timeout_s` after `started_s`.
    """
    grace_s = min(TERM_GRACE_S, timeout_s / 4)
    deadline_s = max(started_s + timeout_s, time.monotonic() + SETTLE_S)
    _delete(job, job.pods(), grace_s)
    if _await(started_s + 0.75 * timeout_s, lambda: _clear(job, on_wait)):
        return
    # Meanwhile the master may have started another worker.
    _delete(job, job.pods(), HURRY_GRACE_S if timeout_s > 0 else 0.0)
    if _await(deadline_s, lambda: _clear(job, on_wait)):
        return
    left = ", ".join(
        f"{pod['metadata']['name']} (node {pod['spec'].get('nodeName', 'none')})"
        for pod in job.pods()
    )
    raise StillAliveError(
        f"pods of job {job.job_name!r} were there after {timeout_s:g} s: {left}: try again with a "
        "longer --timeout, or where a node is lost for good with --timeout 0"
    )


def _delete(job: JobObjects, pods: Sequence[Manifest], grace_s: float) -> None:
    # The master goes first, so that it starts nothing new for what ends.
    for pod in sorted(pods, key=lambda pod: role_of(pod) != MASTER):
        job.delete(PODS, pod["metadata"]["name"], grace_s if states.has_run(pod) else 0.0)
    _leave_queue(job, pods)


def _leave_queue(job: JobObjects, pods: Sequence[Manifest]) -> None:
    """Have Kueue let go of groups whose pods are deleted, and will not be replaced."""
    for name in groups_among(pods):
        end_group(job.cluster, job.namespace, name)


def _clear(job: JobObjects, on_wait: Callable[[str], None]) -> bool:
    """Forget the deleted pods that have ended; whether the job has no pod any more."""
    pods = job.pods()
    for pod in pods:
        if states.is_over(pod):
            # Its node drops it with its next clean-up: seen to take 15 s, or a minute if it has
            # ended just when it was deleted.
            # Only this one: another of its name may have been started since.
            job.delete(PODS, pod["metadata"]["name"], 0.0, pod["metadata"]["uid"])
    names = sorted(pod["metadata"]["name"] for pod in pods)
    if names:
        on_wait(f"{', '.join(names)} to be gone")
    return not names


def _has_left(job: JobObjects, on_wait: Callable[[str], None]) -> bool:
    """Whether the master has published the end, or cannot."""
    on_wait("its master to tell its end")
    master = job.find_master()
    if master is None or states.is_deleted(master):
        return True
    if "running" not in states.own_state(master):
        return True
    return job.status().phase.is_final


def _await_master(
    job: JobObjects, started_s: float, patience_s: float, on_wait: Callable[[str], None]
) -> None:
    while not _has_left(job, on_wait):
        waited_s = time.monotonic() - started_s
        if waited_s >= patience_s or (waited_s >= MASTER_S and not _keeps_version(job)):
            return
        time.sleep(POLL_S)


def _keeps_version(job: JobObjects) -> bool:
    published = job.published()
    return published is not None and published.reason == KEEPING


def _await(deadline_s: float, is_so: Callable[[], bool]) -> bool:
    while not is_so():
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(POLL_S)
    return True


def forget_job(job: JobObjects) -> None:
    """Delete the pods, the belongings, the status and last the record of a job that has ended.

    What a resource was made into goes with the resource, which is deleted first.

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
    owner = submission_of(record).owner
    if owner is not None:
        job.delete_resource(owner)
    for pod in pods:
        grace_s = TERM_GRACE_S if states.may_run(pod) else 0.0
        job.delete(PODS, pod["metadata"]["name"], grace_s, pod["metadata"]["uid"])
    _leave_queue(job, pods)
    # Whoever submits the job again takes its record first, and with it the names of all the rest.
    version = record["metadata"]["resourceVersion"]
    there = job.find_record()
    if there is not None and there["metadata"]["resourceVersion"] != version:
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
    # A TensorBoard only shows what the others did.
    return (
        role_of(pod) in ROLES and states.may_run(pod) and "terminated" not in states.own_state(pod)
    )


def _is_taken(job: JobObjects) -> JobExistsError:
    return JobExistsError(
        f"job {job.job_name!r} is being submitted by somebody else at this moment: see "
        f"`elastic status {job.job_name} -n {job.namespace}`"
    )
