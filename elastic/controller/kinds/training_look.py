"""One look at a TrainingJob: what it is made of, what there is, and what is told of it. Pure.

It is made of ReplicaSets of master and parameter servers and a Job of trainers. Its pods are told
how large the job is by their environment (TRAINERS, PSERVERS, PADDLE_INIT_NUM_GRADIENT_SERVERS),
and that of a running pod cannot change. So these are always the minimum, as of when the ReplicaSet
or Job was made, and its template is never changed again: every pod of the job then reads the same
numbers, whenever it was started. Programs that need them are those without fault tolerance, whose
size changes only where somebody edits the minimum; such an edit reaches no environment. The others
find who is there by the labels of the pods.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pydantic import ValidationError

from elastic.controller.kinds.common import Queued, queue_missing, queue_notes, queue_of
from elastic.controller.reconciling import EventType, Note, Observed
from elastic.controller.resources.common import MAX_INT32, Reading, time_text, without_blanks
from elastic.controller.resources.training_job import (
    MasterSpec,
    Phase,
    PserverSpec,
    Role,
    RoleResources,
    RoleScale,
    RoleStatus,
    ScaleStatus,
    TrainerSpec,
    TrainingJobSpec,
    TrainingJobStatus,
)
from elastic.platforms.kubernetes.api.resources import (
    BATCH_JOBS,
    PODS,
    REPLICA_SETS,
    Manifest,
    Resource,
)
from elastic.platforms.kubernetes.pods import (
    RUNNING,
    SUCCEEDED,
    conditions_of,
    ends_of,
    has_ended,
    has_failed,
    holds,
    is_deleted,
    joined,
    outside_cause,
    phase_of,
)
from elastic.spec.values import NANO, nanos_of

LABELS: Final = {
    Role.MASTER: "paddle-job-master",
    Role.PSERVER: "paddle-job-pserver",
    Role.TRAINER: "paddle-job",
}
"""What the pods of each role are found by, by the job's name. The start scripts of the images count
pods by them: no pod has the label of another role."""

MADE_FROM: Final = "elastic.dev/made-from"
"""Annotation: a digest of what was read of the spec, apart from sizes."""

RESOURCES: Final = {
    Role.MASTER: REPLICA_SETS,
    Role.PSERVER: REPLICA_SETS,
    Role.TRAINER: BATCH_JOBS,
}

_GPUS: Final = ("nvidia.com/gpu", "amd.com/gpu", "alpha.kubernetes.io/nvidia-gpu")
_VOLUME: Final = "job"
"""The volume at `mountPath` of a job that names none."""


def child_name(job: str, role: Role) -> str:
    """Of the ReplicaSet or Job."""
    return f"{job}-{role}"


def size_path(role: Role) -> str:
    """The field of a child's spec that says how many pods there are to be."""
    return "parallelism" if role is Role.TRAINER else "replicas"


def child_of(job: str, role: Role, spec: TrainingJobSpec, size: int) -> Manifest:
    """The ReplicaSet or Job of a role.

    Args:
        job: The job's name.
        role: One that the job has.
        spec: The job's.
        size: How many pods there are to be.
    """
    labels = {LABELS[role]: job}
    resource: Resource = RESOURCES[role]
    template = {"metadata": {"labels": labels}, "spec": _pod_spec(job, role, spec)}
    rest = _job_rest() if role is Role.TRAINER else {"selector": {"matchLabels": labels}}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": child_name(job, role),
            "labels": labels,
            "annotations": {MADE_FROM: template_digest(spec)},
        },
        "spec": {size_path(role): size, **rest, "template": template},
    }


def _job_rest() -> Manifest:
    """No `completions`: they could not be changed with the size, and without them Kubernetes holds
    `parallelism` pods until the first has succeeded, and then lets the others come to their end.

    It replaces failed ones until `backoffLimit`, which also counts those that a shrinking job
    loses. Whether the job has failed is seen by the pods.
    """
    return {"backoffLimit": MAX_INT32}


