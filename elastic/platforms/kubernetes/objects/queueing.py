"""How the pods of a job wait in a queue: of which group they are, and how they are called. Pure."""

from elastic.platforms.base import ReplicaId
from elastic.platforms.kubernetes.api.resources import Manifest, Resource
from elastic.platforms.kubernetes.objects import names
from elastic.platforms.kubernetes.objects.podspec import Job
from elastic.platforms.kubernetes.objects.queues import (
    QUEUE_LABEL,
    Gang,
    Part,
    QueueSystem,
    group_of,
    needs_own_name,
    pod_additions,
)
from elastic.spec.roles import FLEET, MASTER, ROLES


def gang_of(job: Job) -> Gang | None:
    """The job as its queue sees it; None where it waits in none.

    Its group is another one with each submission: Kueue remembers by its name that one is over.
    """
    if job.queue_system is None:
        return None
    least = sum(role.limits(job.spec).minimum for role in FLEET)
    return Gang(names.group_name(job.name, job.submission_uid), least, job.spec.queue)


def queue_labels(job: Job) -> dict[str, str]:
    """What tells people, and the queue, in which queue a job is."""
    return {} if job.queue_system is None else {QUEUE_LABEL: job.spec.queue}


def job_group(job: Job) -> tuple[Resource, Manifest] | None:
    """The object that has to be there before the first worker; None where there is none."""
    gang = gang_of(job)
    if gang is None or job.queue_system is None:
        return None
    made = group_of(job.queue_system, gang)
    if made is None:
        return None
    resource, manifest = made
    labels = job.labels | manifest["metadata"]["labels"]
    metadata = {**manifest["metadata"], "namespace": job.namespace, "labels": labels}
    return resource, {**manifest, "metadata": metadata}


def pod_name(job: Job, replica: ReplicaId) -> str:
    """The pod of a launch; those of one index have the same name wherever a queue lets them."""
    name = names.replica_pod_name(job.name, replica.role, replica.index)
    system = job.queue_system
    has_own = system is not None and needs_own_name(system, _part(job, replica))
    return f"{name}-{replica.launch}" if has_own else name


def queued(job: Job, replica: ReplicaId, pod: Manifest) -> Manifest:
    """The pod of a launch as it waits in the job's queue; the same where there is none."""
    gang = gang_of(job)
    if gang is None or job.queue_system is None:
        return pod
    new = pod_additions(job.queue_system, gang, _part(job, replica)).to(pod)
    if job.queue_system is QueueSystem.KUEUE:
        # What a pod that is in a queue controls counts as admitted with it, and waits for nothing.
        for owner in new["metadata"].get("ownerReferences") or ():
            if owner["kind"] == "Pod":
                owner["controller"] = False
    return new


def _part(job: Job, replica: ReplicaId) -> Part:
    if replica.role == MASTER:
        return Part.MASTER
    least = ROLES[replica.role].limits(job.spec).minimum
    return Part.MINIMUM if replica.index < least else Part.BEYOND
