"""A job's status in words: one line of progress, one event, the account at the end."""

import time
from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from elastic.policy.accounts import split_at
from elastic.policy.replicas import ReplicaPhase
from elastic.spec.platforms import JobKind
from elastic.spec.roles import WORKER
from elastic.spec.status import (
    JobEvent,
    JobPhase,
    JobStatus,
    Progress,
    TableStatus,
    TimeCategory,
    WorkerStatus,
)

SHORTEST_TOLD_S: Final = 0.05
"""What a job spent less time on would be told as 0.0s."""

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400


def duration_text(seconds: float) -> str:
    """`4.2s`, `1m 12s`, `2h 03m` or `3d 4h`."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f}s"
    whole = int(seconds)
    if whole < _MINUTE_S:
        return f"{whole}s"
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S}m {whole % _MINUTE_S:02d}s"
    if whole < _DAY_S:
        return f"{whole // _HOUR_S}h {whole % _HOUR_S // _MINUTE_S:02d}m"
    return f"{whole // _DAY_S}d {whole % _DAY_S // _HOUR_S}h"


def done_fraction(status: JobStatus) -> float | None:
    """How much of the job is done, 0 to 1; None while its records are not counted.

    A job of `max_steps` has only the records of so many updates.
    """
    share = _done_share(status.progress)
    return None if share is None else share[0] / share[1]


def _done_share(progress: Progress) -> tuple[int, int] | None:
    """What is done and what there is: in updates where these end the job, else in records."""
    if progress.records_total <= 0:
        return None
    done, total = progress.records_done, progress.records_total
    if ends_by_steps(progress):
        done, total = progress.model_version, progress.max_steps
    return min(done, total), total


def _records_expected(progress: Progress) -> float:
    """Records that the job will have trained: with `max_steps`, by what an update took so far."""
    total, steps = float(progress.records_total), progress.max_steps
    if steps <= 0 or progress.model_version <= 0:
        return total
    return min(total, max(1.0, progress.records_done * steps / progress.model_version))


def all_epochs_done(status: JobStatus) -> bool:
    """Whether no record of any epoch is left, as far as is known."""
    progress = status.progress
    if progress.records_total <= 0:
        return status.phase is JobPhase.SUCCEEDED
    return progress.records_done >= progress.records_total


def ends_by_steps(progress: Progress) -> bool:
    """Whether the updates come to `max_steps` before the epochs end, as far as is known."""
    return _records_expected(progress) < progress.records_total


def percent_text(status: JobStatus) -> str:
    """`25%`, or `-` while the total is unknown; 100% only when nothing is left."""
    share = _done_share(status.progress)
    # In whole numbers: 29 of 100 as a fraction is a little less than 29%.
    return "-" if share is None else f"{100 * share[0] // share[1]}%"


def eta_s(status: JobStatus) -> float | None:
    """Seconds until all records are done at the present speed, or None where none is known.

    None too once they are done: how long the evaluation takes is `evaluation_text`'s to tell.
    """
    progress = status.progress
    left = _records_expected(progress) - progress.records_done
    if status.phase.is_final or progress.samples_per_s <= 0 or left <= 0:
        return None
    return left / progress.samples_per_s


def epoch_text(status: JobStatus) -> str:
    """`0 of 3`: epochs count from 0, as everywhere; `-` before the master knows."""
    progress = status.progress
    if progress.num_epochs <= 0:
        return "-"
    return f"{min(progress.epoch, progress.num_epochs - 1)} of {progress.num_epochs}"


def loss_text(status: JobStatus) -> str:
    """The mean over the epoch under way; the newest minibatch's where a master tells no mean."""
    progress = status.progress
    loss = progress.loss if progress.mean_loss is None else progress.mean_loss
    return "-" if loss is None else f"{loss:.4g}"


def is_training(status: JobStatus) -> bool:
    """Whether the job has epochs, updates and a loss to tell about."""
    return status.kind is JobKind.TRAIN


def speed_text(status: JobStatus) -> str:
    """Records a second, now; a job that has ended has no speed."""
    return "-" if status.phase.is_final else f"{status.progress.samples_per_s:.0f}"


def is_running(replica: WorkerStatus) -> bool:
    """Whether it is a worker, and runs."""
    return replica.role == WORKER and replica.phase == ReplicaPhase.RUNNING


def workers_text(status: JobStatus) -> str:
    """`2/3`: workers that run, and workers wanted."""
    running = sum(is_running(worker) for worker in status.workers)
    return f"{running}/{status.desired_workers}"


def tables_text(status: JobStatus) -> str:
    """`items: 1,024 rows of 16, 0.2 MB, 200 bytes a row`, a line for each table."""
    return "\n".join(map(_table_text, status.tables))


