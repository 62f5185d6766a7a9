"""Nodes, pods and jobs of all kinds as policies see them. Pure: objects in, values out."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, TypeAlias

from pydantic import ValidationError

from elastic.controller.kinds.common import (
    GROUP_LABEL,
    JOB_LABEL,
    TYPE_LABEL,
    ended_as,
    index_of,
    replica_name,
)
from elastic.controller.kinds.placing import demand_of, is_allowed, needs_of
from elastic.controller.kinds.training_look import LABELS, child_of, status_of
from elastic.controller.resources import elastic_job, tf_job, training_job
from elastic.controller.resources.common import CARD_ID, PodParts, read_spec, seconds_of, time_text
from elastic.errors import PlatformError
from elastic.platforms.base import JobControl
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.masters import published_status
from elastic.platforms.kubernetes.objects import names
from elastic.platforms.kubernetes.objects.manifests import (
    Submission,
    control_of,
    example_pod,
    master_pod,
    spec_of,
    submission_of,
)
from elastic.platforms.kubernetes.objects.names import TRAIN_JOBS
from elastic.platforms.kubernetes.objects.podspec import Job
from elastic.platforms.kubernetes.pods import has_ended
from elastic.policy.cluster import (
    GPU,
    ElasticBatch,
    Gradients,
    Group,
    Node,
    Pod,
    Rules,
    Share,
    Speed,
    Taint,
    Telling,
    Toleration,
    given_of,
    needed,
)
from elastic.policy.fleet import desired_workers
from elastic.policy.updates.elastic_batch import GradientNoise, elastic_batch
from elastic.spec.job import JobSpec
from elastic.spec.roles import FLEET, MASTER, WORKER
from elastic.spec.status import BatchStatus, JobPhase, JobStatus

_CARD_MEMORY: Final = "kubeshare/gpu_info"
"""KubeShare's annotation of nodes: `UUID:MIB,UUID:MIB,`."""

_MIB_BITS: Final = 20


def node_of(node: Manifest) -> Node:
    """A node."""
    status, spec, metadata = node.get("status") or {}, node.get("spec") or {}, node["metadata"]
    conditions = {each.get("type"): each.get("status") for each in status.get("conditions") or ()}
    info = (metadata.get("annotations") or {}).get(_CARD_MEMORY) or ""
    sizes = [each.rpartition(":")[2] for each in info.split(",") if each]
    return Node(
        str(metadata["name"]),
        given_of(status.get("allocatable") or {}),
        is_ready=conditions.get("Ready") == "True",
        is_unschedulable=bool(spec.get("unschedulable")),
        taints=tuple(
            Taint(*(str(taint.get(part) or "") for part in ("key", "value", "effect")))
            for taint in spec.get("taints") or ()
        ),
        labels=metadata.get("labels") or {},
        card_memory_bytes=min(
            (int(size) << _MIB_BITS for size in sizes if size.isdecimal()), default=None
        ),
    )


@dataclass(frozen=True, slots=True)
class Needs:
    """What a pod, or each pod of a template, asks for."""

    requests: Mapping[str, int]
    limits: Mapping[str, int]
    rules: Rules
    share: Share | None


def needs_of_template(template: Manifest, nodes: Sequence[Node]) -> Needs:
    """What each pod of a template asks for; a pod is one of itself.

    Args:
        template: Metadata and spec.
        nodes: All of the cluster: required affinity becomes the names of those that it allows.

    Raises:
        pydantic.ValidationError: The template cannot be read.
    """
    demand = demand_of("", template)
    share = demand.share
    return Needs(
        _amounts(demand.needs),
        _amounts(needs_of(_by_limits(template["spec"]))),
        _rules(demand.parts, nodes),
        None if share is None else Share(needed(GPU, share.request), share.memory_bytes),
    )


def _amounts(nanos: Mapping[str, int]) -> dict[str, int]:
    return {name: needed(name, each) for name, each in nanos.items()}


def _by_limits(spec: Manifest) -> Manifest:
    """The spec as if each container requested its limits, where it has some."""

    def swapped(holder: Manifest) -> Manifest:
        resources = holder.get("resources") or {}
        asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
        return {**holder, "resources": {"requests": asked}}

    groups = {
        key: [swapped(each) for each in spec[key]]
        for key in ("containers", "initContainers")
        if spec.get(key)
    }
    return {**(swapped(spec) if spec.get("resources") else spec), **groups}


