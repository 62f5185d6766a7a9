"""What a decided size means for the object of a job. Pure.

Nothing here makes or removes a pod: whoever looks after a kind follows the size in its object.
"""

from dataclasses import replace
from typing import Any, Final

from elastic.controller.kinds.training_telling import status_of
from elastic.controller.reconciling import Change, EventType, Note
from elastic.controller.resources import elastic_job, training_job
from elastic.controller.resources.base import read_spec
from elastic.controller.resources.common import time_text
from elastic.controller.snapshots.hands import given, holding, is_control_news, is_news
from elastic.controller.snapshots.train_jobs import size_of
from elastic.errors import PlatformError
from elastic.platforms.base import JobControl
from elastic.platforms.kubernetes.api.resources import CONFIGMAPS, Manifest
from elastic.platforms.kubernetes.objects.manifests import control_of, dump_control, spec_of
from elastic.platforms.kubernetes.objects.names import CONTROL_KEY
from elastic.policy.cluster.plan import Decision

COMPONENT: Final = "elastic-autoscaler"
"""Source of the events of what it does."""

AUTOSCALED: Final = "Autoscaled"
HELD: Final = "Held"


def training_job_change(job: Manifest, decision: Decision, now_s: float) -> Change | None:
    """The sizes that a TrainingJob is to have, in its status; its own events tell of them."""
    status, spec = status_of(job), read_spec(training_job.TrainingJobSpec, job).spec
    if spec is None or status.phase is training_job.Phase.NONE:
        return None
    scale, part = status.scale_status, {}
    pservers = decision.ps_replicas
    for name, before, size, least in (
        ("trainer", scale.trainer, decision.replicas, spec.trainer.min_instance),
        ("pserver", scale.pserver, pservers, spec.pserver.min_instance),
    ):
        # A job that is to wait waits with the pods of its smallest size.
        if size is not None and max(size, least) != before.wanted:
            part[name] = {
                "wanted": max(size, least),
                "reason": decision.reason,
                "time": time_text(now_s),
            }
    if not part:
        return None
    change = {"status": {"scale_status": part}}
    return Change(training_job.RESOURCE, job, change, COMPONENT, part="status")


def elastic_job_change(job: Manifest, decision: Decision) -> Change | None:
    """The replicas of an ElasticJob; a limit left out is written down, as it moves else."""
    spec = read_spec(elastic_job.ElasticJobSpec, job).spec
    if spec is None:
        return None
    size = max(spec.min_size, min(spec.max_size, decision.replicas))
    if size == spec.replicas:
        return None
    left_out = {
        name: limit
        for name, written, limit in (
            ("minReplicas", spec.min_replicas, spec.min_size),
            ("maxReplicas", spec.max_replicas, spec.max_size),
        )
        if written is None
    }
    change = {
        "metadata": {"annotations": given(size)},
        "spec": {**left_out, "replicaSpecs": {"Worker": {"replicas": size}}},
    }
    note = _resized(spec.replicas, size, decision.reason)
    return Change(elastic_job.RESOURCE, job, change, COMPONENT, note)


def train_job_change(
    record: Manifest, resource: Manifest | None, decision: Decision, now_s: float
) -> Change | None:
    """The number of workers that the master of a job of ours is asked for; 0 has it stand still.

    Args:
        record: What the job was submitted with.
        resource: What it was made from, whose events tell of it; None where there is none.
        decision: Of the policy.
        now_s: The moment, in seconds since the epoch.
    """
    try:
        spec, control = spec_of(record), control_of(record)
    except PlatformError:
        return None
    before, limits = size_of(spec, control), spec.num_workers
    size = max(limits.minimum, min(limits.maximum, decision.replicas))
    if size == before:
        return None
    wanted = JobControl(size, control.cancelled, decision.reason, autoscaled_s=now_s)
    note = _resized(before, size, decision.reason)
    return Change(CONFIGMAPS, record, _control(wanted), COMPONENT, note, told_of=resource)


def elastic_job_hold(job: Manifest, now_s: float, hold_s: float) -> Change | None:
    """Take note that a user has set the size of an ElasticJob; None where that is no news."""
    spec = read_spec(elastic_job.ElasticJobSpec, job).spec
    if spec is None or not is_news(job, spec.replicas):
        return None
    until_s = now_s + hold_s
    change = {"metadata": {"annotations": holding(spec.replicas, until_s)}}
    return Change(elastic_job.RESOURCE, job, change, COMPONENT, _held(spec.replicas, until_s))


def train_job_hold(
    record: Manifest, resource: Manifest | None, now_s: float, hold_s: float
) -> Change | None:
    """The same, of a job of ours that lets its size be chosen."""
    try:
        spec, control = spec_of(record), control_of(record)
    except PlatformError:
        return None
    if not spec.autoscale or control.cancelled or not is_control_news(control):
        return None
    until_s = now_s + hold_s
    note = _held(size_of(spec, control), until_s)
    change = _control(replace(control, held_until_s=until_s))
    return Change(CONFIGMAPS, record, change, COMPONENT, note, told_of=resource)


def _control(control: JobControl) -> dict[str, Any]:
    return {"data": {CONTROL_KEY: dump_control(control)}}


def _resized(before: int, size: int, reason: str) -> Note:
    return Note(AUTOSCALED, f"from {before} to {size} workers, {reason}")


def _held(size: int, until_s: float) -> Note:
    return Note(HELD, f"{size} workers, as a user has set them, until {time_text(until_s)}")


def waiting(text: str) -> Note:
    """Why a job does not get what it lacks."""
    return Note("Waiting", text, EventType.WARNING)
