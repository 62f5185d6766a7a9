"""Statuses of a job as a master would publish them, for the tests of what people see."""

from elastic.spec.status import (
    EpochAudit,
    EpochStatus,
    JobEvent,
    JobPhase,
    JobStatus,
    Progress,
    TimeCategory,
    TimeSplit,
    WorkerStatus,
)

SUBMITTED_S = 1_700_000_000.0

KILLED = JobEvent(
    time_s=SUBMITTED_S + 30, kind="WorkerLost",
    message="worker-1 was killed (signal 9), started again",
)  # fmt: skip


def running(done=1438, **changes):
    """Two epochs of 2876 records in all, `done` of them finished after 72 seconds."""
    fields = {
        "job_name": "mnist",
        "phase": JobPhase.RUNNING,
        "submitted_s": SUBMITTED_S,
        "started_s": SUBMITTED_S + 2,
        "desired_workers": 2,
        "workers": (
            WorkerStatus(index=0, launch=1, phase="Running", pid=11, records_done=done // 2),
            WorkerStatus(
                index=1, launch=2, phase="Running", pid=12, samples_per_s=40.0,
                last_exit="killed (signal 9)",
            ),
        ),
        "progress": Progress(
            epoch=done // 1438, num_epochs=2, records_done=done, records_total=2876,
            model_version=143, loss=0.2, mean_loss=0.31234, samples_per_s=80.0, computed_again=24,
        ),
    }  # fmt: skip
    return JobStatus(**fields | changes)


def succeeded():
    """The same job at its end."""
    return running(
        2876,
        phase=JobPhase.SUCCEEDED,
        ended_s=SUBMITTED_S + 83,
        workers=(),
        audits=(
            EpochAudit(epoch=0, records=1438, committed=1438, skipped=0),
            EpochAudit(epoch=1, records=1438, committed=1437, skipped=1),
        ),
        epochs=(
            EpochStatus(
                epoch=0, version=72, records=1438, loss=0.8, seconds=42.5, samples_per_s=33.8
            ),
            EpochStatus(
                epoch=1, version=143, records=1437, loss=0.31234, seconds=27.5, samples_per_s=52.3
            ),
        ),
        metrics={"loss": 0.25, "accuracy": 0.9712},
        checkpoint="/ckpt/000286",
        export="/out/model.safetensors",
        workers_lost=1,
        events=(KILLED,),
        time_split=TimeSplit(
            queue_s=2, start_s=3, train_s=70, evaluate_s=8, current=TimeCategory.STALL,
            until_s=SUBMITTED_S + 83,
        ),
    )  # fmt: skip


def failed(**changes):
    fields = {
        "phase": JobPhase.FAILED,
        "reason": "WorkerFailed",
        "message": 'worker-0 failed: ValueError: bad label\n  File "mnist.py", line 3, in loss',
        "ended_s": SUBMITTED_S + 83,
        "workers": (),
        "worker_failures": 11,
    }
    return running(**fields | changes)


def each_epoch(status):
    """Records, committed and skipped of every finished epoch, from the first on."""
    rows = []
    for audit in status.audits:
        assert audit.epoch == len(rows)
        rows += [(audit.records, audit.committed, audit.skipped)] * audit.num_epochs
    return rows