def _rules(parts: PodParts, nodes: Sequence[Node]) -> Rules:
    spec = parts.spec
    has_affinity = (
        spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution is not None
    )
    names = None
    if has_affinity:
        # The node of a pod that has one is where it is, and no wish.
        wish = spec.model_copy(update={"node_name": ""})
        names = frozenset(n.name for n in nodes if is_allowed(wish, n.name, n.labels))
    tolerations = tuple(
        Toleration(each.key, each.operator, each.value, each.effect) for each in spec.tolerations
    )
    return Rules(tolerations, spec.node_selector, names)


def other_pods(pods: Iterable[Manifest], nodes: Sequence[Node]) -> tuple[Pod, ...]:
    """Pods that belong to no job and are not over.

    Pods by which KubeShare holds cards are left out: the parts that are given out of a card count
    for it. One that cannot be read takes no room, nor does one that may not have a node yet.
    """
    found = []
    for pod in pods:
        labels = pod["metadata"].get("labels") or {}
        is_gated = node_name(pod) is None and bool(pod["spec"].get("schedulingGates"))
        if has_ended(pod) or is_gated or CARD_ID in labels:
            continue
        try:
            needs = needs_of_template(pod, nodes)
        except ValidationError:
            continue
        found.append(
            Pod(
                node_name(pod), needs.requests, needs.limits, needs.rules, needs.share, card_of(pod)
            )
        )
    return tuple(found)


def node_name(pod: Manifest) -> str | None:
    """Where it is."""
    return str(pod["spec"].get("nodeName") or "") or None


def card_of(pod: Manifest) -> str | None:
    """The card of which it has a part."""
    return (pod["metadata"].get("annotations") or {}).get(CARD_ID)


@dataclass(frozen=True, slots=True)
class Role:
    """What a job says of the replicas of one role.

    Attributes:
        name: What the job calls it.
        low: The fewest.
        high: The most.
        wanted: How many there are to be now; 0 where nobody has decided yet.
        asked: With how many its user would like it to start; None where nobody has said.
        first: The name of the pod of replica 0, where replicas have numbers.
        is_as_pods_are: Whether a pod that is there tells better than the template what each needs,
            since somebody may edit them on their way.
        seats: By the names of pods that are about to be made, the node and the card of each.
    """

    name: str
    template: Manifest
    low: int
    high: int
    wanted: int
    asked: int | None = None
    first: str | None = None
    is_as_pods_are: bool = False
    seats: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)


def group_of(role: Role, pods: Iterable[Manifest], nodes: Sequence[Node]) -> Group:
    """The replicas of a role.

    Args:
        role: What the job says of it.
        pods: Those of the role, also those that are over.
        nodes: All of the cluster.

    Raises:
        pydantic.ValidationError: The template cannot be read.
    """
    pods = list(pods)
    example = next((pod for pod in pods if role.is_as_pods_are), role.template)
    needs = needs_of_template(example, nodes)
    placement: dict[str, int] = defaultdict(int)
    leaving: dict[str, int] = defaultdict(int)
    cards: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    first_node = None
    there: dict[str, tuple[str, str | None]] = {}
    for number, pod in enumerate(pods):
        node = node_name(pod)
        if node is None or has_ended(pod):
            continue
        if pod["metadata"].get("deletionTimestamp"):
            leaving[node] += 1
            continue
        there[str(pod["metadata"].get("name") or number)] = node, card_of(pod)
    # What is about to be made is as good as there: nobody else may have its room.
    for name, (node, card) in {**_usable(role.seats, nodes), **there}.items():
        placement[node] += 1
        if card is not None:
            cards[node][card] += 1
        if name == role.first:
            first_node = node
    return Group(
        role.low,
        role.high,
        role.wanted,
        needs.requests,
        needs.limits,
        placement=dict(placement),
        leaving=dict(leaving),
        rules=needs.rules,
        share=needs.share,
        cards={node: dict(each) for node, each in cards.items()},
        first_node=first_node,
        asked=role.asked,
        role=role.name,
    )


