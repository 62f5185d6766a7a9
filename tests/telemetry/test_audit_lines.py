"""The account of finished epochs, in words."""

from support.statuses import running

from elastic.spec.status import EpochAudit
from elastic.telemetry.summary import audit_lines


def test_epochs_that_went_alike_share_a_line():
    status = running(
        audits=(
            EpochAudit(epoch=0, num_epochs=3, records=40, committed=40, skipped=0),
            EpochAudit(epoch=3, records=40, committed=39, skipped=1),
        )
    )
    assert audit_lines(status) == [
        "epochs 0 to 2, each: 40 records, all counted once",
        "epoch 3: 40 records = 39 committed + 1 skipped",
    ]


def test_what_is_left_out_is_said_first():
    kept = EpochAudit(epoch=900, records=40, committed=40, skipped=0)
    assert audit_lines(running(audits=(kept,), audits_left_out=900)) == [
        "epochs 0 to 899: audited too, but the status keeps only the newest accounts",
        "epoch 900: 40 records, all counted once",
    ]


def test_one_alone_is_named_so():
    assert audit_lines(running(audits_left_out=1))[0].startswith("epoch 0: audited too")
