"""Real local jobs with real supervisors, whose replicas are small programs."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from elastic.platforms.local.directory import JobDirectory
from elastic.platforms.local.platform import LocalPlatform
from elastic.platforms.local.processes import (
    JOB_UID_VARIABLE,
    find_members,
    signal_members,
)
from elastic.spec.job import JobSpec

PROGRAMS = Path(__file__).parents[1] / "platforms" / "local" / "programs"
TIMEOUT_S = 120.0
"""For what comes about by itself; a loaded machine needs a part of it."""


class Jobs:
    """A home of jobs; remembers every submission, so that nothing outlives its test."""

    def __init__(self, path, is_new=True):
        self.home = path / "home"
        self.behaviours = path / "behaviours"
        self.uids = set()
        self.python = path / "python"
        if not is_new:
            return
        self.behaviours.mkdir(parents=True)
        self.python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        self.python.chmod(0o755)

    def platform(self, master="idle"):
        worker = (str(self.python), str(PROGRAMS / "worker.py"), str(self.behaviours))
        return LocalPlatform(
            self.home,
            {
                "master": (sys.executable, str(PROGRAMS / "master.py"), master),
                "worker": worker,
            },
        )

    def submit(self, name="job", master="idle", **settings):
        platform = self.platform(master)
        platform.submit(self.spec(name, **settings))
        self.uids.add(self.directory(name).submission().uid)
        return platform

    def spec(self, name="job", **settings):
        required = {
            "model_zoo": Path("zoo"),
            "model_def": "a.B",
            "training_data_dir": "data",
            "minibatch_size": 1,
            "platform": "local",
        }
        return JobSpec(job_name=name, **(required | settings))

    def directory(self, name="job"):
        return JobDirectory(self.home / "jobs" / name)

    def arrange(self, replica, behaviour):
        (self.behaviours / f"{replica.name}-{replica.launch}").write_text(behaviour)

    def is_ready(self, replica):
        return (self.behaviours / f"{replica.name}-{replica.launch}.ready").exists()

    def members(self, name="job", role=None):
        members = find_members(self.directory(name).submission().uid)
        if role is None:
            return members
        if role == "supervisor":
            return [m for m in members if m.replica is None]
        return [m for m in members if m.replica and m.replica.role == role and m.is_leader]

    def pid_of(self, role, name="job"):
        """The pid of the one process of a role, waited for."""
        return eventually(lambda: self.members(name, role))[0].pid

    def start_supervisor(self, name="job", **constants):
        """Start a supervisor that has other constants, for a job that has none."""
        directory = self.directory(name)
        program = (
            "import json, sys\n"
            "from elastic.platforms.local import supervisor\n"
            "vars(supervisor).update(json.loads(sys.argv[2]))\n"
            "supervisor.main([sys.argv[1]])\n"
        )
        subprocess.run(
            [sys.executable, "-c", program, str(directory.path), json.dumps(constants)],
            env=os.environ | {JOB_UID_VARIABLE: directory.submission().uid},
            check=True,
        )

    def end_all(self):
        for uid in self.uids:
            while members := find_members(uid):
                signal_members(members, signal.SIGKILL)
                time.sleep(0.01)


@contextmanager
def unreadable(path):
    """A file or folder that cannot be looked at meanwhile; root may enter any, but no loop."""
    aside = path.with_name(f".{path.name}.aside")
    aside.symlink_to(path)
    _exchange(path, aside)
    try:
        yield
    finally:
        _exchange(path, aside)
        aside.unlink()


def _exchange(one, other):
    """Have two paths change places at once: whoever looks in between would see that one is gone."""
    of_here, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(of_here, os.fsencode(one), of_here, os.fsencode(other), exchange):
        raise OSError(ctypes.get_errno(), f"{one} and {other} cannot be exchanged")


def eventually(probe):
    """Wait until the probe gives something true, and return it."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not (found := probe()):
        assert time.monotonic() < deadline_s, "never came about"
        time.sleep(0.02)
    return found
