"""Jobs from Python: the same as the commands, for scripts and notebooks.

`import elastic` brings `train`, `evaluate`, `predict`, `Job` and `jobs`; this module is loaded with
the first of them.
"""

import operator
import os
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, SupportsIndex, Unpack

from elastic.client import settings
from elastic.client.gathering import check, gather, nothing_to_resume
from elastic.client.keywords import (
    EvaluateKeywords,
    JobKeywords,
    PredictKeywords,
    TrainKeywords,
)
from elastic.client.platforms import (
    ClusterChoice,
    default_platform,
    looks,
    num_running,
    open_platform,
    platform_name,
    replica_names,
    wait_for_workers,
    why_workers_wait,
)
from elastic.errors import JobSpecError, TrainingError
from elastic.platforms.base import LogLine, Platform
from elastic.policy.accounts import as_of
from elastic.spec.job import JobSpec
from elastic.spec.platforms import JobKind
from elastic.spec.status import JobPhase, JobStatus
from elastic.spec.values import Since, parse_since
from elastic.telemetry.progress import open_display

__all__ = [
    "EvaluateKeywords",
    "Job",
    "JobKeywords",
    "JobPhase",
    "JobStatus",
    "LogLine",
    "PredictKeywords",
    "TrainKeywords",
    "evaluate",
    "jobs",
    "predict",
    "train",
]

POLL_S: Final = 0.2
KILL_TIMEOUT_S: Final = 60.0
SCALE_TIMEOUT_S: Final = 60.0


class Job:
    """One job by its name; made by `train` and `jobs`, or for one that is there already."""

    def __init__(
        self,
        name: str,
        platform: str | None = None,
        *,
        namespace: str | None = None,
        context: str | None = None,
        kubeconfig: str | None = None,
    ) -> None:
        """Keep the values; nothing is asked before the first call.

        Args:
            name: Of the job.
            platform: `local` or `kubernetes`; that of `$ELASTIC_PLATFORM` if None, or else
                `kubernetes` where a cluster is configured.
            namespace: On Kubernetes, where it is; that of the context if None.
            context: Of the kubeconfig; its current one if None.
            kubeconfig: A file; `$KUBECONFIG` or `~/.kube/config` if None.

        Raises:
            JobSpecError: There is no such platform.
        """
        self.name = name
        self._choice = ClusterChoice(kubeconfig, context, namespace)
        self.platform = platform_name(platform or default_platform(self._choice))
        self._opened: Platform | None = None

    def __repr__(self) -> str:
        return f"Job({self.name!r}, platform={str(self.platform)!r})"

    def status(self) -> JobStatus:
        """What the job tells of itself, with its time as of now.

        Raises:
            JobNotFoundError: There is no such job.
            PlatformError: The platform does not answer.
        """
        platform = self._platform()
        return as_of(platform.status(self.name), platform.now_s())

    def wait(
        self, timeout_s: float | None = None, show: bool = False, check: bool = False
    ) -> JobStatus:
        """Wait until the job has ended, and return its last status.

        Args:
            timeout_s: How long; for ever where None.
            show: Show its progress on standard output meanwhile.
            check: Raise unless it has succeeded.

        Raises:
            TimeoutError: It goes on.
            TrainingError: With `check`, that it has failed or was cancelled; `reason` says why.
            JobNotFoundError: There is no such job any more.
            PlatformError: The platform does not tell, or nobody decides for the job any more.
        """
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        platform = self._platform()
        with ExitStack() as stack:
            display = None
            if show:
                shown = open_display(sys.stdout, wall_clock=platform.now_s)
                display = stack.enter_context(shown)
            for status in looks(platform, self.name, POLL_S):
                if display is not None:
                    display.show(status)
                if status.phase.is_final:
                    break
                if deadline_s is not None and time.monotonic() >= deadline_s:
                    raise TimeoutError(
                        f"job {self.name} is still {status.phase} after {timeout_s:g} s"
                    )
        ended = as_of(status, platform.now_s())
        if check and ended.phase is not JobPhase.SUCCEEDED:
            why = ended.message or ended.reason
            raise TrainingError(f"job {self.name}: {ended.phase}: {why}", ended.reason)
        return ended

    def logs(
        self,
        follow: bool = False,
        tail: int | None = None,
        since: str | Since | None = None,
        role: str | None = None,
        index: int | None = None,
        previous: bool = False,
    ) -> Iterator[LogLine]:
        """What its replicas have written, as `elastic logs` prints it.

        Args:
            follow: Go on until the job has ended.
            tail: Only so many last lines of each replica; -1 for all.
            since: Only lines from then on, such as `10m` or `2026-01-31T12:00:00Z`.
            role: `master` or `worker` only.
            index: Only the replica of this index; a worker unless `role` says else.
            previous: Of the life before.

        Raises:
            ValueError: `since` is no time, or `tail` no number of lines.
            JobNotFoundError: There is no such job.
        """
        if tail is not None and tail < -1:
            raise ValueError(f"tail={tail} is no number of lines: give one, or -1 for all")
        names = replica_names(role, index)
        tail = None if tail == -1 else tail
        begin = parse_since(since) if isinstance(since, str) else since
        return self._platform().logs(self.name, names, follow, tail, previous, begin)

    def scale(
        self, num_workers: int, wait: bool = True, timeout_s: float = SCALE_TIMEOUT_S
    ) -> JobStatus:
        """Ask for another number of workers, and wait until so many run.

        Returns:
            The job as it is then, or at its end where that came before.

        Raises:
            JobSpecError: The job has ended, or the number is outside its range.
            TimeoutError: They do not run after `timeout_s`.
        """
        if isinstance(num_workers, bool) or not isinstance(num_workers, SupportsIndex):
            raise JobSpecError(f"num_workers={num_workers!r} is no whole number: give one")
        num_workers = operator.index(num_workers)
        platform = self._platform()
        platform.scale(self.name, num_workers)
        if not wait:
            return self.status()
        status = wait_for_workers(platform, self.name, num_workers, timeout_s)
        if not status.phase.is_final and num_running(status) != num_workers:
            why = why_workers_wait(status)
            raise TimeoutError(
                f"{num_running(status)} of {num_workers} workers of job {self.name} run after "
                f"{timeout_s:g} s{why and f': {why}'}"
            )
        return as_of(status, platform.now_s())

    def kill(self, timeout_s: float = KILL_TIMEOUT_S, forget: bool = False) -> JobStatus:
        """Cancel the job and wait until nothing of it is left; returns its last status.

        Args:
            timeout_s: How long its processes may take to end.
            forget: Also drop all that is kept of it.

        Raises:
            JobNotFoundError: There is no such job.
            PlatformError: Something was still there after `timeout_s`.
        """
        platform = self._platform()
        platform.kill(self.name, timeout_s)
        status = self.status()
        if forget:
            platform.forget(self.name)
        return status

    def _platform(self) -> Platform:
        if self._opened is None:
            self._opened = open_platform(self.platform, self._choice)
        return self._opened

    def _submit(self, spec: JobSpec) -> list[str]:
        """Start it; returns what its user should know."""
        platform = self._platform()
        notes = [nothing_to_resume(platform, spec)]
        platform.submit(spec)
        return [*notes, settings.lost_parameters(spec)]


