"""What ends training before its last epoch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ending:
    """Why training ended although records were left.

    Attributes:
        reason: One word for the job's status.
        message: What happened, for people.
    """

    reason: str
    message: str


def ending_at(max_steps: int, version: int) -> Ending | None:
    """What ends training after the update to `version`; None where it goes on.

    An update is applied whole, by one gradient or by many, so that this is exact in every mode.

    Args:
        max_steps: Updates of the job; 0 for as many as its epochs have.
        version: Updates applied so far.
    """
    if max_steps == 0 or version < max_steps:
        return None
    return Ending("MaxSteps", f"training ended after {version} updates: max_steps={max_steps}")