def template_digest(spec: TrainingJobSpec) -> str:
    """Differs where two specs differ in more than sizes."""
    sizes = {"min_instance", "max_instance"}
    text = spec.model_dump_json(by_alias=True, exclude={"trainer": sizes, "pserver": sizes})
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _pod_spec(job: str, role: Role, spec: TrainingJobSpec) -> Manifest:
    volumes, mounts = _volumes(spec)
    container = {
        "name": role.value,
        "image": spec.image,
        "command": _command(role, spec),
        **_some("ports", _ports(role, spec)),
        "env": _environment(job, spec),
        **_some("resources", _written(_role_spec(role, spec).resources)),
        **_some("volumeMounts", mounts),
    }
    return {
        "containers": [container],
        # A trainer that was restarted in place would be taken for one that never failed.
        "restartPolicy": "Never" if role is Role.TRAINER else "Always",
        **_some("volumes", volumes),
        **_some("nodeSelector", dict(spec.node_selector)),
        **_some("tolerations", list(spec.tolerations)),
        **_some("imagePullSecrets", [{"name": each.name} for each in spec.image_pull_secrets]),
        **(_HOST_NETWORK if spec.host_network else {}),
    }


_HOST_NETWORK: Final = {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
"""By the node's own DNS the services of the cluster are not found."""


def _some(key: str, value: Any) -> Manifest:
    return {key: value} if value else {}


def _role_spec(role: Role, spec: TrainingJobSpec) -> MasterSpec | PserverSpec | TrainerSpec:
    match role:
        case Role.MASTER:
            return spec.master or MasterSpec()
        case Role.PSERVER:
            return spec.pserver
    return spec.trainer


def _written(resources: RoleResources) -> Manifest:
    return {
        **_some("limits", dict(resources.limits)),
        **_some("requests", dict(resources.requests)),
    }


def _command(role: Role, spec: TrainingJobSpec) -> list[str]:
    own = _role_spec(role, spec).command
    if own is not None:
        return list(own)
    match role:
        case Role.MASTER:
            return ["paddle_k8s", "start_master"]
        case Role.PSERVER:
            start = "start_new_pserver" if spec.fault_tolerant else "start_pserver"
            return ["paddle_k8s", start]
    if spec.fault_tolerant:
        return ["paddle_k8s", "start_new_trainer"]
    # The script of the images asks for the version of the program's interface: v1 was a topology
    # file, which no job of this kind can name.
    return ["paddle_k8s", "start_trainer", "v2"]


def _ports(role: Role, spec: TrainingJobSpec) -> list[Manifest]:
    """On the network of the node a port is taken from the node, so that two pods which name the
    same one cannot share it: there only the parameter servers do, who listen.
    """
    if spec.host_network and role is not Role.PSERVER:
        return []
    ports = range(spec.port, spec.port + spec.num_ports)
    return [{"name": f"jobport-{port}", "containerPort": port} for port in ports]


def _volumes(spec: TrainingJobSpec) -> tuple[list[Manifest], list[Manifest]]:
    """The volumes of each pod, and where its container has them."""
    volumes: list[Manifest] = [dict(each) for each in spec.volumes]
    mounts: list[Manifest] = [dict(each) for each in spec.volume_mounts]
    path = spec.mount_path
    # A mount that was written for this very path says more than we can.
    if path is None or any(mount["mountPath"] == path for mount in mounts):
        return volumes, mounts
    volumes = volumes or [{"name": _VOLUME, "emptyDir": {}}]
    return volumes, [{"name": volumes[0]["name"], "mountPath": path}, *mounts]


def _environment(job: str, spec: TrainingJobSpec) -> list[Manifest]:
    trainers, gpus = spec.trainer.min_instance, _gpus(spec.trainer.resources)
    values = {
        "PADDLE_JOB_NAME": job,
        "TRAINERS": trainers,
        "PSERVERS": spec.pserver.min_instance,
        "ENTRY": spec.trainer.entrypoint,
        # What images from before the name ENTRY read.
        "TOPOLOGY": spec.trainer.entrypoint,
        "TRAINER_PACKAGE": spec.trainer.workspace,
        "PADDLE_INIT_PORT": spec.port,
        "PADDLE_INIT_PORTS_NUM": spec.ports_num,
        "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": spec.ports_num_for_sparse,
        # Of one trainer's process: as many threads as it has GPUs, or else cores.
        "PADDLE_INIT_TRAINER_COUNT": gpus or _cores(spec.trainer.resources),
        "PADDLE_INIT_NUM_GRADIENT_SERVERS": trainers,
        "PADDLE_INIT_NUM_PASSES": spec.num_passes,
        "PADDLE_INIT_USE_GPU": int(gpus > 0),
    }
    return [
        *({"name": name, "value": str(value)} for name, value in values.items()),
        {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]


def _gpus(resources: RoleResources) -> int:
    # The limits alone give devices.
    return sum(_whole(resources.limits, name) for name in _GPUS)


def _cores(resources: RoleResources) -> int:
    return max(1, _whole(resources.requests or resources.limits, "cpu"))


def _whole(amounts: Mapping[str, int | float | str], name: str) -> int:
    return nanos_of(amounts.get(name, 0)) // NANO


# One look at a TrainingJob: what there is, what there is to be, and what is told of it. Pure.
#
# Its pods tell, with the ReplicaSets and the Job that own them. Every job is to have its minimum:
# what else there is room for is a matter of all jobs together. Told are its status, and the events
# that are not of actions.


LEAVING: Final = "Terminating"
"""What Kubernetes has no phase for, though its tools say so."""

_MAX_FAILED: Final = 200
"""A trainer that fails again and again leaves a pod each time, and a status has bounds."""
_MAX_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Group:
    """One role of a job.

    Attributes:
        owner: The ReplicaSet or Job; None where there is none.
        pods: Those of this very owner, the oldest first.
        before: What was told of the pods last.
    """

    role: Role
    owner: Manifest | None
    pods: Sequence[Manifest] = ()
    before: RoleStatus | None = None

    @property
    def is_leaving(self) -> bool:
        """Whether the owner is about to be gone, so that its name cannot be taken yet."""
        return self.owner is not None and is_deleted(self.owner)

    @property
    def size(self) -> int:
        """How many pods the owner is to have."""
        return 0 if self.owner is None else int(self.owner["spec"].get(size_path(self.role), 1))

    @property
    def active(self) -> list[Manifest]:
        """Pods that run, or are about to; a node that does not answer ends none of them."""
        return [pod for pod in self.pods if not has_ended(pod) and not is_deleted(pod)]

    @property
    def running(self) -> list[Manifest]:
        """Pods that run."""
        return [pod for pod in self.active if phase_of(pod) == RUNNING]

    @property
    def failed(self) -> list[Manifest]:
        """Pods that failed by themselves; one that was asked to end was not wanted any more."""
        return [pod for pod in self.pods if has_failed(pod)]

    @property
    def num_succeeded(self) -> int:
        """Pods that ended well by themselves; also those that were cleaned up since.

        A program may well end with 0 when it is asked to go. The Job counts that as a success, so
        that of its own count only as much is believed as was seen before.
        """
        seen = {name for name, state in self.states.items() if state == "Succeeded"}
        if self.before is None:
            return len(seen)
        states = self.before.resource_states.items()
        told = {name for name, state in states if state == "Succeeded"}
        # Those that had been cleaned up by then have no name any more.
        known = self.before.succeeded - len(told) + len(told | seen)
        # An earlier Job of this name may be what was told of; this one may lag behind its pods.
        return max(len(seen), min(known, self._counted + len(seen)))

    @property
    def starts_none(self) -> bool:
        """Whether Kubernetes starts no pod any more: one has ended well, by itself or not."""
        return self._counted > 0 or any(phase_of(pod) == SUCCEEDED for pod in self.pods)

    @property
    def _counted(self) -> int:
        status: Mapping[str, Any] = (self.owner or {}).get("status") or {}
        return int(status.get("succeeded") or 0) if self.role is Role.TRAINER else 0

    @property
    def num_ready(self) -> int:
        """Pods that run and answer."""
        return sum(holds(pod, "Ready") for pod in self.running)

    @property
    def is_complete(self) -> bool:
        """Whether Kubernetes has seen the Job's end, a good one."""
        return any(holds(self.owner, type_) for type_ in ("Complete", "SuccessCriteriaMet"))

    @property
    def job_failure(self) -> str:
        """Why Kubernetes has given up the Job; empty where it has not."""
        for type_ in ("Failed", "FailureTarget"):
            if holds(self.owner, type_):
                told = conditions_of(self.owner)[type_]
                return joined(told.get("reason"), told.get("message")) or type_
        return ""

    @property
    def states(self) -> dict[str, str]:
        """What each pod does, by its name: its phase, as long as it was not asked to go."""
        failed = [str(pod["metadata"]["name"]) for pod in self.failed]
        states = {
            str(pod["metadata"]["name"]): LEAVING if is_deleted(pod) else phase_of(pod)
            for pod in self.pods
        }
        for name in failed[:-_MAX_FAILED]:
            del states[name]
        return dict(sorted(states.items()))


Groups: TypeAlias = Mapping[Role, Group]
"""All roles of a job, whether there is anything of them or not."""


def groups_of(
    job: Manifest, children: Mapping[Resource, Sequence[Manifest]], status: TrainingJobStatus
) -> Groups:
    """What there is of a job.

    Args:
        status: As it was written last.
    """
    name = str(job["metadata"]["name"])
    before = {each.training_resource_type: each for each in status.replica_statuses}
    return {role: _group(name, role, children, before.get(role)) for role in Role}


def _group(
    job: str,
    role: Role,
    children: Mapping[Resource, Sequence[Manifest]],
    before: RoleStatus | None,
) -> Group:
    owners = children.get(RESOURCES[role], ())
    owner = next((o for o in owners if o["metadata"]["name"] == child_name(job, role)), None)
    if owner is None:
        return Group(role, None)
    # An earlier owner of that name may have left some, which go with it.
    pods = [
        pod
        for pod in children.get(PODS, ())
        if (pod["metadata"].get("labels") or {}).get(LABELS[role]) == job
        and _controller_uid(pod) == owner["metadata"].get("uid")
    ]
    pods.sort(key=lambda pod: str(pod["metadata"].get("creationTimestamp") or ""))
    return Group(role, owner, pods, before)


def _controller_uid(pod: Manifest) -> str | None:
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), None)


