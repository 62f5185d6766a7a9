"""A snapshot of a cluster, made of its objects, and what its jobs did before. Pure.

How the objects were got is not known here. Jobs that have ended, and those whose spec cannot be
read, are not in a snapshot; what pods of theirs are left are pods that belong to no job.

What jobs did is a workload that can be simulated (`history_of`). An object tells when it was
submitted, started and completed, and not which sizes it had meanwhile: it is taken to have had the
one that its user asked for. An ElasticJob starts when it is first seen, so that what it waited for
its pods counts as work. Jobs of our own tell how fast they were at each size, and are replayed by
that. Kinds that tell no times, and jobs that have not succeeded, are left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pydantic import ValidationError

from elastic.controller.kinds.common import JobCondition, ended_as
from elastic.controller.resources import elastic_job, tf_job
from elastic.controller.resources.common import seconds_of
from elastic.controller.snapshots.objects import (
    READERS,
    RESOURCES,
    Beside,
    JobReading,
    group_of,
    is_record,
    node_of,
    other_pods,
    read_shown,
    read_succeeded,
    read_tf_job,
    read_train_job,
)
from elastic.errors import DescriptionError
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.objects.names import QUEUE_LABEL
from elastic.policy.cluster import Group, Job, JobPhase, Node, Shown, Snapshot, Telling
from elastic.policy.scaling.offers import shown_by
from elastic.simulation.workload import Amdahl, Measured, Submission, Tells, Work, Workload

TRAIN_JOBS: Final = "elastictrainjob"
"""Our own jobs, whether or not a resource has been made of them."""

KINDS: Final = (*RESOURCES, TRAIN_JOBS)
"""The kinds of jobs that can be read."""


@dataclass(frozen=True, slots=True)
class Objects:
    """What was seen of a cluster at one moment.

    Attributes:
        pods: Of all namespaces: they take room, whoever they belong to.
        jobs: Objects by the lower-case name of their kind.
        share_pods: SharePods that have no pod yet.
        config_maps: Those of our own jobs, what they were submitted with and what they tell, where
            such jobs are wanted.
    """

    now_s: float
    nodes: Sequence[Manifest]
    pods: Sequence[Manifest]
    jobs: Mapping[str, Sequence[Manifest]]
    share_pods: Sequence[Manifest] = ()
    config_maps: Sequence[Manifest] = ()


def snapshot_of(objects: Objects) -> Snapshot:
    """The cluster as policies see it."""
    nodes = tuple(sorted((node_of(each) for each in objects.nodes), key=lambda each: each.name))
    pods = _Pods([*objects.pods, *objects.share_pods])
    jobs = [
        job
        for reading, namespace in _readings(objects)
        if (job := _job(reading, namespace, pods, nodes)) is not None
    ]
    jobs.sort(key=lambda each: (each.submitted_s, each.key))
    changes = [each.last_scaled_s for each in jobs if each.last_scaled_s is not None]
    others = other_pods(pods.left(), nodes)
    last_s = max(changes, default=None)
    return Snapshot(objects.now_s, nodes, tuple(jobs), others, last_s, _shown(objects))


def _shown(objects: Objects) -> dict[str, Shown]:
    """What jobs of our own told that have succeeded, and are not removed yet."""
    beside = Beside(objects.now_s, maps_by_place(objects.config_maps))
    found: dict[str, list[Telling]] = {}
    for record in filter(is_record, objects.config_maps):
        if (shown := read_shown(record, beside)) is not None:
            found.setdefault(shown[0], []).append(shown[1])
    return {program: shown_by(tellings) for program, tellings in sorted(found.items())}


def as_submitted(kind: str, manifest: Manifest, nodes: Sequence[Node]) -> Job | None:
    """A job as it was when it came, whatever became of it; None where it cannot be read.

    Args:
        kind: The lower-case name of its kind.
        manifest: The job.
        nodes: All of the cluster.
    """
    reading = READERS[kind]({**manifest, "status": {}}, Beside(0.0))
    return None if reading is None else unplaced(reading, _namespace(manifest), nodes)


def unplaced(reading: JobReading, namespace: str, nodes: Sequence[Node]) -> Job | None:
    """A job of which nothing is there yet; None where it cannot be read."""
    job = _job(reading, namespace, _Pods(()), nodes)
    return None if job is None else replace(job, workers=replace(job.workers, replicas=0))


def maps_by_place(config_maps: Sequence[Manifest]) -> dict[tuple[str, str], Manifest]:
    """By namespace and name."""
    return {(_namespace(each), str(each["metadata"]["name"])): each for each in config_maps}


def _readings(objects: Objects) -> Iterator[tuple[JobReading, str]]:
    """All jobs that have not ended, and their namespaces.

    What waits in a queue of the cluster is that one's to start, and no job here; TFJobs wait in
    none.
    """
    beside = Beside(objects.now_s, maps_by_place(objects.config_maps))
    found = [
        (READERS[kind], manifest)
        for kind, manifests in sorted(objects.jobs.items())
        for manifest in manifests
    ]
    found += [(read_train_job, each) for each in objects.config_maps if is_record(each)]
    for read, manifest in found:
        is_queued = QUEUE_LABEL in (manifest["metadata"].get("labels") or {})
        if is_queued and read is not read_tf_job:
            continue
        if (reading := read(manifest, beside)) is not None:
            yield reading, _namespace(manifest)


def _namespace(manifest: Manifest) -> str:
    return str(manifest["metadata"].get("namespace") or "")


class _Pods:
    """The pods of a cluster, each of which belongs to one job or to none."""

    def __init__(self, pods: Sequence[Manifest]) -> None:
        self._by_label: dict[tuple[str, str, str], list[Manifest]] = {}
        self._left = {id(pod): pod for pod in pods}
        for pod in pods:
            namespace = str(pod["metadata"].get("namespace") or "")
            for label, value in (pod["metadata"].get("labels") or {}).items():
                self._by_label.setdefault((namespace, label, str(value)), []).append(pod)

    def find(self, namespace: str, labels: Mapping[str, str]) -> list[Manifest]:
        """Those with all of these labels."""
        first = next(iter(labels.items()))
        candidates = self._by_label.get((namespace, *first), ())
        return [pod for pod in candidates if labels.items() <= pod["metadata"]["labels"].items()]

    def take(self, pods: Sequence[Manifest]) -> None:
        """They belong to a job."""
        for pod in pods:
            self._left.pop(id(pod), None)

    def left(self) -> Iterator[Manifest]:
        """Those that belong to none."""
        yield from self._left.values()


def _job(reading: JobReading, namespace: str, pods: _Pods, nodes: Sequence[Node]) -> Job | None:
    roles = [each for each in (reading.workers, reading.ps, *reading.others) if each is not None]
    found = {role.name: pods.find(namespace, reading.labels[role.name]) for role in roles}
    try:
        groups = {role.name: group_of(role, found[role.name], nodes) for role in roles}
    except ValidationError:
        return None
    for each in found.values():
        pods.take(each)
    if reading.is_frozen:
        groups = {name: _frozen(group) for name, group in groups.items()}
    is_stopped = reading.is_stoppable and not reading.workers.wanted
    waits_since_s = reading.scaled_s if is_stopped else None
    job = Job(
        reading.name,
        namespace,
        reading.kind,
        groups[reading.workers.name],
        reading.submitted_s,
        JobPhase.WAITING,
        ps=None if reading.ps is None else groups[reading.ps.name],
        others=tuple(groups[role.name] for role in reading.others),
        last_scaled_s=reading.scaled_s,
        waiting_since_s=reading.submitted_s if waits_since_s is None else waits_since_s,
        telling=reading.telling,
        is_stoppable=reading.is_stoppable,
        program=reading.program,
    )
    if job.is_waiting:
        return job
    return replace(job, phase=JobPhase.RUNNING, waiting_since_s=None)


def _frozen(group: Group) -> Group:
    """What is there, and no other size."""
    return replace(group, min=group.placed, max=group.placed, replicas=group.placed)


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
