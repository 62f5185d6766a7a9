"""Whatever happens in whatever order, an epoch that ends has counted every record once."""

import json
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from support.bounds import until
from support.orders import made_ledger

from elastic.policy.minibatches import Retry, SizeFault
from elastic.policy.tasks.epochs import Shuffle
from elastic.policy.tasks.ledger import Audit, LedgerConfig, NoTask, Refusal
from elastic.policy.updates.update_group import UpdateRule, is_update_due


class Job:
    """A job without processes: workers step, die and repeat themselves as the schedule says.

    `counts[epoch][record]` stands for the parameters: it changes only in `_apply`, and a restored
    cut sets it back together with the ledger.
    """

    def __init__(self, make_ledger, rule, minibatch_size):
        self.make_ledger = make_ledger
        self.ledger = make_ledger()
        self.rule, self.minibatch_size = rule, minibatch_size
        self.next_rule = rule
        self.counts = {}
        self.group = []
        self.leases = {}
        self.following = {}
        self.old_reports = []
        self.num_done = 0
        """Tasks that were leased and reports that were made, which come to an end."""
        self.saved = self._cut()

    def _cut(self):
        # Through JSON, as on disk.
        counts = {str(key): value for key, value in self.counts.items()}
        return json.dumps([self.ledger.snapshot(), counts])

    def do(self, event, worker):
        getattr(self, f"_{event}")(worker)
        self._apply_if_due()

    def _ask_ahead(self, worker):
        """It asks for a task to follow; again if the reply was lost."""
        if worker not in self.leases:
            return
        (working_on, _) = self.leases[worker]
        lost = self.ledger.lose_worker(worker, but=working_on.task_id)
        assert lost == [task for task in [self.following.pop(worker, None)] if task]
        self.old_reports += [(task, task.records.start, task.records.end) for task in lost]
        task = self.ledger.lease(worker)
        if not isinstance(task, NoTask):
            self.following[worker] = task

    def _step(self, worker):
        if worker not in self.leases:
            task = self.following.pop(worker, None) or self.ledger.lease(worker)
            if not isinstance(task, NoTask):
                self.leases[worker] = [task, task.records.start]
                self.num_done += 1
            return
        task, start = self.leases[worker]
        end = self._minibatch_end(task, start)
        report = (task, start, end)
        staged = self.ledger.stage(task.task_id, task.attempt, start, end)
        assert not isinstance(staged, Refusal)
        self.num_done += 1
        self.group.append(staged)
        self.old_reports.append(report)
        if end == task.records.end:
            del self.leases[worker]
        else:
            self.leases[worker][1] = end

    def _minibatch_end(self, task, start):
        size = min(self.minibatch_size, task.minibatch_size or self.minibatch_size)
        return min(start + size, task.records.end)

    def _fail(self, worker):
        """The user's code fails; a search finds a record, or that the size is to blame."""
        task, start = self.leases.pop(worker, (None, 0))
        if task is None:
            return
        end, runs_at = self._minibatch_end(task, start), 0
        if task.is_search:
            assert end == task.records.end, "one minibatch is searched"
            runs_at = (end - start) // 2 if start % 2 else 0
            end = end if runs_at else start + 1
        verdict = self.ledger.fail(task.task_id, task.attempt, start, end, runs_at)
        assert isinstance(verdict, (Retry, SizeFault))
        self.old_reports.append((task, start, end))

    def _lose(self, worker):
        self.ledger.lose_worker(worker)
        assert not self.ledger.holds_lease(worker)
        lease = self.leases.pop(worker, None)
        if lease is not None:
            task, start = lease
            self.old_reports.append((task, start, task.records.end))
        task = self.following.pop(worker, None)
        if task is not None:
            self.old_reports.append((task, task.records.start, task.records.end))

    def _release(self, worker):
        lease = self.leases.pop(worker, None)
        if lease is not None:
            assert self.ledger.release(lease[0].task_id, lease[0].attempt)

    def _late(self, worker):
        """A report of a lease that was lost or finished arrives after all."""
        active = {lease[0].task_id for lease in self.leases.values()}
        active |= {task.task_id for task in self.following.values()}
        for task, start, end in self.old_reports:
            if task.task_id not in active:
                assert isinstance(
                    self.ledger.stage(task.task_id, task.attempt, start, end), Refusal
                )

    def _duplicate(self, worker):
        """The report before the last is sent a second time."""
        if self.old_reports:
            task, start, end = self.old_reports[-1]
            lease = self.leases.get(worker)
            if lease is None or lease[0].task_id != task.task_id or lease[1] != start:
                held = [
                    *self.leases.values(),
                    *([t, t.records.start] for t in self.following.values()),
                ]
                others = [v for v in held if v[0].task_id == task.task_id]
                if not any(v[1] == start for v in others):
                    assert isinstance(
                        self.ledger.stage(task.task_id, task.attempt, start, end), Refusal
                    )

    def _resize(self, worker):
        """The groups that begin from now on are of another size."""
        self.next_rule = replace(self.rule, grads_to_wait=1 + "abcd".index(worker))

    def _save(self, worker):
        self.saved = self._cut()

    def _restore(self, worker):
        """The master dies: what happened since the last cut is gone, parameters included."""
        snapshot, counts = json.loads(self.saved)
        self.ledger = self.make_ledger()
        self.ledger.restore(snapshot)
        self.counts = {int(key): value for key, value in counts.items()}
        self.group, self.leases, self.following, self.old_reports = [], {}, {}, []

    def _apply_if_due(self):
        if not is_update_due(self.rule, len(self.group), self.ledger.only_staged_left):
            return
        epoch = self.ledger.epoch
        applied, self.group = self.group, []
        for item in applied:
            counted = self.counts.setdefault(epoch, [])
            for _, start, end in self.ledger.named(item.records, epoch):
                counted += range(start, end)
        self.ledger.commit(applied)
        self.rule = self.next_rule