def failures(pods: Sequence[Manifest]) -> str:
    """Which pods failed, on which nodes, and why, for people."""
    told = "; ".join(_failure(pod) for pod in pods[:_MAX_NAMED])
    more = len(pods) - _MAX_NAMED
    return told if more <= 0 else f"{told}; and {more} more"


def _failure(pod: Manifest) -> str:
    node = (pod.get("spec") or {}).get("nodeName")
    where = f" on node {node}" if node else ""
    return f"pod {pod['metadata']['name']}{where}: {_why_failed(pod)}"


def _why_failed(pod: Manifest) -> str:
    """The cluster's own words, else the containers'."""
    cause = outside_cause(pod)
    if cause is not None:
        return cause
    for end in ends_of(pod):
        code, reason = end.get("exitCode"), str(end.get("reason") or "")
        if code:
            # `Error` says no more than that the code is not 0.
            told = f"{reason}, " if reason not in {"", "Error"} else ""
            return f"{told}exit code {code}"
    return "ended without a reason"


@dataclass(frozen=True, slots=True)
class Size:
    """How many instances of a role.

    Attributes:
        reason: Why so many, for people.
    """

    wanted: int
    reason: str


@dataclass(frozen=True, slots=True)
class Sizes:
    """Those of the roles that have a range."""

    trainers: Size
    pservers: Size

    def of(self, role: Role) -> Size:
        """The size of a role; a job has one master at most."""
        match role:
            case Role.TRAINER:
                return self.trainers
            case Role.PSERVER:
                return self.pservers
        return Size(1, "a job has one master")


