"""The command's help, against the import of what the command line is made with."""

import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from benchmarks.measure import Bar, Ratio, Series, take_turns
from benchmarks.processes import ROOT
from benchmarks.sizes import Size

BAR: Final = Bar(first=3.0, goal=2.0, is_ceiling=True)


def run(size: Size) -> list[Ratio]:
    """One ratio: seconds of two processes."""
    command, click = take_turns(
        size.rounds,
        partial(_seconds, ["-m", "elastic.cli", "--help"]),
        partial(_seconds, ["-c", "import click"]),
    )
    return [
        Ratio(
            "elastic --help",
            Series("elastic --help", "s", command),
            Series("python -c 'import click'", "s", click),
            BAR,
        )
    ]


def _seconds(arguments: Sequence[str]) -> float:
    began_s = time.perf_counter()
    subprocess.run([sys.executable, *arguments], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began_s
