"""Has each interpreter that a test starts tell when it starts, and when it imports.

Python imports a module of this name at its start where a folder of PYTHONPATH holds one;
`support.time_by_cause` puts this folder there.
"""

import os
import sys
import time

NEAR_S = 0.5
"""Looks for modules that are no further apart belong to one import."""
TOLD_EACH_S = 0.05


class ImportTeller:
    """A finder of modules that finds none, and appends to a file when it is asked: lines of two
    times, since the epoch, between which modules were looked for.

    Not a wrapper of the import: that would be seen in the tracebacks of whatever is imported.
    """

    def __init__(self, path, began_s=None):
        self._path = path
        self._told_s = time.time() if began_s is None else began_s

    def find_spec(self, name, path=None, target=None):
        now_s = time.time()
        if now_s - self._told_s > NEAR_S:
            self._told_s = now_s
        elif now_s - self._told_s > TOLD_EACH_S:
            self._tell(now_s)

    def _tell(self, now_s):
        line = f"{self._told_s:.3f} {now_s:.3f}\n".encode()
        self._told_s = now_s
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        except OSError:
            # The test is over, and a process that it left behind goes on.
            return
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)


def _process_began_s():
    with open("/proc/self/stat") as file:  # noqa: PTH123 - pathlib costs each start
        fields = file.read().rpartition(")")[2].split()
    up_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.time() - (up_s - int(fields[19]) / os.sysconf("SC_CLK_TCK"))


if __name__ == "sitecustomize" and (_path := os.environ.get("ELASTIC_TEST_STARTS")):
    sys.meta_path.insert(0, ImportTeller(_path, _process_began_s()))
