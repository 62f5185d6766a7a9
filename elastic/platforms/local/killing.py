"""Ends all processes of a job: by asking its master, then by signals, then by force."""

import logging
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from elastic.errors import PlatformError
from elastic.platforms.base import StillAliveError, unheard
from elastic.platforms.local.directory import JobDirectory
from elastic.platforms.local.processes import Member, find_members, is_stopped, signal_members
from elastic.platforms.local.supervisor import publish_end
from elastic.policy.masters import CANCEL, KEEPING
from elastic.spec.roles import MASTER
from elastic.spec.status import JobPhase, JobStatus

logger = logging.getLogger(__name__)

POLL_S: Final = 0.05
MASTER_S: Final = 15.0
"""What a master gets that does not say that it keeps its newest version: one that hears nothing
should not use up a patient caller."""
TERM_GRACE_S: Final = 5.0
FORCE_TIMEOUT_S: Final = 1.0
"""Even a hurried caller waits this long for SIGKILL to take effect."""


class _Watch:
    """Looks at the processes of a submission until each has really ended.

    A dying process shows no environment once it gives its memory back, but keeps its files, ports
    and locks a while longer, so whoever was seen is waited for by a descriptor.
    """

    def __init__(self, uid: str, on_wait: Callable[[str], None]) -> None:
        self._uid = uid
        self._on_wait = on_wait
        self._descriptors: dict[int, int] = {}

    def members(self) -> list[Member]:
        """Those that are there now."""
        members = find_members(self._uid)
        for pid in {member.pid for member in members} - self._descriptors.keys():
            with suppress(ProcessLookupError):
                self._descriptors[pid] = os.pidfd_open(pid)
        return members

    def has_ended(self) -> bool:
        """Whether nobody is there and everybody seen before is gone."""
        poll = select.poll()
        for descriptor in self._descriptors.values():
            poll.register(descriptor, select.POLLIN)
        members = self.members()
        if members:
            self._on_wait(f"{_names(members)} to end")
        return not members and len(poll.poll(0)) == len(self._descriptors)

    def close(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)


def _names(members: Sequence[Member]) -> str:
    """`master-0, worker-0 and its supervisor`; of what they started themselves, nothing."""
    replicas = sorted({member.replica.name for member in members if member.replica})
    supervisor = ["its supervisor"] if any(m.replica is None for m in members) else []
    return " and ".join(filter(None, [", ".join(replicas), *supervisor]))


@contextmanager
def _watch(uid: str, on_wait: Callable[[str], None] = unheard) -> Iterator[_Watch]:
    watch = _Watch(uid, on_wait)
    try:
        yield watch
    finally:
        watch.close()


def kill_job(
    directory: JobDirectory, timeout_s: float, on_wait: Callable[[str], None] = unheard
) -> None:
    """Cancel a job and wait until none of its processes is left.

    At most half of the time is the master's, to keep its newest version, to publish the end and to
    take leave of its workers; then comes SIGTERM, and with the last quarter SIGKILL. A job that has
    not trained yet has nothing to keep, and a master that imports a framework hears no request.

    Raises:
        StillAliveError: Something was still alive after `timeout_s`.
    """
    now_s = time.monotonic()
    submission = directory.submission()
    if submission is not None:
        with _watch(submission.uid, on_wait) as watch:
            if not watch.has_ended():
                _ask(directory)
                if _has_trained(directory):
                    _await_clean_end(directory, watch, now_s, timeout_s / 2)
                signal_members(watch.members(), signal.SIGTERM)
                term_grace_s = min(TERM_GRACE_S, timeout_s / 4)
                _await_end(watch, time.monotonic() + term_grace_s)
            _force(watch, directory, now_s, timeout_s)
    # One that cannot be read, and is not damaged, may tell an end that must not be overwritten.
    status = directory.sound_status()
    if status is None or not status.phase.is_final:
        publish_end(directory, status, CANCEL)


def readable_status(directory: JobDirectory) -> JobStatus | None:
    """What was published; None also where it cannot be read, which must keep no process alive."""
    try:
        return directory.status()
    except PlatformError:
        return None


def _force(watch: _Watch, directory: JobDirectory, started_s: float, timeout_s: float) -> None:
    deadline_s = max(started_s + timeout_s, time.monotonic() + FORCE_TIMEOUT_S)
    if not _end_members(watch, deadline_s):
        left = ", ".join(str(member.pid) for member in watch.members())
        raise StillAliveError(
            f"processes of {directory.path.name!r} were alive after {timeout_s:g} s: {left}: "
            "try again with a longer timeout"
        )


def end_members(uid: str, deadline_s: float) -> bool:
    """SIGKILL all that carry the uid until none is left; False where some outlived `deadline_s`."""
    with _watch(uid) as watch:
        return _end_members(watch, deadline_s)


def _end_members(watch: _Watch, deadline_s: float) -> bool:
    quiet_looks = 0
    # A process that is just being replaced by exec shows no environment, so one look may miss it.
    while quiet_looks < 2:
        has_ended = watch.has_ended()
        quiet_looks = quiet_looks + 1 if has_ended else 0
        if not has_ended and time.monotonic() > deadline_s:
            return False
        members = watch.members()
        # The supervisor goes first, so that it starts nothing new for what dies.
        signal_members([m for m in members if m.replica is None], signal.SIGKILL)
        signal_members([m for m in members if m.replica is not None], signal.SIGKILL)
        time.sleep(0.01)
    return True


def _ask(directory: JobDirectory) -> None:
    try:
        directory.write_cancelled()
    except PlatformError as error:
        # The disk is full, so nobody can be asked; signals need no room.
        logger.warning("%s", error)
    directory.master_bell.ring()
    directory.supervisor_bell.ring()


def _has_trained(directory: JobDirectory) -> bool:
    status = readable_status(directory)
    return status is not None and status.phase not in (JobPhase.PENDING, JobPhase.STARTING)


def hurry(directory: JobDirectory) -> None:
    """Have a job whose end was asked for before end at once: nobody waits for its last version."""
    submission = directory.submission()
    if submission is not None and directory.is_cancelled():
        signal_members(find_members(submission.uid), signal.SIGTERM)


def _keeps_version(directory: JobDirectory) -> bool:
    status = readable_status(directory)
    return status is not None and status.reason == KEEPING


def _await_clean_end(
    directory: JobDirectory, watch: _Watch, started_s: float, patience_s: float
) -> None:
    while not watch.has_ended():
        waited_s = time.monotonic() - started_s
        if waited_s >= patience_s or (waited_s >= MASTER_S and not _keeps_version(directory)):
            return
        if not directory.is_cancelled() or not _can_end_itself(watch.members()):
            return
        time.sleep(POLL_S)


def _can_end_itself(members: list[Member]) -> bool:
    """Whether a supervisor or a master is there, either of which ends the rest, and none halts."""
    deciders = [m for m in members if m.replica is None or m.replica.role == MASTER]
    return bool(deciders) and not any(is_stopped(m.pid) for m in deciders)


def _await_end(watch: _Watch, deadline_s: float) -> None:
    while time.monotonic() < deadline_s and not watch.has_ended():
        time.sleep(POLL_S)
