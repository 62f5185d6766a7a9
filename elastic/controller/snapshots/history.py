"""What the jobs of a cluster did, as a workload that can be simulated. Pure.

An object tells when it was submitted, started and completed, and not which sizes it had meanwhile:
it is taken to have had the one that its user asked for. An ElasticJob starts when it is first seen,
so that what it waited for its pods counts as work. Jobs of our own tell how fast they were at each
size, and are replayed by that. Kinds that tell no times, and jobs that have not succeeded, are left
out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pydantic import ValidationError

from elastic.controller.kinds.conditions import JobCondition, ended_as
from elastic.controller.resources import elastic_job, tf_job
from elastic.controller.resources.common import seconds_of
from elastic.controller.snapshots.job_kinds import Beside
from elastic.controller.snapshots.reading import as_submitted, maps_by_place, unplaced
from elastic.controller.snapshots.train_jobs import is_record, read_succeeded
from elastic.errors import DescriptionError
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.policy.cluster.snapshot import Node
from elastic.simulation.workload import Amdahl, Measured, Submission, Tells, Work, Workload


def history_of(
    jobs: Mapping[str, Sequence[Manifest]],
    nodes: Sequence[Node],
    serial: float,
    config_maps: Sequence[Manifest] = (),
) -> Workload:
    """The jobs that have succeeded, from the first submission on.

    Args:
        jobs: Objects by the lower-case names of their kinds.
        nodes: Of the same cluster, which affinity refers to.
        serial: The part of one worker's time that others do not shorten.
        config_maps: Those of our own jobs.

    Raises:
        DescriptionError: There are none.
    """
    found = [
        submission
        for kind, manifests in sorted(jobs.items())
        for manifest in manifests
        for submission in _submission(kind, manifest, nodes, serial)
    ]
    beside = Beside(0.0, maps_by_place(config_maps))
    for record in filter(is_record, config_maps):
        found.extend(_own_submission(record, beside, nodes, serial))
    if not found:
        raise DescriptionError(
            "no ElasticJob, TFJob or job of elastic train of the cluster has succeeded: there is "
            "nothing to replay"
        )
    return Workload.of(found)


def _submission(
    kind: str, manifest: Manifest, nodes: Sequence[Node], serial: float
) -> Iterator[Submission]:
    times = _times(kind, manifest)
    job = as_submitted(kind, manifest, nodes)
    if times is None or job is None:
        return
    began_s, ended_s = times
    work = Work(max(0.0, ended_s - began_s), Amdahl(serial))
    # Names may have been used again, and those of a workload are its own.
    yield Submission(replace(job, name=f"{job.name}-{manifest['metadata']['uid'][:8]}"), work)


def _own_submission(
    record: Manifest, beside: Beside, nodes: Sequence[Node], serial: float
) -> Iterator[Submission]:
    succeeded = read_succeeded(record, beside)
    if succeeded is None:
        return
    reading, told = succeeded
    job = unplaced(reading, str(record["metadata"].get("namespace") or ""), nodes)
    if job is None or told.started_s is None or told.ended_s is None:
        return
    work = Work(max(0.0, told.ended_s - told.started_s), Amdahl(serial), Tells.ALL)
    # Of several numbers of nodes, the newest measurement.
    speeds = {each.workers: each.samples_per_s for each in told.scaling.speeds}
    if speeds and told.progress.records_total:
        measured = Measured.of(speeds)
        per_s = measured.at(job.workers.size_at_start, 1)
        if per_s > 0:
            seconds = told.progress.records_total / per_s
            work = Work(seconds, measured, Tells.ALL, per_s)
    uid = str(record["metadata"]["uid"])[:8]
    yield Submission(replace(job, name=f"{job.name}-{uid}"), work, told.scaling.rescale_s)


def _times(kind: str, manifest: Manifest) -> tuple[float, float] | None:
    """When a job started and completed; None of one that has not succeeded, or does not tell."""
    status: Mapping[str, object] = manifest.get("status") or {}
    read: elastic_job.ElasticJobStatus | tf_job.TFJobStatus
    try:
        if kind == "elasticjob":
            read = elastic_job.ElasticJobStatus.model_validate(status)
        elif kind == "tfjob":
            read = tf_job.TFJobStatus.model_validate(status)
        else:
            return None
    except ValidationError:
        return None
    is_done = ended_as(read.conditions) is JobCondition.SUCCEEDED
    if not is_done or read.start_time is None or read.completion_time is None:
        return None
    return seconds_of(str(read.start_time)), seconds_of(str(read.completion_time))
