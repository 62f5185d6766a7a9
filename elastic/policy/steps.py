"""How many updates a job will have, known before its first. Pure."""

from collections.abc import Sequence

from elastic.policy.records import Shard


def minibatches_of_epoch(
    shards: Sequence[Shard], records_per_task: int, minibatch_size: int
) -> int:
    """Gradients of one epoch, as the ledger cuts shards into tasks and workers cut tasks.

    Args:
        shards: All records.
        records_per_task: Of every task of a shard but its last.
        minibatch_size: Records of every minibatch of a task but its last.
    """
    of_whole_task = -(-records_per_task // minibatch_size)
    num_minibatches = 0
    for shard in shards:
        num_whole, rest = divmod(shard.num_records, records_per_task)
        num_minibatches += num_whole * of_whole_task - (-rest // minibatch_size)
    return num_minibatches


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
