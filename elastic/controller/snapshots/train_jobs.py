"""Our own jobs as policies see them, by what they were submitted with and what they tell. Pure."""

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Final

from elastic.controller.snapshots.hands import is_control_held
from elastic.controller.snapshots.job_kinds import Beside, JobReading
from elastic.controller.snapshots.pods import Role
from elastic.errors import PlatformError
from elastic.platforms.base import JobControl
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.job.status import published_status
from elastic.platforms.kubernetes.objects.manifests import (
    Submission,
    control_of,
    example_pod,
    master_pod,
    spec_of,
    submission_of,
)
from elastic.platforms.kubernetes.objects.names import (
    APP,
    APP_LABEL,
    JOB_LABEL,
    SPEC_KEY,
    TRAIN_JOBS,
    TYPE_LABEL,
    record_name,
    replica_pod_name,
    status_name,
)
from elastic.platforms.kubernetes.objects.podspec import Job
from elastic.policy.cluster.snapshot import ElasticBatch, Speed, Telling
from elastic.policy.elastic_batch import elastic_batch
from elastic.policy.fleet import desired_workers
from elastic.policy.gradient_noise import GradientNoise
from elastic.spec.job import JobSpec
from elastic.spec.roles import FLEET, MASTER, WORKER
from elastic.spec.status import BatchStatus, JobPhase, JobStatus

SUBMITTED: Final = "train"
"""The kind of a job that was submitted without a resource."""


def is_record(config_map: Manifest) -> bool:
    """Whether a ConfigMap is what a job of ours was submitted with."""
    metadata = config_map["metadata"]
    labels = metadata.get("labels") or {}
    return (
        labels.get(APP_LABEL) == APP
        and SPEC_KEY in (config_map.get("data") or {})
        and metadata["name"] == record_name(labels.get(JOB_LABEL, ""))
    )


def read_train_job(record: Manifest, beside: Beside) -> JobReading | None:
    """A job that lets its size be chosen (`autoscale`); the others' pods are nobody's here."""
    found = _recorded(record, beside)
    if found is None or not found.spec.autoscale or found.control.cancelled:
        return None
    if _is_at_rest(found.told):
        return None
    return found.reading(beside.now_s)


def read_succeeded(record: Manifest, beside: Beside) -> tuple[JobReading, JobStatus] | None:
    """A job that has succeeded, as it came, and what it told last; None of all others."""
    found = _recorded(record, beside)
    if found is None or found.told is None or found.told.phase is not JobPhase.SUCCEEDED:
        return None
    # As it was submitted, whoever has resized it since.
    return replace(found, control=JobControl()).reading(beside.now_s), found.told


def read_shown(record: Manifest, beside: Beside) -> tuple[str, Telling] | None:
    """Of a job that has succeeded, its program and what it told last; None of all others."""
    found = _recorded(record, beside)
    if found is None or found.told is None or found.told.phase is not JobPhase.SUCCEEDED:
        return None
    telling = _telling(found.spec, found.told)
    return program_of(found.spec, found.submission.image), telling


STEP_SETTINGS: Final = frozenset({
    "kind", "envs", "model_zoo", "model_def", "model", "model_params", "dataset_fn", "batch_fn",
    "loss", "optimizer", "custom_data_reader", "data_reader_params", "minibatch_size",
    "shrink_minibatches", "grads_to_wait", "use_async", "max_staleness", "get_model_steps",
    "strategy", "num_ps", "wire_dtype", "embedding_store", "embedding_staleness", "tls",
    "worker_resource_request", "worker_resource_limit", "ps_resource_request",
    "ps_resource_limit", "node_selector",
})  # fmt: skip
"""Settings on which it depends how long a step takes at a size."""


