"""Who of a job is there, asked from outside, and what became of the workers of one that has ended.

The master's last word is older than their end, so what is seen of the processes counts.
"""

import time
from collections.abc import Collection, Sequence
from typing import Final

from elastic.platforms.local.directory import JobDirectory
from elastic.platforms.local.processes import Member, find_members
from elastic.policy.replicas import Replica, ReplicaId, ReplicaPhase, exit_text, told_id, told_phase
from elastic.spec.roles import MASTER
from elastic.spec.status import JobPhase, JobStatus, WorkerStatus

ENDING: Final = "Ending"
"""The phase of a worker that is alive though its job has ended: it is about to be ended too."""


def members_of(directory: JobDirectory) -> list[Member]:
    """All live processes of the job's last submission."""
    submission = directory.submission()
    return [] if submission is None else find_members(submission.uid)


def has_supervisor(directory: JobDirectory) -> bool:
    """Whether somebody supervises the job."""
    return directory.supervisor_lock.is_held()


def has_master(directory: JobDirectory) -> bool:
    """Whether a master is alive, with or without a supervisor."""
    return any(
        member.is_leader and member.replica is not None and member.replica.role == MASTER
        for member in members_of(directory)
    )


def has_left(directory: JobDirectory, timeout_s: float) -> bool:
    """Whether nobody of a job is there, or within a while is not there any more."""
    deadline_s = time.monotonic() + timeout_s
    while has_supervisor(directory) or has_master(directory) or members_of(directory):
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(0.02)
    return True


def with_seen_workers(directory: JobDirectory, status: JobStatus) -> JobStatus:
    """The same status, its workers as they are seen now instead of as the master saw them."""
    if not status.workers:
        return status
    # Alive first: one that ends in between is then found among the ended, and not nowhere.
    alive = {member.replica for member in members_of(directory) if member.is_leader}
    workers = seen_workers(
        status.workers,
        [observed.replica for observed in directory.observed()],
        {replica for replica in alive if replica is not None},
        status.phase,
    )
    return status.model_copy(update={"workers": workers})


def seen_workers(
    told: Sequence[WorkerStatus],
    observed: Sequence[Replica],
    alive: Collection[ReplicaId],
    job_phase: JobPhase,
) -> tuple[WorkerStatus, ...]:
    """Correct what the master told of its workers by what its supervisor and the system saw.

    Args:
        alive: Launches whose process is there.
        job_phase: Of the job: where it has ended, whoever is alive is about to end.
    """
    is_done = job_phase is JobPhase.SUCCEEDED
    ended = {replica.id: replica for replica in observed if replica.phase.is_final}

    def seen(worker: WorkerStatus) -> WorkerStatus:
        replica_id = told_id(worker)
        if replica_id in ended:
            replica = ended[replica_id]
            # The master knows whom it asked to end.
            is_needed = not is_done and worker.phase != ReplicaPhase.SUCCEEDED
            phase = told_phase(replica, is_needed=is_needed)
            how = {"phase": str(phase), "last_exit": exit_text(replica)}
        elif replica_id in alive:
            return worker.model_copy(update={"phase": ENDING}) if job_phase.is_final else worker
        elif worker.phase in (ReplicaPhase.SUCCEEDED, ReplicaPhase.FAILED):
            how = {}
        elif worker.phase == ReplicaPhase.PENDING:
            unneeded = ReplicaPhase.SUCCEEDED if is_done else ReplicaPhase.FAILED
            how = {"phase": str(unneeded), "last_exit": "was not started"}
        else:
            how = {
                "phase": str(ReplicaPhase.FAILED),
                "last_exit": "ended after its supervisor, so nobody saw how",
            }
        return worker.model_copy(update=how | {"pid": None, "samples_per_s": 0.0, "message": ""})

    return tuple(map(seen, told))
