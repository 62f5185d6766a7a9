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
        fix: What to do, or nothing.
    """

    subject: str
    outcome: Outcome
    text: str
    fix: str = ""
