"""How many updates a job will have, known before its first. Pure."""


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
