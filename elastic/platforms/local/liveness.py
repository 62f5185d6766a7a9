"""Which of a job's own processes are alive, asked from outside."""

from elastic.platforms.local.directory import JobDirectory
from elastic.platforms.local.processes import Member, find_members
from elastic.spec.roles import MASTER


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
