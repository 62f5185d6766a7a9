"""A snapshot of a cluster, made of its objects. Pure: how they were got is not known here.

Jobs that have ended, and those whose spec cannot be read, are not there; what pods of theirs are
left are pods that belong to no job.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from pydantic import ValidationError

from elastic.controller.kinds.conditions import ended_as
from elastic.controller.kinds.pods import GROUP_LABEL, JOB_LABEL, TYPE_LABEL, replica_name
from elastic.controller.kinds.training_children import LABELS, child_of
from elastic.controller.resources import elastic_job, tf_job, training_job
from elastic.controller.resources.base import read_spec
from elastic.controller.resources.common import seconds_of
from elastic.controller.snapshots.pods import Role, group_of, node_of, other_pods
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.policy.cluster.snapshot import Job, JobPhase, Node, Snapshot

_WORKER: Final = "worker"


@dataclass(frozen=True, slots=True)
class Objects:
    """What was seen of a cluster at one moment.

    Attributes:
        pods: Of all namespaces: they take room, whoever they belong to.
        jobs: Objects by the lower-case name of their kind.
        share_pods: SharePods that have no pod yet.
    """

    now_s: float
    nodes: Sequence[Manifest]
    pods: Sequence[Manifest]
    jobs: Mapping[str, Sequence[Manifest]]
    share_pods: Sequence[Manifest] = ()


@dataclass(frozen=True, slots=True)
class _Reading:
    """One job as its kind reads it.

    Attributes:
        workers: The role that comes and goes.
        labels: By which the pods of each role are found, by the name of the role.
        scaled_s: When its size was last changed; None where nobody knows.
    """

    workers: Role
    ps: Role | None
    others: tuple[Role, ...]
    labels: Mapping[str, Mapping[str, str]]
    scaled_s: float | None = None


def snapshot_of(objects: Objects) -> Snapshot:
    """The cluster as policies see it."""
    nodes = tuple(sorted((node_of(each) for each in objects.nodes), key=lambda each: each.name))
    pods = _Pods([*objects.pods, *objects.share_pods])
    jobs = [
        job
        for kind, manifests in sorted(objects.jobs.items())
        for manifest in manifests
        if (job := _job(_READERS[kind], manifest, pods, nodes)) is not None
    ]
    jobs.sort(key=lambda each: (each.submitted_s, each.key))
    changes = [each.last_scaled_s for each in jobs if each.last_scaled_s is not None]
    others = other_pods(pods.left(), nodes)
    return Snapshot(objects.now_s, nodes, tuple(jobs), others, max(changes, default=None))


def as_submitted(kind: str, manifest: Manifest, nodes: Sequence[Node]) -> Job | None:
    """A job as it was when it came, whatever became of it; None where it cannot be read.

    Args:
        kind: The lower-case name of its kind.
        manifest: The job.
        nodes: All of the cluster.
    """
    job = _job(_READERS[kind], {**manifest, "status": {}}, _Pods(()), nodes)
    return None if job is None else replace(job, workers=replace(job.workers, replicas=0))


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


def _job(
    read: Callable[[Manifest], _Reading | None],
    manifest: Manifest,
    pods: _Pods,
    nodes: Sequence[Node],
) -> Job | None:
    reading = read(manifest)
    if reading is None:
        return None
    metadata = manifest["metadata"]
    namespace, name = str(metadata.get("namespace") or ""), str(metadata["name"])
    roles = [each for each in (reading.workers, reading.ps, *reading.others) if each is not None]
    found = {role.name: pods.find(namespace, reading.labels[role.name]) for role in roles}
    try:
        groups = {role.name: group_of(role, found[role.name], nodes) for role in roles}
    except ValidationError:
        return None
    for each in found.values():
        pods.take(each)
    submitted_s = seconds_of(str(metadata["creationTimestamp"]))
    job = Job(
        name,
        namespace,
        str(manifest["kind"]),
        groups[reading.workers.name],
        submitted_s,
        JobPhase.WAITING,
        ps=None if reading.ps is None else groups[reading.ps.name],
        others=tuple(groups[role.name] for role in reading.others),
        last_scaled_s=reading.scaled_s,
        waiting_since_s=submitted_s,
    )
    if job.is_waiting:
        return job
    return replace(job, phase=JobPhase.RUNNING, waiting_since_s=None)


def _training_job(manifest: Manifest) -> _Reading | None:
    spec = read_spec(training_job.TrainingJobSpec, manifest).spec
    status = training_job.TrainingJobStatus.model_validate(manifest.get("status") or {})
    if spec is None or status.phase.is_final:
        return None
    name = str(manifest["metadata"]["name"])

    def role(which: training_job.Role, low: int, high: int, wanted: int) -> Role:
        template = child_of(name, which, spec, low)["spec"]["template"]
        # Without fault tolerance the job is not elastic.
        return Role(which.value, template, low, high if spec.fault_tolerant else low, wanted)

    scale = status.scale_status
    trainer, pserver = spec.trainer, spec.pserver
    roles = training_job.Role
    master = (role(roles.MASTER, 1, 1, 1),) if spec.master is not None else ()
    time = scale.trainer.time
    return _Reading(
        role(roles.TRAINER, trainer.min_instance, trainer.most, scale.trainer.wanted),
        role(roles.PSERVER, pserver.min_instance, pserver.most, scale.pserver.wanted),
        master,
        {each.value: {LABELS[each]: name} for each in roles},
        None if time is None else seconds_of(str(time)),
    )


def _elastic_job(manifest: Manifest) -> _Reading | None:
    spec = read_spec(elastic_job.ElasticJobSpec, manifest).spec
    status = elastic_job.ElasticJobStatus.model_validate(manifest.get("status") or {})
    if spec is None or ended_as(status.conditions) is not None:
        return None
    name = str(manifest["metadata"]["name"])
    first = replica_name(name, _WORKER, 0)
    template = spec.worker.template
    workers = Role(
        _WORKER, template, spec.min_size, spec.max_size, spec.replicas, spec.replicas, first
    )
    labels = {JOB_LABEL: name, GROUP_LABEL: elastic_job.GROUP, TYPE_LABEL: _WORKER}
    return _Reading(workers, None, (), {_WORKER: labels})


def _tf_job(manifest: Manifest) -> _Reading | None:
    spec = tf_job.read_tf_job(manifest).spec
    status = tf_job.read_status(manifest)
    if spec is None or ended_as(status.conditions) is not None:
        return None
    name = str(manifest["metadata"]["name"])
    low, first, high = spec.worker_range
    size = status.size or 0

    def role(which: tf_job.Role, replicas: tf_job.TFReplicaSpec) -> Role:
        task, count = which.task_type, replicas.replicas
        begins = replica_name(name, task, 0)
        if which is tf_job.Role.WORKER:
            return Role(task, replicas.template, low, high, size, first, begins)
        return Role(task, replicas.template, count, count, count if size else 0, first=begins)

    roles = {which: role(which, replicas) for which, replicas in spec.roles.items()}
    workers = roles.pop(tf_job.Role.WORKER, None)
    if workers is None:
        # A chief that works alone has no size to be decided.
        return None
    ps = roles.pop(tf_job.Role.PS, None)
    labels = {
        which.task_type: {
            JOB_LABEL: name,
            GROUP_LABEL: tf_job.RESOURCE.group,
            TYPE_LABEL: which.task_type,
        }
        for which in tf_job.Role
    }
    return _Reading(workers, ps, tuple(roles.values()), labels)


_READERS: Final[Mapping[str, Callable[[Manifest], _Reading | None]]] = MappingProxyType(
    {"trainingjob": _training_job, "elasticjob": _elastic_job, "tfjob": _tf_job}
)

RESOURCES: Final = MappingProxyType(
    {
        "trainingjob": training_job.RESOURCE,
        "elasticjob": elastic_job.RESOURCE,
        "tfjob": tf_job.RESOURCE,
    }
)
"""The types of jobs that can be read, by the lower-case names of their kinds."""