def _table_text(table: TableStatus) -> str:
    text = f"{table.name}: {table.rows:,} rows of {table.dim}, {table.size_bytes / 1e6:,.1f} MB"
    if table.rows:
        text += f", {table.size_bytes // table.rows:,} bytes a row"
    more = {
        "ids not admitted yet": table.candidates,
        "rows expired": table.expired,
        "rows evicted": table.evicted,
    }
    return ", ".join([text, *(f"{number:,} {what}" for what, number in more.items() if number)])


def age_text(status: JobStatus, now_s: float) -> str:
    """Time since the job was submitted."""
    return "-" if status.submitted_s is None else duration_text(now_s - status.submitted_s)


def run_s(status: JobStatus, now_s: float) -> float | None:
    """Seconds from submission to the end, or to now."""
    begun = status.submitted_s if status.submitted_s is not None else status.started_s
    if begun is None:
        return None
    return (status.ended_s if status.ended_s is not None else now_s) - begun


def progress_line(status: JobStatus) -> str:
    """All of a running job in one line."""
    progress = status.progress
    parts = [f"{status.phase:<10} {percent_text(status):>4}"]
    if progress.records_total:
        parts.append(f"{progress.records_done}/{progress.records_total} records")
        if is_training(status):
            parts.append(f"epoch {epoch_text(status)}")
        if ends_by_steps(progress):
            parts.append(f"{progress.model_version}/{progress.max_steps} steps")
        parts.append(f"{progress.samples_per_s:.0f} samples/s")
        if is_training(status):
            parts.append(f"loss {loss_text(status)}")
    parts.append(f"{workers_text(status)} workers")
    left_s = eta_s(status)
    if left_s is not None:
        parts.append(f"ETA {duration_text(left_s)}")
    if status.evaluation is not None:
        parts.append(f"evaluates {evaluation_text(status)}")
    if status.phase is not JobPhase.RUNNING and (status.reason or status.message):
        parts.append(first_line(": ".join(filter(None, (status.reason, status.message)))))
    return ", ".join(parts)


def first_line(text: str) -> str:
    """The first line of a text that may be a whole traceback."""
    return text.strip().partition("\n")[0]


def waits_because(status: JobStatus) -> str:
    """Reason and message of a job that is in any phase but Running; empty where it has none."""
    return "" if status.phase is JobPhase.RUNNING else why_text(status, status.message.strip())


def why_text(status: JobStatus, message: str) -> str:
    """`reason: message`; a reason that only repeats the phase says nothing."""
    reason = "" if status.reason == status.phase.value else status.reason
    return ": ".join(filter(None, (reason, message)))


def event_line(event: JobEvent) -> str:
    """`12:01:03 worker-1 was killed (signal 9), started again`, in local time."""
    return f"{time.strftime('%H:%M:%S', time.localtime(event.time_s))} {event.message}"


def audit_lines(status: JobStatus) -> list[str]:
    """The account of each finished epoch; those that went alike share a line.

    A job of one pass has none: all that there is to account for is its progress.
    """
    if not is_training(status):
        return []
    lines = []
    if status.audits_left_out:
        left_out = _epochs_text(0, status.audits_left_out)
        lines.append(f"{left_out}: audited too, but the status keeps only the newest accounts")
    for audit in status.audits:
        each = "" if audit.num_epochs == 1 else ", each"
        account = account_text(audit.records, audit.committed, audit.skipped)
        account += left_out_text(audit.left_out)
        lines.append(f"{_epochs_text(audit.epoch, audit.num_epochs)}{each}: {account}")
    if status.cut_short is not None:
        cut = status.cut_short
        num_left_out = cut.records - cut.committed - cut.skipped
        account = account_text(cut.records, cut.committed, cut.skipped, num_left_out)
        lines.append(f"epoch {cut.epoch}, cut short: {account}")
    return lines


def account_text(records: int, committed: int, skipped: int, left_out: int = 0) -> str:
    """`1438 records, all counted once`, or the sum where some have not counted."""
    if committed == records:
        return f"{records} records, all counted once"
    rest = f" + {left_out} left out" if left_out else ""
    return f"{records} records = {committed} committed + {skipped} skipped{rest}"


class ToldEpoch(Protocol):
    """What is told of a finished epoch: as it was measured, or read from a status."""

    @property
    def loss(self) -> float: ...

    @property
    def seconds(self) -> float: ...

    @property
    def samples_per_s(self) -> float: ...

    @property
    def metrics(self) -> Mapping[str, float]: ...


def result_text(result: ToldEpoch) -> str:
    """`loss 0.3124, accuracy 0.9, 684 samples/s, 2.1s`."""
    values = {"loss": result.loss, **result.metrics}
    speed = f"{result.samples_per_s:.0f} samples/s"
    return f"{values_text(values)}, {speed}, {duration_text(result.seconds)}"


def training_text(status: JobStatus) -> str:
    """What the newest finished epoch came to; nothing before the first."""
    if not status.epochs:
        return ""
    newest = status.epochs[-1]
    return f"{result_text(newest)} in epoch {newest.epoch}"


