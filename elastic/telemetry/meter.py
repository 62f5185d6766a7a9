"""What the master measures: values, added up between two looks at a job, and told by others.

All of the adding up runs on the master's event loop.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

STALE: Final = "stale"
"""Why a gradient was refused: it was computed on a version that is too old."""

LEASE_LOST: Final = "lease_lost"
"""Its task had been given to another worker by then."""

EVALUATION: Final = "evaluation/"
"""How the names begin of what an evaluation gives."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Point:
    """One step of the training curves.

    Attributes:
        step: The model version.
        wall_time_s: Seconds since 1970.
        values: Name, such as `train/loss`, and value.
    """

    step: int
    wall_time_s: float
    values: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Window:
    """What the gradients that were accepted since the last point had in common.

    Attributes:
        loss: Mean over their records; None where there was none.
        mean_staleness: Updates that were applied while one was computed.
    """

    loss: float | None = None
    mean_staleness: float = 0.0
    max_staleness: int = 0


@dataclass(frozen=True, slots=True)
class Counts:
    """How often things happened in all lives of a job's master. They only grow.

    Updates that are lost with the time since the last cut are applied again, and count again.

    Attributes:
        rejected: By reason, the gradients that did not count.
        exits: By reason, the ends of workers.
    """

    records_committed: int = 0
    records_computed_again: int = 0
    updates: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)
    exits: Mapping[str, int] = field(default_factory=dict)

    def plus(self, other: "Counts") -> "Counts":
        """Both together."""
        return Counts(
            self.records_committed + other.records_committed,
            self.records_computed_again + other.records_computed_again,
            self.updates + other.updates,
            _sums(self.rejected, other.rejected),
            _sums(self.exits, other.exits),
        )


@dataclass(frozen=True, slots=True)
class JobSample:
    """A job as its master sees it at one moment; what is not known yet is None or empty.

    Attributes:
        servers_lost: By role, the servers that were replaced.
    """

    counts: Counts = Counts()
    master_restarts: int = 0
    epoch: int | None = None
    model_version: int | None = None
    loss: float | None = None
    learning_rate: float | None = None
    samples_per_s: float = 0.0
    workers: Mapping[str, int] = field(default_factory=dict)
    tasks: Mapping[str, int] = field(default_factory=dict)
    evaluation: Mapping[str, float] = field(default_factory=dict)
    batch: int | None = None
    noise_scale: float | None = None
    servers_lost: Mapping[str, int] = field(default_factory=dict)


def _sums(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in sorted({*one, *other})}


def _ignore(_seconds: float) -> None:
    pass


class JobMeter:
    """Counts for as long as this life of the master; the caller knows those before it.

    Attributes:
        on_step_s: Told how long a worker took for each step.
        on_update_s: Told how long each update took to be applied.
        on_checkpoint_s: Told how long each cut took to be written.
    """

    def __init__(self) -> None:
        self.on_step_s: Callable[[float], None] = _ignore
        self.on_update_s: Callable[[float], None] = _ignore
        self.on_checkpoint_s: Callable[[float], None] = _ignore
        self._committed = 0
        self._again = 0
        self._updates = 0
        self._rejected: Counter[str] = Counter()
        self._exits: Counter[str] = Counter()
        self._loss = 0.0
        self._records = 0
        self._gradients = 0
        self._staleness = 0
        self._max_staleness = 0

    def accept(self, loss: float, records: int, staleness: int, step_s: float) -> None:
        """Count a gradient that counts."""
        self._loss += loss * records
        self._records += records
        self._gradients += 1
        self._staleness += staleness
        self._max_staleness = max(self._max_staleness, staleness)
        self.on_step_s(step_s)

    def reject(self, reason: str, records: int, step_s: float) -> None:
        """Count a gradient that does not, and what is computed again for it."""
        self._rejected[reason] += 1
        self._again += records
        self.on_step_s(step_s)

    def undo(self, records: int) -> None:
        """Count records that had counted, and are computed again since the job has gone back."""
        self._again += records

    def commit(self, records: int) -> None:
        """Count records that have counted."""
        self._committed += records

    def update(self, update_s: float) -> None:
        """Count an update."""
        self._updates += 1
        self.on_update_s(update_s)

    def exit(self, reason: str) -> None:
        """Count the end of a worker."""
        self._exits[reason] += 1

    def counts(self) -> Counts:
        """All there was in this life."""
        return Counts(
            self._committed, self._again, self._updates, dict(self._rejected), dict(self._exits)
        )

    def take_window(self) -> Window:
        """What there was since this was asked last."""
        gradients = max(self._gradients, 1)
        window = Window(
            self._loss / self._records if self._records else None,
            self._staleness / gradients,
            self._max_staleness,
        )
        self._loss, self._records, self._gradients = 0.0, 0, 0
        self._staleness = self._max_staleness = 0
        return window


_COUNTS = TypeAdapter(Counts)


class KeptCounts:
    """A small file, written before its content is told."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: Counts | None = None
        self._lock = threading.Lock()

    def load(self) -> Counts | None:
        """What was kept last; None where nothing was."""
        try:
            return _COUNTS.validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            log.warning(
                "%s cannot be read, so counters begin with the cut's: %s", self._path, error
            )
            return None

    def keep(self, counts: Counts) -> None:
        """Keep counts; a disk that takes none costs only what a restarted master begins with."""
        with self._lock:
            if counts == self._kept:
                return
            new = self._path.with_suffix(".new")
            try:
                new.write_bytes(_COUNTS.dump_json(counts))
                new.replace(self._path)
            except OSError as error:
                log.debug("%s: %s", self._path, error)
            self._kept = counts
