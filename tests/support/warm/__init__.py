"""Local jobs whose processes are forked from one that has imported their framework already.

Starting Python with torch takes some two seconds of a core, with TensorFlow four, and a job is
three processes and more. What a test says about jobs that are broken is the same where they begin
as a copy of a process that is ready; what they begin with otherwise is what tests of the command
line and of the supervisor are about, which start them as users do.

Commands are run so as well, by `run`: where a test is about what they say and about the jobs that
they start, and not about how they begin.
"""

import atexit
import functools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from elastic.errors import PlatformError
from elastic.platforms.local import supervisor

PARENT = Path(__file__).with_name("parent.py")
START_VARIABLE = "ELASTIC_TEST_START"
"""`cold` has every process of every job start as users' do."""

ROOM_VARIABLE = "ELASTIC_TEST_ROOM"
ROOM_BYTES = 32_768

MAX_REQUEST_BYTES = 1 << 20
COMMAND_TIMEOUT_S = 600.0


def start_supervisor(spec, directory):
    """Start a supervisor of the job, whose processes have the framework that its module imports."""
    if os.environ.get(START_VARIABLE) == "cold":
        return supervisor.start_supervisor(directory)
    module = spec.model_def.split(".")[:-1]
    text = Path(spec.model_zoo, *module).with_suffix(".py").read_text()
    uses_keras = re.search(r"^(import|from) (keras|tensorflow)\b", text, re.MULTILINE)
    return _parent("keras" if uses_keras else "torch").start_supervisor(directory)


def run(arguments, folder, environment, framework="torch"):
    """Run `python ARGUMENTS` in a folder, forked from a process that has a framework, and so are
    the processes of the jobs that it starts. Not for what asks a cluster: modules that read the
    environment while they are imported, as Kubernetes' client does, have read another.

    Args:
        arguments: `-m MODULE`, `-c PROGRAM` or the path of a script, and what these are given.
        folder: Where it runs.
        environment: All of its environment.
        framework: That of its jobs, `torch` or `keras`.

    Returns:
        What `subprocess.run` does, with the output as text.
    """
    arguments, folder = list(map(str, arguments)), str(folder)
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        if os.environ.get(START_VARIABLE) == "cold":
            code = subprocess.run(
                [sys.executable, *arguments], cwd=folder, env=environment, stdout=output,
                stderr=errors, timeout=COMMAND_TIMEOUT_S, check=False,
            ).returncode  # fmt: skip
        else:
            request = {"arguments": arguments, "folder": folder, "environment": environment}
            code = _parent(framework).run(request, [output.fileno(), errors.fileno()])
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(arguments, code, output.read(), errors.read())


def ask_for_supervisor(connection, directory):
    """As `elastic.platforms.local.supervisor.start_supervisor`, by who is at the other end."""
    environment = supervisor.supervisor_environment(directory.submission())
    request = {"job_dir": str(directory.path), "environment": environment}
    connection.send(json.dumps(request).encode())
    code = connection.recv(64)
    if code != b"0":
        raise PlatformError(f"a warm supervisor ended with {code}: {directory.path}")


@functools.cache
def _parent(framework):
    return WarmParent(framework)


class WarmParent:
    """A process that has imported a framework; one for all tests of this process."""

    def __init__(self, framework):
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # A process can write over the environment that it was started with, but not enlarge it.
        # One thread each: threads that wait for work are not there after a fork.
        ours = {ROOM_VARIABLE: "." * ROOM_BYTES, "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(PARENT), str(theirs.fileno()), framework],
            env=os.environ | ours | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        atexit.register(self._close)

    def start_supervisor(self, directory):
        """As `elastic.platforms.local.supervisor.start_supervisor`."""
        ask_for_supervisor(self._connection, directory)

    def run(self, request, descriptors):
        """Have a command run, and return its exit code."""
        socket.send_fds(self._connection, [json.dumps(request).encode()], descriptors)
        self._connection.settimeout(COMMAND_TIMEOUT_S)
        try:
            return int(self._connection.recv(64))
        except TimeoutError:
            # What it is at now, it would tell whoever asks next.
            self._close()
            _parent.cache_clear()
            raise
        finally:
            self._connection.settimeout(None)

    def _close(self):
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._connection.close()