def wanted_sizes(spec: TrainingJobSpec, _status: TrainingJobStatus) -> Sizes:
    """The sizes of a job that nobody scales: its smallest ones."""
    return Sizes(_minimum(spec.trainer.min_instance), _minimum(spec.pserver.min_instance))


def given_sizes(spec: TrainingJobSpec, status: TrainingJobStatus) -> Sizes:
    """The sizes that an autoscaler has written down, within the range that the job has now."""
    if not spec.fault_tolerant:
        return wanted_sizes(spec, status)
    trainer, pserver, scale = spec.trainer, spec.pserver, status.scale_status
    return Sizes(
        _given(scale.trainer, trainer.min_instance, trainer.most),
        _given(scale.pserver, pserver.min_instance, pserver.most),
    )


def _minimum(instances: int) -> Size:
    return Size(instances, f"min-instance is {instances}")


def _given(scale: RoleScale, least: int, most: int) -> Size:
    if scale.wanted <= least:
        return Size(least, scale.reason) if scale.wanted == least else _minimum(least)
    if scale.wanted > most:
        return Size(most, f"max-instance is {most}")
    return Size(scale.wanted, scale.reason)


@dataclass(frozen=True, slots=True)
class Look:
    """See the module.

    Attributes:
        status: As it was written last.
        reading: Of the spec, which could be read.
        queued: How its trainers wait in a queue; None where they wait in none.
        lacks_queue: Whether the queue that they are to wait in is not there.
    """

    observed: Observed
    groups: Groups
    status: TrainingJobStatus
    reading: Reading[TrainingJobSpec]
    spec: TrainingJobSpec
    sizes: Sizes
    queued: Queued | None = None
    lacks_queue: bool = False

    @property
    def name(self) -> str:
        """The job's."""
        return str(self.observed.job["metadata"]["name"])

    @property
    def roles(self) -> list[Role]:
        """Those that the job has, in the order in which they are created."""
        return [role for role in Role if role is not Role.MASTER or self.spec.master is not None]

    def wanted(self, role: Role) -> int:
        """How many of a role there are to be: no other trainers where Kubernetes starts none."""
        group = self.groups[role]
        is_frozen = role is Role.TRAINER and group.starts_none
        return group.size if is_frozen else self.sizes.of(role).wanted

    def is_ready(self, role: Role) -> bool:
        """Whether all of a role that others need are there and answer."""
        group = self.groups[role]
        return not group.is_leaving and group.num_ready >= self.wanted(role)

    @property
    def all_run(self) -> bool:
        """Whether all that the job needs is there, and every trainer runs or has succeeded."""
        trainers = self.groups[Role.TRAINER]
        others_are_ready = all(self.is_ready(role) for role in self.roles[:-1])
        num_trainers = len(trainers.running) + trainers.num_succeeded
        return others_are_ready and num_trainers >= self.wanted(Role.TRAINER)