def left_out_text(left_out: int) -> str:
    """What follows the counts of an epoch whose last minibatch was left out."""
    return f" + {left_out} left out (--drop_last)" if left_out else ""


def _epochs_text(first: int, number: int) -> str:
    return f"epoch {first}" if number == 1 else f"epochs {first} to {first + number - 1}"


def metrics_text(status: JobStatus) -> str:
    return values_text(status.metrics)


def values_text(values: Mapping[str, float]) -> str:
    """`loss 0.25, accuracy 0.9712`."""
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items())


def best_text(status: JobStatus) -> str:
    """The best version, and where it is kept."""
    best = status.best
    if best is None:
        return ""
    return f"val_{best.monitor} {best.value:.4g} at version {best.version}, in {best.checkpoint}"


def evaluation_text(status: JobStatus) -> str:
    """How far the evaluation is that goes on: `version 143, 20/180 records, ETA 4.0s`."""
    told = status.evaluation
    if told is None:
        return ""
    left = told.records_total - told.records_done
    eta = f", ETA {duration_text(left / told.samples_per_s)}" if told.samples_per_s > 0 else ""
    return f"version {told.model_version}, {told.records_done}/{told.records_total} records{eta}"


def time_split_text(status: JobStatus, now_s: float) -> str:
    """`start 8.2s (9%), train 1m 10s (86%), …`: what the job's whole life was spent on."""
    split = split_at(status, now_s)
    seconds = {category: getattr(split, f"{category}_s") for category in TimeCategory}
    life_s = sum(seconds.values())
    return ", ".join(
        f"{category} {duration_text(spent_s)} ({spent_s / life_s:.0%})"
        for category, spent_s in seconds.items()
        if spent_s >= SHORTEST_TOLD_S
    )


def checkpoint_text(status: JobStatus) -> str:
    """The newest checkpoint, and why it is not where it should be."""
    return ", ".join(filter(None, (status.checkpoint, status.checkpoint_problem)))


def losses_text(status: JobStatus) -> str:
    """Who was lost on the way and came back."""
    told = [
        counted(status.workers_lost, "worker lost", "workers lost"),
        counted(status.worker_failures, "worker crash", "worker crashes"),
        counted(status.master_restarts, "master restart", "master restarts"),
    ]
    # Few jobs have any.
    if status.servers_lost:
        told.append(counted(status.servers_lost, "parameter server lost", "parameter servers lost"))
    if status.redis_lost:
        told.append(counted(status.redis_lost, "Redis lost", "times the Redis lost"))
    return ", ".join(told)


def failures_text(progress: Progress) -> str:
    """What became of minibatches that the user's code failed on; empty where it did on none."""
    parts = []
    if progress.minibatches_tried_again:
        parts.append(
            counted(progress.minibatches_tried_again, "minibatch", "minibatches") + " tried again"
        )
    if progress.records_computed_alone:
        parts.append(
            counted(progress.records_computed_alone, "record", "records") + " computed alone"
        )
    if progress.shrunk_minibatch_size is not None:
        parts.append(f"minibatches shrunk to {progress.shrunk_minibatch_size} records")
    return ", ".join(parts)


def counted(number: int, one: str, many: str) -> str:
    """`1 worker`, `2 workers`."""
    return f"{number} {one if number == 1 else many}"


def ends_otherwise(status: JobStatus) -> bool:
    """Whether a job came to its end otherwise than by the last record of its last epoch."""
    return status.phase is not JobPhase.SUCCEEDED or status.reason != "Succeeded"


def summary_lines(status: JobStatus, now_s: float) -> Iterator[str]:
    """What became of a job: said once, when it has ended."""
    progress = status.progress
    duration_s = run_s(status, now_s)
    after = "" if duration_s is None else f" after {duration_text(duration_s)}"
    yield f"job {status.job_name}: {status.phase}{after}"
    if ends_otherwise(status) and (status.reason or status.message):
        yield from ": ".join(filter(None, (status.reason, status.message))).splitlines()
    if progress.records_total and not is_training(status):
        skipped = f", {progress.skipped} of them skipped" if progress.skipped else ""
        yield f"{progress.records_done} of {progress.records_total} records{skipped}"
    elif progress.records_total:
        yield (
            f"{progress.records_done} of {progress.records_total} records, "
            f"{progress.model_version} updates, "
            f"{progress.computed_again} records computed again"
        )
    if failures_text(progress):
        yield failures_text(progress)
    yield from audit_lines(status)
    if status.epochs:
        yield f"training: {training_text(status)}"
    if status.metrics:
        yield f"evaluation: {metrics_text(status)}"
    if best_text(status):
        yield f"best: {best_text(status)}"
    if checkpoint_text(status):
        yield f"checkpoint: {checkpoint_text(status)}"
    if status.export:
        yield f"export: {status.export}"
    if status.predictions:
        yield f"predictions: {status.predictions}"
    if time_split_text(status, now_s):
        yield f"time: {time_split_text(status, now_s)}"
    yield losses_text(status)