def _usable(
    seats: Mapping[str, tuple[str, str | None]], nodes: Sequence[Node]
) -> Mapping[str, tuple[str, str | None]]:
    """Those on nodes that still take pods."""
    able = {node.name for node in nodes if node.is_ready and not node.is_unschedulable}
    return {name: seat for name, seat in seats.items() if seat[0] in able}


# Jobs of all kinds as policies see them: their ranges, and which pods are theirs. Pure.
#
# Our own are seen by what they were submitted with and what they tell. Whose a size is, an
# autoscaler's or a user's, an object remembers by two annotations: the size that an autoscaler gave
# it last, and a size that a user has set since, with the time until which that holds and is left
# alone. A size that nobody has changed yet is free, as the number of workers of a new job.


AUTOSCALED: Final = "elastic.dev/autoscaled"
"""Annotation: the size that an autoscaler wrote last."""

HELD: Final = "elastic.dev/held"
"""Annotation: a size that a user has set, and until when it holds: `3 2026-01-31T12:00:00Z`."""
_WORKER: Final = "worker"
SUBMITTED: Final = "train"
"""The kind of a job that was submitted without a resource."""


def given(size: int) -> dict[str, str | None]:
    """The annotations of an object that an autoscaler gives a size."""
    return {AUTOSCALED: str(size), HELD: None}


def holding(size: int, until_s: float) -> dict[str, str | None]:
    """The annotations of an object whose size is a user's."""
    return {HELD: f"{size} {time_text(until_s)}"}


def is_held(manifest: Manifest, size: int, now_s: float) -> bool:
    """Whether an object has to keep its size, since a user has set it."""
    if not is_by_hand(manifest, size):
        return False
    until_s = _held_until_s(_annotations(manifest), size)
    return until_s is None or now_s < until_s


def is_news(manifest: Manifest, size: int) -> bool:
    """Whether a user has set a size of which no autoscaler has taken note yet."""
    is_noted = _held_until_s(_annotations(manifest), size) is not None
    return is_by_hand(manifest, size) and not is_noted


def is_by_hand(manifest: Manifest, size: int) -> bool:
    """Whether the size is another one than an autoscaler has given last."""
    return _annotations(manifest).get(AUTOSCALED, str(size)) != str(size)


def is_control_held(control: JobControl, now_s: float) -> bool:
    """The same as `is_held`, of a job of our own."""
    until_s = control.held_until_s
    return is_control_by_hand(control) and (until_s is None or now_s < until_s)


def is_control_news(control: JobControl) -> bool:
    """The same as `is_news`, of a job of our own."""
    return is_control_by_hand(control) and control.held_until_s is None


def is_control_by_hand(control: JobControl) -> bool:
    """The same as `is_by_hand`, of a job of our own."""
    return control.num_workers is not None and not control.autoscaled_for


def _annotations(manifest: Manifest) -> Mapping[str, str]:
    found: Mapping[str, str] = manifest["metadata"].get("annotations") or {}
    return found


def _held_until_s(annotations: Mapping[str, str], size: int) -> float | None:
    """Until when a size is left alone; None where it is none that was taken note of."""
    noted, _, until = annotations.get(HELD, "").partition(" ")
    if noted != str(size):
        return None
    try:
        return seconds_of(until)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class JobReading:
    """One job as its kind reads it.

    Attributes:
        kind: Its kind, as users write it.
        workers: The role that comes and goes.
        labels: By which the pods of each role are found, by the name of the role.
        scaled_s: When its size was last changed; None where nobody knows.
        is_frozen: Whether it stays as it is, whatever its range: nothing of it is made any more.
        is_stoppable: Whether it may have no worker for a while, and goes on later.
        telling: What it tells of itself.
        program: See `Job`.
    """

    kind: str
    name: str
    submitted_s: float
    workers: Role
    ps: Role | None
    others: tuple[Role, ...]
    labels: Mapping[str, Mapping[str, str]]
    scaled_s: float | None = None
    is_frozen: bool = False
    is_stoppable: bool = False
    telling: Telling = field(default_factory=Telling)
    program: str | None = None