def program_of(spec: JobSpec, image: str) -> str:
    """What a job has in common with all whose workers take the same steps; see `Job`."""
    settings = spec.model_dump(mode="json", include=set(STEP_SETTINGS))
    written = json.dumps([image, settings], sort_keys=True)
    return hashlib.sha256(written.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class _Recorded:
    """What the ConfigMaps of a job say."""

    namespace: str
    spec: JobSpec
    submission: Submission
    control: JobControl
    told: JobStatus | None

    def reading(self, now_s: float) -> JobReading:
        """The job, with the size that it is to have now."""
        spec, submission = self.spec, self.submission
        job = Job(spec, self.namespace, submission.uid, submission.image, owner=submission.owner)
        fleet = [role.name for role in FLEET if role.limits(spec).maximum]
        master, *others = [_role(job, name) for name in (MASTER, *fleet)]
        workers = next(each for each in others if each.name == WORKER)
        telling = _telling(spec, self.told)
        # What a size is worth depends on gradients that such a job has still to measure.
        is_vague = spec.batch_range is not None and telling.elastic_batch is None
        return JobReading(
            kind_of(submission),
            spec.job_name,
            submission.submitted_s,
            _sized(workers, spec, self.control, now_s),
            None,
            (master, *(each for each in others if each.name != WORKER)),
            {each.name: _labels(spec.job_name, each.name) for each in (master, *others)},
            scaled_s=self.control.autoscaled_s,
            telling=telling,
            is_stoppable=not spec.num_workers.minimum,
            program=None if is_vague else program_of(spec, submission.image),
        )


def _recorded(record: Manifest, beside: Beside) -> _Recorded | None:
    """None where another version has written what this one cannot read."""
    namespace = str(record["metadata"].get("namespace") or "")
    try:
        spec, submission, control = spec_of(record), submission_of(record), control_of(record)
        status_map = beside.config_maps.get((namespace, status_name(spec.job_name)))
        told = published_status(status_map, submission.uid)
    except PlatformError:
        return None
    return _Recorded(namespace, spec, submission, control, told)


def kind_of(submission: Submission) -> str:
    """What users call such a job."""
    return SUBMITTED if submission.owner is None else TRAIN_JOBS.kind


def size_of(spec: JobSpec, control: JobControl) -> int:
    """How many workers the master is to have."""
    return desired_workers(spec.num_workers, control.num_workers, spec.workers_at_first)


def _is_at_rest(told: JobStatus | None) -> bool:
    """Whether nothing of the job runs, or is about to."""
    return told is not None and (told.phase.is_final or told.phase is JobPhase.SUSPENDED)


def _role(job: Job, role: str) -> Role:
    if role == MASTER:
        return Role(role, master_pod(job), 1, 1, 1, is_as_pods_are=True)
    limits = next(each for each in FLEET if each.name == role).limits(job.spec)
    return Role(
        role,
        example_pod(job, role),
        max(1, limits.minimum),
        limits.maximum,
        limits.maximum,
        first=replica_pod_name(job.name, role, 0),
        is_as_pods_are=True,
    )


def _sized(workers: Role, spec: JobSpec, control: JobControl, now_s: float) -> Role:
    size = size_of(spec, control)
    is_held = is_control_held(control, now_s)
    low, high = (size, size) if is_held else (workers.low, workers.high)
    return Role(
        workers.name,
        workers.template,
        low,
        high,
        size,
        asked=size,
        first=workers.first,
        is_as_pods_are=True,
    )


def _labels(job_name: str, role: str) -> dict[str, str]:
    return {JOB_LABEL: job_name, APP_LABEL: APP, TYPE_LABEL: role}


def _telling(spec: JobSpec, told: JobStatus | None) -> Telling:
    """What goodput is made of: its speeds, what is left of it, what a change costs."""
    if told is None or not told.progress.records_total:
        return Telling()
    done, total = told.progress.records_done, told.progress.records_total
    first = spec.minibatch_size * spec.gradients_per_update
    batch = first if told.scaling.batch is None else told.scaling.batch.records
    return Telling(
        speeds=tuple(
            Speed(each.workers, max(1, each.nodes), each.samples_per_s, each.batch or first)
            for each in told.scaling.speeds
        ),
        remaining_samples=float(max(0, total - done)),
        total_samples=float(total),
        rescale_s=told.scaling.rescale_s,
        global_batch_size=batch,
        max_local_batch=spec.minibatch_size,
        elastic_batch=_elastic_batch(spec, told.scaling.batch),
        trained_samples=float(done),
    )


def _elastic_batch(spec: JobSpec, told: BatchStatus | None) -> ElasticBatch | None:
    """What its master chooses the batch by, with the same function as the policy."""
    if spec.batch_range is None or told is None:
        return None
    noise = GradientNoise(told.grad_sqr, told.grad_var, told.updates_measured)
    return elastic_batch(spec.batch_range, spec.minibatch_size, noise)
