"""Between which batches a job's master may choose."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchRange:
    """Records of one update.

    Attributes:
        minimum: The batch that the user's learning rate is for.
        maximum: The largest that the master may choose.
    """

    minimum: int
    maximum: int

    def __str__(self) -> str:
        return f"{self.minimum}:{self.maximum}"


def parse_batch_range(text: str) -> BatchRange:
    """Read `MIN:MAX`.

    Raises:
        ValueError: It is something else, or the minimum is above the maximum.
    """
    match = re.fullmatch(r"\s*(\d+)\s*:\s*(\d+)\s*", text)
    if match is None:
        raise ValueError(f"{text!r} is no range of records like 64:512")
    found = BatchRange(int(match[1]), int(match[2]))
    if found.minimum > found.maximum:
        raise ValueError(f"{text!r} has a minimum above its maximum: swap them")
    return found
