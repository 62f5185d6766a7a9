"""One thing that jobs need: whether it is there, and what to do where it is not."""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """What a check came to; only a failure stops jobs."""

    OK = "ok"
    WARNING = "warn"
    FAILURE = "fail"
    SKIPPED = "skip"


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of one check.

    Attributes:
        subject: What was looked at, in a word or two.
        fix: What to do; a failure always has it.
    """

    subject: str
    outcome: Outcome
    text: str
    fix: str = ""

    def __post_init__(self) -> None:
        assert self.fix or self.outcome is not Outcome.FAILURE, f"{self.subject} has no fix"
