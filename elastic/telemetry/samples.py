"""What the master measures, as values: taken on its event loop, told by others."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

STALE: Final = "stale"
"""Why a gradient was refused: it was computed on a version that is too old."""

LEASE_LOST: Final = "lease_lost"
"""Its task had been given to another worker by then."""

EVALUATION: Final = "evaluation/"
"""How the names begin of what an evaluation gives."""


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
    """A job as its master sees it at one moment; what is not known yet is None or empty."""

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


def _sums(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in sorted({*one, *other})}
