"""Holds the workers of a job where a test wants them, and lets them go on.

Steps are counted by each process or thread that works, from 1; how many each worker index may
take is 0 at first. The models that wait are in `support/zoo`.
"""

from pathlib import Path


class Gate:
    """A folder that the held models look into; leaving the context opens it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def __enter__(self) -> "Gate":
        return self

    def __exit__(self, *_):
        self.open()

    @property
    def is_open(self) -> bool:
        return (self.folder / "open").exists()

    def open(self) -> None:
        """Let everybody through from now on."""
        (self.folder / "open").touch()

    def allow(self, worker: int, num_steps: int, launch: int | None = None) -> None:
        """Let a launch of a worker, or each that nothing else is said of, take so many steps."""
        path = self.folder / _name(worker, launch)
        # Whole at any moment, since the workers read it while it is replaced.
        partial = path.with_suffix(".partial")
        partial.write_text(str(num_steps))
        partial.replace(path)

    def waits_for(self, worker: int, launch: int | None = None) -> int:
        """The step that a worker waits for just now, or 0; threads have no `launch`."""
        try:
            return int((self.folder / f"{_name(worker, launch)}.waits").read_text() or 0)
        except FileNotFoundError:
            return 0


def _name(worker: int, launch: int | None) -> str:
    return f"worker-{worker}" if launch is None else f"worker-{worker}-{launch}"