EVENTS = st.tuples(
    st.sampled_from(["step"] * 6 + ["ask_ahead"] * 2)
    | st.sampled_from(["lose", "release", "late", "duplicate"])
    | st.sampled_from(["fail"] * 3)
    | st.sampled_from(["save", "restore", "resize"]),
    st.sampled_from("abcd"),
)


# In parts, which processes share, and each of which ends soon where the ledger stands still.
@pytest.mark.parametrize("part", range(4))
@settings(deadline=None)
@given(
    num_records=st.integers(1, 60),
    records_per_task=st.integers(1, 17),
    minibatch_size=st.integers(1, 9),
    grads_to_wait=st.integers(1, 4),
    is_async=st.booleans(),
    num_epochs=st.integers(1, 3),
    may_shrink=st.booleans(),
    seed=st.integers(0, 5),
    shuffle=st.sampled_from(Shuffle),
    num_workers=st.integers(1, 4),
    # Of those without a least size, most are of a few events.
    schedule=st.lists(EVENTS, min_size=40, max_size=200) | st.lists(EVENTS),
)
def test_every_record_counts_exactly_once(
    part,
    num_records,
    records_per_task,
    minibatch_size,
    grads_to_wait,
    is_async,
    num_epochs,
    may_shrink,
    seed,
    shuffle,
    num_workers,
    schedule,
):
    rule = UpdateRule(grads_to_wait=1 if is_async else grads_to_wait, is_async=is_async)
    config = LedgerConfig(
        records_per_task, num_epochs, max_task_failures=1000, may_shrink=may_shrink
    )

    def make_ledger():
        return made_ledger(num_records, config, minibatch_size, shuffle, seed, num_workers)

    job = Job(make_ledger, rule, minibatch_size)
    for event, worker in schedule:
        job.do(event, worker)
    num_rounds = 20 * num_epochs * (num_records + 1)
    for _ in until(lambda: job.ledger.is_finished, num_rounds):  # the survivors finish
        before = job.num_done
        for worker in "abcd":
            job.do("step", worker)
        assert job.num_done > before, f"nobody finds anything to do: {job.ledger.snapshot()}"
    for epoch in range(num_epochs):
        assert sorted(job.counts[epoch]) == list(range(num_records))
    assert job.ledger.audits == [Audit(e, num_records, num_records, 0) for e in range(num_epochs)]
