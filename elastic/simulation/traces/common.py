"""What the readers of traces share: recorded jobs, and how they become jobs of a workload. Pure."""

import csv
import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from elastic.errors import DescriptionError
from elastic.policy.cluster import Amounts, Group, Job, JobPhase, Rules, Share
from elastic.simulation.workload import Amdahl, Constant, Speed, Submission, Tells, Work, Workload

KIND: Final = "ElasticTrainJob"
"""What recorded jobs are taken for where nothing else is said."""


@dataclass(frozen=True, slots=True)
class Elasticity:
    """What is assumed of jobs whose trace says nothing of other sizes than the one they had.

    Attributes:
        least: The fewest workers, as a part of those recorded, above 0 and up to 1.
        most: The most, as a multiple of those recorded, at least 1.
        serial: The part of one worker's time that others do not shorten, 0 to 1.
        tells: What the jobs tell of themselves.
    """

    least: float = 1.0
    most: float = 1.0
    serial: float = 0.0
    tells: Tells = Tells.NOTHING

    def range(self, workers: int) -> tuple[int, int]:
        """The fewest and the most workers of a job that had so many."""
        return max(1, math.ceil(workers * self.least)), max(1, math.floor(workers * self.most))


@dataclass(frozen=True, slots=True)
class Recorded:
    """A job as a trace has it.

    Attributes:
        duration_s: How long it ran, with all of its workers.
        requests: Of each worker.
        speed: By size, where the trace knows it.
        holds: Whether it ran until somebody ended it, and is not done earlier by more workers.
    """

    name: str
    submitted_s: float
    duration_s: float
    workers: int
    requests: Amounts
    share: Share | None = None
    rules: Rules = field(default_factory=Rules)
    ps: Group | None = None
    others: tuple[Group, ...] = ()
    speed: Speed | None = None
    holds: bool = False

    def submission(self, elasticity: Elasticity) -> Submission:
        """As a job of a workload."""
        low, high = (self.workers, self.workers) if self.holds else elasticity.range(self.workers)
        workers = Group(
            low,
            high,
            0,
            self.requests,
            self.requests,
            rules=self.rules,
            share=self.share,
            asked=self.workers,
        )
        job = Job(
            self.name, "trace", KIND, workers, self.submitted_s, JobPhase.WAITING,
            ps=self.ps, others=self.others, waiting_since_s=self.submitted_s,
        )  # fmt: skip
        if self.holds:
            return Submission(job, Work(self.duration_s, Constant()))
        speed = self.speed or Amdahl(elasticity.serial)
        return Submission(job, Work(self.duration_s, speed, elasticity.tells))


def workload_of(recorded: list[Recorded], elasticity: Elasticity, name: str) -> Workload:
    """All jobs of a trace that ran, from the moment on at which the first was submitted.

    Raises:
        DescriptionError: None ran.
    """
    if not recorded:
        raise DescriptionError(f"{name} has no job that ran: there is nothing to simulate")
    return Workload.of([each.submission(elasticity) for each in recorded])


class Row:
    """A line of a CSV file, whose cells are read as numbers, or refused by line and column."""

    def __init__(self, cells: Mapping[str, str | None], where: str) -> None:
        self._cells, self._where = cells, where

    def text(self, column: str) -> str:
        """A cell as it is; empty where there is none."""
        return (self._cells.get(column) or "").strip()

    def number(self, column: str) -> float:
        """A cell that has to be a number.

        Raises:
            DescriptionError: It is none.
        """
        text = self.text(column)
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise DescriptionError(f"{self._where}: {column}={text!r} is no number")
        return number

    def number_or(self, column: str, otherwise: float) -> float:
        """The same, for a cell that may be empty."""
        return self.number(column) if self.text(column) else otherwise

    def moment_s(self, column: str) -> float:
        """A cell such as `2020-06-09 18:41:01`, in seconds.

        Raises:
            DescriptionError: It is no moment.
        """
        return moment_s(self.text(column), f"{self._where}: {column}")


def rows(text: str, name: str, columns: tuple[str, ...] = ()) -> Iterator[Row]:
    """The lines of a CSV file.

    Args:
        text: All of it.
        name: Of the file, for errors.
        columns: Their names, where the file does not begin with them.
    """
    reader = csv.DictReader(io.StringIO(text), fieldnames=columns or None)
    for cells in reader:
        yield Row(cells, f"{name}, line {reader.line_num}")


def moment_s(text: str, where: str) -> float:
    """A moment in seconds; only differences mean something, since traces tell no time zone.

    Raises:
        DescriptionError: It is none.
    """
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError as error:
        raise DescriptionError(
            f"{where}: {text!r} is no moment such as 2020-06-09 18:41:01"
        ) from error