@dataclass(frozen=True, slots=True)
class Beside:
    """What a job is read with, beside its object.

    Attributes:
        now_s: The moment, in seconds since the epoch.
        config_maps: Those of our own jobs, by namespace and name.
    """

    now_s: float
    config_maps: Mapping[tuple[str, str], Manifest] = field(default_factory=dict)


ReadJob: TypeAlias = Callable[[Manifest, Beside], JobReading | None]
"""None for a job that has ended, cannot be read, or has no size to be decided."""


def created_s(manifest: Manifest) -> float:
    """When an object was made, in seconds since the epoch."""
    return seconds_of(str(manifest["metadata"]["creationTimestamp"]))


def read_training_job(manifest: Manifest, _beside: Beside) -> JobReading | None:
    """See `ReadJob`."""
    spec, status = read_spec(training_job.TrainingJobSpec, manifest).spec, status_of(manifest)
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
    succeeded = {each.training_resource_type: each.succeeded for each in status.replica_statuses}
    return JobReading(
        training_job.RESOURCE.kind,
        name,
        created_s(manifest),
        role(roles.TRAINER, trainer.min_instance, trainer.most, scale.trainer.wanted),
        role(roles.PSERVER, pserver.min_instance, pserver.most, scale.pserver.wanted),
        master,
        {each.value: {LABELS[each]: name} for each in roles},
        None if time is None else seconds_of(str(time)),
        # Kubernetes starts no trainer after the first success.
        is_frozen=bool(succeeded.get(roles.TRAINER)),
    )


def read_elastic_job(manifest: Manifest, beside: Beside) -> JobReading | None:
    """See `ReadJob`."""
    spec = read_spec(elastic_job.ElasticJobSpec, manifest).spec
    status = _elastic_status(manifest)
    if spec is None or ended_as(status.conditions) is not None:
        return None
    name, size = str(manifest["metadata"]["name"]), spec.replicas
    low, high = spec.min_size, spec.max_size
    if is_held(manifest, size, beside.now_s):
        low = high = size
    first = replica_name(name, _WORKER, 0)
    workers = Role(_WORKER, spec.worker.template, low, high, size, size, first)
    labels = {JOB_LABEL: name, GROUP_LABEL: elastic_job.GROUP, TYPE_LABEL: _WORKER}
    return JobReading(
        elastic_job.RESOURCE.kind,
        name,
        created_s(manifest),
        workers,
        None,
        (),
        {_WORKER: labels},
        # Who has ended well is not made again, and those left end soon.
        is_frozen=bool(status.succeeded_workers),
    )


def _elastic_status(manifest: Manifest) -> elastic_job.ElasticJobStatus:
    try:
        return elastic_job.ElasticJobStatus.model_validate(manifest.get("status") or {})
    except ValidationError:
        return elastic_job.ElasticJobStatus.model_validate({})


SEAT_S: Final = 60.0
"""How long a place is kept for a pod that is to be made there; then another one is looked for."""


def fresh_seats(status: tf_job.TFJobStatus, now_s: float) -> Mapping[str, tf_job.SeatStatus]:
    """Places that are kept, by the names of pods, whether or not these are there."""
    at = status.last_scale_time
    is_fresh = at is not None and now_s - seconds_of(at) < SEAT_S
    return status.seats if is_fresh else {}


def read_tf_job(manifest: Manifest, beside: Beside) -> JobReading | None:
    """See `ReadJob`."""
    spec = tf_job.read_tf_job(manifest).spec
    status = tf_job.read_status(manifest)
    if spec is None or ended_as(status.conditions) is not None:
        return None
    name = str(manifest["metadata"]["name"])
    low, first, high = spec.worker_range
    size, scaled = status.size or 0, status.last_scale_time
    seats = fresh_seats(status, beside.now_s)

    def role(which: tf_job.Role, replicas: tf_job.TFReplicaSpec) -> Role:
        task, count = which.task_type, replicas.replicas
        begins = replica_name(name, task, 0)
        kept = {
            pod: (seat.node, seat.card)
            for pod, seat in seats.items()
            if index_of(pod, name, task) is not None
        }
        if which is tf_job.Role.WORKER:
            return Role(task, replicas.template, low, high, size, first, begins, seats=kept)
        wanted = count if size else 0
        return Role(task, replicas.template, count, count, wanted, first=begins, seats=kept)

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
    return JobReading(
        tf_job.RESOURCE.kind,
        name,
        created_s(manifest),
        workers,
        ps,
        tuple(roles.values()),
        labels,
        None if scaled is None else seconds_of(scaled),
    )


