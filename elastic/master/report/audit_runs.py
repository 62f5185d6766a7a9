"""The ledger's audits as a status tells them: small for any number of epochs. Pure."""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from elastic.policy.tasks.ledger import Audit
from elastic.spec.status import EpochAudit

MAX_RUNS: Final = 100
"""Kept of epochs that all went differently: the newest, beside which the oldest say little."""


def audit_runs(audits: Sequence[Audit]) -> tuple[tuple[EpochAudit, ...], int]:
    """Equal neighbours as one, and how many of the oldest epochs are left out.

    Args:
        audits: Of every finished epoch, oldest first.
    """
    runs = []
    for (records, committed, skipped, left_out), group in groupby(
        audits,
        key=lambda audit: (audit.records, audit.committed, audit.skipped, audit.left_out),
    ):
        first, *others = group
        runs.append(
            EpochAudit(
                epoch=first.epoch,
                num_epochs=1 + len(others),
                records=records,
                committed=committed,
                skipped=skipped,
                left_out=left_out,
            )
        )
    num_told_no_more = sum(run.num_epochs for run in runs[:-MAX_RUNS])
    return tuple(runs[-MAX_RUNS:]), num_told_no_more
