"""How long training goes on: the updates a job will have, and what ends it before."""

from dataclasses import dataclass


def minibatches_of_epoch(num_records: int, minibatch_size: int, drop_last: bool) -> int:
    """Gradients of one epoch, of which only the last is of fewer records, or is left out."""
    num_whole, rest = divmod(num_records, minibatch_size)
    return num_whole + (rest > 0 and not drop_last)


def updates_of_job(
    num_minibatches: int, num_epochs: int, gradients_per_update: int, max_steps: int
) -> int:
    """Updates that a job makes of its gradients; the last group of an epoch may be a partial one.

    Args:
        num_minibatches: Of an epoch.
        num_epochs: Of the job.
        gradients_per_update: In a whole group; 1 where each is applied as it comes.
        max_steps: Updates after which training ends at the latest; 0 for no such end.
    """
    num_updates = num_epochs * -(-num_minibatches // gradients_per_update)
    return min(num_updates, max_steps) if max_steps else num_updates


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