def scale_status(here: Look) -> ScaleStatus:
    """The sizes; the time is that of the last change of what is wanted."""
    return ScaleStatus(trainer=_scale(here, Role.TRAINER), pserver=_scale(here, Role.PSERVER))


def _scale(here: Look, role: Role) -> RoleScale:
    before, size = here.status.scale_of(role), here.sizes.of(role)
    wanted = here.wanted(role)
    reason = size.reason if wanted == size.wanted else _NONE_STARTED
    has_changed = wanted != before.wanted or before.time is None
    return RoleScale(
        current=len(here.groups[role].active),
        wanted=wanted,
        reason=reason,
        time=time_text(here.observed.now_s) if has_changed else before.time,
    )


_NONE_STARTED: Final = "Kubernetes starts no trainer after the first success"


def now_has(scale: RoleScale, group: Group) -> RoleScale:
    """The size of a role whose job has ended: what was wanted last, and what is left."""
    return scale.model_copy(update={"current": len(group.active)})


def replica_statuses(groups: Groups, roles: Sequence[Role]) -> list[RoleStatus]:
    """The pods of each of these roles."""
    return [
        RoleStatus(
            training_resource_type=role,
            active=len(groups[role].running),
            succeeded=groups[role].num_succeeded,
            failed=len(groups[role].failed),
            resource_states=groups[role].states,
        )
        for role in roles
    ]


