"""The audits of a status stay small, and say how much they leave out."""

from elastic.master.status_board import MAX_RUNS, audit_runs
from elastic.policy.tasks.ledger import Audit
from elastic.spec.status import EpochAudit


def test_epochs_that_went_alike_are_one_however_many():
    audits = [Audit(epoch, 40, 40, 0) for epoch in range(20_000)]
    audits[7_000] = Audit(7_000, 40, 39, 1)
    assert audit_runs(audits) == (
        (
            EpochAudit(epoch=0, num_epochs=7_000, records=40, committed=40, skipped=0),
            EpochAudit(epoch=7_000, num_epochs=1, records=40, committed=39, skipped=1),
            EpochAudit(epoch=7_001, num_epochs=12_999, records=40, committed=40, skipped=0),
        ),
        0,
    )


def test_of_epochs_that_all_differ_the_newest_are_kept_and_the_others_counted():
    audits = [Audit(epoch, 40, 40 - epoch % 2, epoch % 2) for epoch in range(1_000)]
    runs, left_out = audit_runs(audits)
    assert len(runs) == MAX_RUNS
    assert (runs[0].epoch, runs[-1].epoch) == (1_000 - MAX_RUNS, 999)
    assert left_out == 1_000 - MAX_RUNS


def test_what_is_left_out_is_counted_in_epochs():
    alike = [Audit(epoch, 40, 40, 0) for epoch in range(50)]
    differing = [Audit(50 + i, 40, 40 - i % 2, i % 2) for i in range(1, MAX_RUNS + 1)]
    runs, left_out = audit_runs(alike + differing)
    assert (len(runs), left_out) == (MAX_RUNS, 50)


def test_nothing_has_none():
    assert audit_runs([]) == ((), 0)