READERS: Final[Mapping[str, ReadJob]] = MappingProxyType(
    {
        "trainingjob": read_training_job,
        "elasticjob": read_elastic_job,
        "tfjob": read_tf_job,
    }
)
"""By the lower-case names of the kinds of their objects."""

RESOURCES: Final = MappingProxyType(
    {
        "trainingjob": training_job.RESOURCE,
        "elasticjob": elastic_job.RESOURCE,
        "tfjob": tf_job.RESOURCE,
    }
)
"""The types of jobs that are objects of their own, by the lower-case names of their kinds."""


def is_record(config_map: Manifest) -> bool:
    """Whether a ConfigMap is what a job of ours was submitted with."""
    metadata = config_map["metadata"]
    labels = metadata.get("labels") or {}
    return (
        labels.get(names.APP_LABEL) == names.APP
        and names.SPEC_KEY in (config_map.get("data") or {})
        and metadata["name"] == names.record_name(labels.get(names.JOB_LABEL, ""))
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
        return JobReading(
            kind_of(submission),
            spec.job_name,
            submission.submitted_s,
            _sized(workers, spec, self.control, now_s),
            None,
            (master, *(each for each in others if each.name != WORKER)),
            {each.name: _labels(spec.job_name, each.name) for each in (master, *others)},
            scaled_s=self.control.autoscaled_s,
            telling=_telling(spec, self.told),
            is_stoppable=not spec.num_workers.minimum,
            program=program_of(spec, submission.image),
        )


def _recorded(record: Manifest, beside: Beside) -> _Recorded | None:
    """None where another version has written what this one cannot read."""
    namespace = str(record["metadata"].get("namespace") or "")
    try:
        spec, submission, control = spec_of(record), submission_of(record), control_of(record)
        status_map = beside.config_maps.get((namespace, names.status_name(spec.job_name)))
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
        first=names.replica_pod_name(job.name, role, 0),
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
    return {names.JOB_LABEL: job_name, names.APP_LABEL: names.APP, names.TYPE_LABEL: role}


def _telling(spec: JobSpec, told: JobStatus | None) -> Telling:
    """What goodput is made of: its speeds, what is left of it, what a change costs."""
    chosen = None if told is None else told.scaling.batch
    first = spec.minibatch_size * spec.gradients_per_update
    known = Telling(
        global_batch_size=first if chosen is None else chosen.records,
        max_local_batch=spec.minibatch_size,
        elastic_batch=_elastic_batch(spec, chosen),
        first_gradients=None if spec.batch_range is None else _first_gradients(chosen),
    )
    if told is None or not told.progress.records_total:
        return known
    done, total = told.progress.records_done, told.progress.records_total
    return replace(
        known,
        speeds=tuple(
            Speed(each.workers, max(1, each.nodes), each.samples_per_s, each.batch or first)
            for each in told.scaling.speeds
        ),
        remaining_samples=float(max(0, total - done)),
        total_samples=float(total),
        rescale_s=told.scaling.rescale_s,
        trained_samples=float(done),
    )


def _first_gradients(told: BatchStatus | None) -> Gradients | None:
    """What they were at the begin, once that is known; masters of before do not tell it."""
    if told is None or not (told.first_grad_sqr or told.first_grad_var):
        return None
    noise = GradientNoise(told.first_grad_sqr, told.first_grad_var, told.updates_measured)
    return Gradients(max(0.0, noise.sqr), max(0.0, noise.var)) if noise.is_known else None


def _elastic_batch(spec: JobSpec, told: BatchStatus | None) -> ElasticBatch | None:
    """What its master chooses the batch by, with the same function as the policy."""
    if spec.batch_range is None:
        return None
    if told is None:
        return elastic_batch(spec.batch_range, spec.minibatch_size, GradientNoise())
    return elastic_batch(
        spec.batch_range,
        spec.minibatch_size,
        GradientNoise(told.grad_sqr, told.grad_var, told.updates_measured),
        told.measured_at or told.records,
        told.noise_growth if told.changes_measured else None,
    )
