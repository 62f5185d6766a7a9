"""What a Redis does for a client in C: `redis-benchmark` or `valkey-benchmark`, where one is there.

It asks for rows of uniform ids by the keys that the bare side of `rows` has, sends commands that
are packed already, and does nothing with what comes.
"""

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from elastic.spec.values import RedisAddress

PROGRAMS: Final = ("valkey-benchmark", "redis-benchmark")
KEYS_A_COMMAND: Final = 512
"""With the longest rows a command line of 0.4 MB; systems take 2 MB."""
COMMANDS_A_STEP: Final = 13
"""Sent before an answer is waited for: as many rows as a minibatch has."""
RANDOM: Final = "__rand_int__"
"""What the program replaces by a number of as many digits."""


@dataclass(frozen=True, slots=True)
class BareRows:
    """Rows as strings of a Redis.

    Attributes:
        prefix: Of their keys.
        width: Numbers of each.
    """

    prefix: str
    num_rows: int
    width: int

    @property
    def size_bytes(self) -> int:
        """Of each."""
        return 4 * self.width

    def key(self, row_id: int | str = RANDOM) -> str:
        """The key of a row, by default of one that the program draws."""
        return f"{self.prefix}:{row_id:0>{len(RANDOM)}}"


def find_program() -> str | None:
    """The program; None where there is none on the PATH."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


def rows_read_s(program: str, at: RedisAddress, rows: BareRows, steps: int) -> float:
    """Rows a second by MGET, of so many minibatches."""
    return _rows_s(program, at, rows, steps, ["MGET", *[rows.key()] * KEYS_A_COMMAND])


def rows_moved_s(program: str, at: RedisAddress, rows: BareRows, steps: int) -> float:
    """The same of rows that are read, and then written by MSET."""
    pairs = [rows.key(), "x" * rows.size_bytes] * KEYS_A_COMMAND
    written_s = _rows_s(program, at, rows, steps, ["MSET", *pairs])
    return 1 / (1 / rows_read_s(program, at, rows, steps) + 1 / written_s)


def _rows_s(
    program: str, at: RedisAddress, rows: BareRows, steps: int, command: Sequence[str]
) -> float:
    done = subprocess.run(
        [
            *(program, "-h", at.host, "-p", str(at.port), "-a", at.password),
            *("-c", "1", "-P", str(COMMANDS_A_STEP), "-n", str(steps * COMMANDS_A_STEP)),
            *("-r", str(rows.num_rows), "--csv", *command),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    # The first figure behind the command, which is told whole.
    commands_s = float(done.stdout.splitlines()[-1].split('","')[1].rstrip('"'))
    return commands_s * KEYS_A_COMMAND
