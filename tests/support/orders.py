"""Ledgers of training records, and the records that they hand out."""

from elastic.policy.tasks.epochs import OrderForm, RecordOrder, Shuffle
from elastic.policy.tasks.ledger import LedgerConfig, NoTask
from elastic.policy.tasks.ledger_kinds import TaskCut, TrainingLedger
from elastic.policy.tasks.records import Places, Shard


def made_ledger(
    num_records, config, minibatch_size=1, shuffle=Shuffle.RECORDS, seed=0, num_workers=1, **cut
):
    """A ledger of one file, cut as `config` has it."""
    places = Places([Shard("data", 0, num_records)])
    form = OrderForm(shuffle, chunk=config.records_per_task)
    order = RecordOrder(num_records, seed, form)
    task_cut = TaskCut(config.records_per_task, minibatch_size, num_workers, **cut)
    return TrainingLedger(places, order, task_cut, config, seed)


def make_ledger(num_records, records_per_task=4, num_epochs=1, **settings):
    """The same, with the most usual numbers."""
    return made_ledger(num_records, LedgerConfig(records_per_task, num_epochs), **settings)


def records_of(task):
    """The indices of a task's records, in their order."""
    return task.picks.indices.tolist()


def finish(ledger, task):
    """Count all of a task; gives the audit where that ends the epoch."""
    staged = ledger.stage(task.task_id, task.attempt, task.records.start, task.records.end)
    return ledger.commit([staged])


def epoch_of(ledger):
    """The records of the epoch under way, in their order."""
    return [record for task in tasks_of(ledger) for record in task]


def tasks_of(ledger):
    """The same, task by task."""
    epoch, tasks = ledger.epoch, []
    while ledger.epoch == epoch and not isinstance(task := ledger.lease("w"), NoTask):
        tasks.append(records_of(task))
        finish(ledger, task)
    return tasks
