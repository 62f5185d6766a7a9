"""How many records a task has: enough work for every worker, and an end that none waits for."""

from typing import Final

LEAST_RECORDS: Final = 1000
"""Of a task, where there are enough: what is done once for each is then small beside them."""

LEAST_MINIBATCHES: Final = 8
"""The same where minibatches are large: what is done once for a task is shared by their steps."""

_TASKS_PER_WORKER: Final = 8
"""In an epoch, at least: who is slower than others then gets fewer of them."""

MAX_RECORDS: Final = 1 << 16
"""A task names each of its records in one message."""


def default_records_per_task(
    num_records: int, minibatch_size: int, num_workers: int, window: int = 0
) -> int:
    """The records of a task where the user names no number.

    Args:
        num_records: Of an epoch.
        minibatch_size: Records of a gradient.
        num_workers: The most that there may be.
        window: Records that are read together, in whatever order; 0 where that is each by itself.
            Tasks of a few windows have them read by one worker and not by all.

    Returns:
        A multiple of the minibatch, >= 1 of them.
    """
    fair = num_records // (_TASKS_PER_WORKER * max(1, num_workers))
    least = max(LEAST_RECORDS, LEAST_MINIBATCHES * minibatch_size, 4 * window)
    return whole_minibatches(min(fair, least), minibatch_size)


def whole_minibatches(num_records: int, minibatch_size: int) -> int:
    """The multiple of the minibatch that is at most so many records, and at least one minibatch."""
    num_records = min(num_records, max(MAX_RECORDS, minibatch_size))
    return max(1, num_records // minibatch_size) * minibatch_size


def cut_tasks(
    num_records: int, records_per_task: int, minibatch_size: int, num_workers: int
) -> list[int]:
    """Where the tasks of an epoch begin.

    Args:
        num_records: Of an epoch.
        records_per_task: At most, a multiple of `minibatch_size`.
        minibatch_size: Records of a gradient.
        num_workers: The most that there may be, where tasks become smaller towards the end of an
            epoch: the last ones are single minibatches, so that no worker waits longer for another
            one's. With 1 they do not.
    """
    starts, at = [], 0
    while at < num_records:
        starts.append(at)
        size = records_per_task
        if num_workers > 1:
            share = -(-(num_records - at) // (2 * num_workers))
            size = min(size, whole_minibatches(share, minibatch_size))
        at += size
    return starts


def idle_workers(num_tasks: int, num_minibatches: int, num_workers: int) -> str | None:
    """Say that some workers can have no work, and what would give it to them; None if all can.

    Args:
        num_tasks: Of an epoch.
        num_minibatches: Of an epoch.
        num_workers: The most that there may be.
    """
    if num_tasks >= num_workers:
        return None
    idle = num_workers - num_tasks
    of_all = f"{idle} of {num_workers} workers can have no work"
    if num_minibatches < num_workers:
        what = f"an epoch has {_count(num_minibatches, 'minibatch', 'minibatches')}"
        return f"{what}, so {of_all}: lower --num_workers, or --minibatch_size"
    what = f"an epoch has {_count(num_tasks, 'task', 'tasks')}"
    return f"{what}, so {of_all}: leave --records_per_task out, or lower it"


def _count(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}"
