"""Telling people what a command waits for, once that takes its time."""

import time
from collections.abc import Callable
from typing import Final

import click

PATIENCE_S: Final = 1.0
"""What is over sooner needs no explanation."""


class WaitNotes:
    """Says on standard error what is waited for, each time that it is something else."""

    def __init__(self, job_name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._job_name = job_name
        self._clock = clock
        self._began_s = clock()
        self._last = ""

    def __call__(self, what: str) -> None:
        """Wait for `what`, as of now."""
        if what == self._last or self._clock() - self._began_s < PATIENCE_S:
            return
        self._last = what
        click.echo(f"job {self._job_name}: waits for {what}", err=True)
