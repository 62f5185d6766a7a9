"""Processes of the test's cluster that are ended, and started again just as they were."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from support.cluster import KUBECONFIG

# The shell becomes the process, so what it writes down of itself stays true.
_START = """
note=$1; pause_s=$2; shift 2
sleep "$pause_s"
[ -z "$note" ] || echo "$$ $(cut -d' ' -f22 /proc/$$/stat)" >"$note"
exec "$@"
"""


@dataclass(frozen=True, slots=True)
class StartedProcess:
    """How a process was started, so that it can be again.

    Attributes:
        note: File in which whoever runs the cluster keeps the number and the birth of the process,
            for its end; empty where there is none.
    """

    arguments: tuple[str, ...]
    folder: str
    environment: dict[str, str]
    log: str
    niceness: int
    note: str

    @classmethod
    def of(cls, process):
        folder = process.cwd()
        return cls(
            tuple(process.cmdline()),
            folder if Path(folder).is_dir() else "/",
            process.environ(),
            str(Path(f"/proc/{process.pid}/fd/1").readlink()),
            process.nice(),
            _note_of(process.pid),
        )

    def start(self, after_s=0.0):
        """Have it started after some time, whatever becomes of this process until then."""
        more = self.niceness - os.nice(0)
        shell = ["sh", "-c", _START, "start", self.note, str(after_s)]
        with Path(self.log).open("ab") as log:
            subprocess.run(
                ["setsid", "--fork", "nice", "-n", str(more), *shell, *self.arguments],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                check=True,
            )


def _note_of(process_id):
    notes = Path(KUBECONFIG).parent.glob("*.pid")
    return next((str(n) for n in notes if n.read_text().split()[:1] == [str(process_id)]), "")
