"""`python -P parent.py DESCRIPTOR FRAMEWORK`: imports the framework, and forks supervisors and
commands.

A supervisor that began here forks its replicas where it would start Python anew. All are processes
like any others: with their parents, groups, signals and ends, and with their own environment in
/proc, by which the processes of a job are found.
"""

import atexit
import builtins
import ctypes
import gc
import importlib
import io
import json
import logging
import os
import random
import runpy
import signal
import socket
import sys
import threading
import traceback
from functools import partial
from pathlib import Path

import numpy as np

from elastic.platforms.local import platform, supervisor
from elastic.platforms.local.directory import JobDirectory
from elastic.platforms.local.processes import ReplicaProcess, birth_of
from support import warm

COMMANDS = ["elastic.api", "elastic.cli.job_command", "elastic.cli.showing"]
COMMON = ["elastic.master.run", "elastic.worker.loop", *COMMANDS]
MODULES = {
    # The first optimizer imports torch._dynamo.
    "torch": ["torch", "torch._dynamo", "elastic.frameworks.torch.updater", *COMMON],
    "keras": ["tensorflow", "keras", "elastic.frameworks.keras.updater", *COMMON],
}
ENVIRONMENT_FIELDS = slice(47, 49)
"""Of those behind the program's name in /proc/PID/stat: where its environment begins and ends."""


def main():
    descriptor, framework = sys.argv[1:]
    for module in MODULES[framework]:
        importlib.import_module(module)
    ReplicaProcess.start = classmethod(start_forked)
    # What was made before a fork is never collected after it: descriptors would be closed that
    # are others' there.
    gc.collect()
    gc.freeze()
    connection = socket.socket(fileno=int(descriptor))
    while True:
        message, descriptors, *_ = socket.recv_fds(connection, warm.MAX_REQUEST_BYTES, 2)
        if not message:
            return
        request = json.loads(message)
        code = run_command(request, descriptors) if descriptors else start_supervisor(**request)
        connection.send(str(code).encode())


def start_supervisor(job_dir, environment):
    """Fork a supervisor, and return its code once it is at work."""
    pid = os.fork()
    if pid == 0:
        # No connection is held open by who lives on.
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        run(lambda: supervise(job_dir, environment))
    return ended(pid)


def run_command(request, descriptors):
    """Fork a command, start the supervisors that it asks for, and return its code."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        ours.close()
        run(lambda: be_command(**request, descriptors=descriptors, connection=theirs))
    theirs.close()
    for descriptor in descriptors:
        os.close(descriptor)
    with ours:
        # At its end the other side is closed: supervisors have closed theirs.
        while request := ours.recv(warm.MAX_REQUEST_BYTES):
            ours.send(str(start_supervisor(**json.loads(request))).encode())
    return ended(pid)


def ended(pid):
    """Wait for a child; its exit code as `subprocess` gives it."""
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def be_command(arguments, folder, environment, descriptors, connection):
    """Be `python ARGUMENTS`."""
    write_to(*descriptors)
    os.chdir(folder)
    become(environment)
    random.seed()
    platform.LocalPlatform = partial(
        platform.LocalPlatform, start_supervisor=partial(warm.ask_for_supervisor, connection)
    )
    match arguments:
        case "-m", module, *others:
            sys.path.insert(0, folder)
            sys.argv = [module, *others]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case "-c", program, *others:
            sys.path.insert(0, "")
            sys.argv = ["-c", *others]
            exec(program, {"__name__": "__main__", "__builtins__": builtins})
        case _:
            sys.path.insert(0, str(Path(folder, arguments[0]).parent))
            sys.argv = arguments
            runpy.run_path(arguments[0], run_name="__main__")


def supervise(job_dir, environment):
    """Be the supervisor of a job."""
    with JobDirectory(Path(job_dir)).supervisor_log_path.open("ab") as log:
        redirect(log.fileno())
    become(environment)
    return supervisor.main([job_dir])


def start_forked(cls, command, environment, log_path, header):
    """As `ReplicaProcess.start`."""
    python, *flags, module = command[:4]
    assert (python, flags) == (sys.executable, ["-P", "-m"]), command
    gc.freeze()
    with log_path.open("ab", buffering=0) as log:
        log.write(header.encode())
        pid = os.fork()
        if pid == 0:
            run(lambda: be_replica(module, command[4:], environment, log.fileno()))
    return cls(pid, birth_of(pid), os.pidfd_open(pid), Child(pid))


class Child:
    """What a `ReplicaProcess` asks of a child."""

    def __init__(self, pid):
        self.pid = pid

    def wait(self):
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)


def be_replica(module, arguments, environment, log):
    redirect(log)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE}:
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    become(environment)
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)
    random.seed()
    np.random.seed()
    if torch := sys.modules.get("torch"):
        torch.seed()
        torch.set_num_threads(1)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def redirect(log):
    """Have a session, and write to a log, as `subprocess.Popen` sees to."""
    os.setsid()
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    write_to(log, log)


def write_to(output, errors):
    """Have these files as standard output and standard error."""
    os.dup2(output, 1)
    os.dup2(errors, 2)
    for name, number in (("stdout", 1), ("stderr", 2)):
        raw = io.FileIO(number, "w", closefd=False)
        setattr(sys, name, io.TextIOWrapper(raw, write_through=True))


def become(environment):
    """Have an environment, and show it in /proc."""
    os.environ.clear()
    os.environ.update(environment)
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = map(int, fields[ENVIRONMENT_FIELDS])
    block = b"".join(f"{name}={value}\0".encode() for name, value in environment.items())
    assert len(block) <= end - begin, "the environment has become larger than its room"
    ctypes.memmove(begin, block.ljust(end - begin, b"\0"), end - begin)


def run(work):
    """End this process with what the work gives, as Python itself would end it."""
    try:
        code = work() or 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:  # noqa: BLE001 - the end of this process
        traceback.print_exc()
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    os._exit(code)


if __name__ == "__main__":
    main()