def is_new_spec(job: Manifest, status: TrainingJobStatus) -> bool:
    """Whether nothing was told of this spec yet."""
    return status.phase is Phase.NONE or status.observed_generation != generation(job)


def generation(job: Manifest) -> int | None:
    """The number of its spec, which every change of it raises."""
    number: int | None = job["metadata"].get("generation")
    return number


def status_of(job: Manifest) -> TrainingJobStatus:
    """The status as it was written last; of one that somebody made unreadable, the phase.

    Everything else is seen anew, and a job that has ended must not begin again.
    """
    status = job.get("status") or {}
    try:
        return TrainingJobStatus.model_validate(status)
    except ValidationError:
        phase = status.get("phase") if isinstance(status, Mapping) else None
        return TrainingJobStatus(phase=Phase(phase) if phase in tuple(Phase) else Phase.NONE)


def written(status: TrainingJobStatus) -> Manifest:
    """As it is in the object."""
    told: Manifest = without_blanks(status.model_dump(mode="json", by_alias=True))
    return told


def warnings(here: Look) -> list[Note]:
    """What is told of a spec once: when it is first seen."""
    if not is_new_spec(here.observed.job, here.status):
        return []
    notes = []
    if here.reading.unknown:
        names = ", ".join(here.reading.unknown)
        notes.append(warning("UnknownFields", f"{names}: no such field; it is kept and not used"))
    notes.extend(_unused_ranges(here.spec))
    notes.extend(_ignored_changes(here))
    return notes


def _unused_ranges(spec: TrainingJobSpec) -> list[Note]:
    if spec.fault_tolerant:
        return []
    ranges = {Role.PSERVER: spec.pserver, Role.TRAINER: spec.trainer}
    return [
        warning(
            "NotElastic",
            f"spec.{role}.max-instance={each.most} has no effect: without fault_tolerant the job "
            f"stays at min-instance={each.min_instance}",
        )
        for role, each in ranges.items()
        if each.most > each.min_instance
    ]


def _ignored_changes(here: Look) -> list[Note]:
    made = template_digest(here.spec)
    owners = [here.groups[role].owner for role in Role]
    outdated = [
        str(owner["metadata"]["name"])
        for owner in owners
        if owner is not None
        and (owner["metadata"].get("annotations") or {}).get(MADE_FROM, made) != made
    ]
    if not outdated:
        return []
    return [
        warning(
            "ChangeIgnored",
            f"{', '.join(outdated)} stay as they were made: of a job that was started only "
            "min-instance and max-instance can be changed; submit it anew for the rest",
        )
    ]


def missing_queue(here: Look) -> str:
    """What keeps the trainers of a job waiting whose queue is not there; empty where it is."""
    return queue_missing(*_queue(here)) if here.lacks_queue else ""


def queue_news(here: Look) -> tuple[Note, ...]:
    """That its queue is not there, or has come."""
    is_told = here.status.reason == queue_missing(*_queue(here))
    return queue_notes(*_queue(here), here.lacks_queue, is_told)


def _queue(here: Look) -> tuple[str, str]:
    """The queue that a job asks for, and its namespace."""
    job = here.observed.job
    return queue_of(job), job["metadata"].get("namespace", "default")


def phase_notes(before: Phase, phase: Phase, reason: str) -> list[Note]:
    """The event of a change of phase."""
    if phase is before:
        return []
    match phase:
        case Phase.CREATING:
            return [Note("Creating", "the spec was read; what the job needs is being created")]
        case Phase.RUNNING:
            return [Note("Running", "all that the job needs is ready, and its trainers run")]
        case Phase.SUCCEEDED:
            return [Note("Succeeded", "the trainers have succeeded")]
    return [warning("Failed", reason)]


def warning(reason: str, message: str) -> Note:
    """An event of something that whoever submitted the job should see."""
    return Note(reason, message, EventType.WARNING)
