"""Steps that are taken back where a later one fails."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from elastic.errors import PlatformError
from elastic.platforms.kubernetes.job_objects import JobObjects

Undo: TypeAlias = list[Callable[[], object]]
"""What takes back the steps so far, first step first."""


@contextmanager
def undoing(objects: JobObjects) -> Iterator[Undo]:
    """Undo what was done so far where something fails, Ctrl-C included."""
    undo: Undo = []
    try:
        yield undo
    except BaseException as error:
        try:
            # The name is given back last: as long as something is there, `kill` must find it.
            for step in reversed(undo):
                step()
        except PlatformError as second:
            raise PlatformError(
                f"{error}; and what was created so far could not be removed ({second}): "
                f"elastic kill {objects.job_name} -n {objects.namespace} --forget"
            ) from error
        raise