def train(
    folder: str | Path | None = None,
    *,
    config: str | Path | None = None,
    context: str | None = None,
    kubeconfig: str | None = None,
    **values: Unpack[TrainKeywords],
) -> Job:
    """Start a job that trains a model, and return at once.

    Args:
        folder: One that holds the model, as the command takes it: its `elastic.yaml`, and what is
            found beside it, give what nothing here does.
        config: A job file; what is given here wins over it.
        context: As `Job.context`.
        kubeconfig: As `Job.kubeconfig`.
        values: The settings of docs/flags.md, such as `model_def="digits.CustomModel"`.

    Raises:
        JobSpecError: Settings that cannot be used, all of them at once.
        ModelDefError: The module does not keep the contract.
        DataError: There are no records.
        JobExistsError: The name is taken.
        PlatformError: The platform does not take the job.
    """
    return _start(JobKind.TRAIN, folder, config, context, kubeconfig, {**values})


def evaluate(
    folder: str | Path | None = None,
    *,
    config: str | Path | None = None,
    context: str | None = None,
    kubeconfig: str | None = None,
    **values: Unpack[EvaluateKeywords],
) -> Job:
    """Start a job that evaluates a trained model; its last status has the metrics.

    Args and errors as of `train`; also:

    Raises:
        CheckpointError: There is no model to take parameters from.
    """
    return _start(JobKind.EVALUATE, folder, config, context, kubeconfig, {**values})


def predict(
    folder: str | Path | None = None,
    *,
    config: str | Path | None = None,
    context: str | None = None,
    kubeconfig: str | None = None,
    **values: Unpack[PredictKeywords],
) -> Job:
    """Start a job that predicts with a trained model; its last status names their folder.

    Args and errors as of `evaluate`.
    """
    return _start(JobKind.PREDICT, folder, config, context, kubeconfig, {**values})


def jobs(
    platform: str | None = None,
    namespace: str | None = None,
    context: str | None = None,
    kubeconfig: str | None = None,
) -> list[Job]:
    """All jobs of a platform, running or ended, oldest first.

    Raises:
        PlatformError: The platform does not answer.
    """
    cluster = {"namespace": namespace, "context": context, "kubeconfig": kubeconfig}
    choice = ClusterChoice(kubeconfig, context, namespace)
    names = open_platform(platform_name(platform or default_platform(choice)), choice).jobs()
    return [Job(name, platform, **cluster) for name in names]


def _start(
    kind: JobKind,
    folder: str | Path | None,
    config: str | Path | None,
    context: str | None,
    kubeconfig: str | None,
    values: dict[str, Any],
) -> Job:
    plain = {
        name: os.fspath(value) if isinstance(value, os.PathLike) else value
        for name, value in values.items()
        if value is not None
    }
    own, problems = settings.from_keywords(plain)
    gathered = gather(kind, own, ClusterChoice(kubeconfig, context), folder, config)
    all_problems = [*gathered.problems, *problems]
    spec, notes = settings.complete(kind, gathered.given, all_problems, prefix="")
    for note in notes:
        _warn(note)
    check(spec)
    job = Job(
        spec.job_name,
        spec.platform,
        namespace=spec.namespace or None,
        context=context,
        kubeconfig=kubeconfig,
    )
    for note in job._submit(spec):  # noqa: SLF001 - of this module
        _warn(note)
    return job


def _warn(note: str) -> None:
    """Tell what the commands tell as a note."""
    if note:
        # Of the line that called `train` or its like.
        warnings.warn(note, stacklevel=4)
