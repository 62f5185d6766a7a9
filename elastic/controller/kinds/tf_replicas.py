"""The replicas of a TFJob: as they are seen, as they are to be, and what is made for one. Pure.

They are seen from pods, or from SharePods that stand for them. The container named `tensorflow`
decides how a replica has ended: others may run on beside it, as the one that KubeShare adds.
"""

import copy
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from elastic.controller.kinds.common import (
    CLUSTER_CODE,
    index_of,
    name_of,
    pod_restart_policy,
    replica_labels,
    replica_name,
    uid_of,
)
from elastic.controller.kinds.placing import (
    Demand,
    Placement,
    Room,
    Rooms,
    Seat,
    demand_of,
    place,
    take,
)
from elastic.controller.reconciling import Create, Note, Observed
from elastic.controller.resources.common import CARD_ID, RestartPolicy, seconds_of
from elastic.controller.resources.tf_job import (
    CONTAINER,
    DEFAULT_PORT,
    PORT_NAME,
    SHARE_PODS,
    Role,
    TFJobSpec,
    TFJobStatus,
)
from elastic.platforms.kubernetes.api.resources import PODS, SERVICES, Manifest, Resource
from elastic.platforms.kubernetes.pods import (
    RUNNING,
    SUCCEEDED,
    clusters_doing,
    end_of,
    has_ended,
    is_deleted,
    phase_of,
    status_of,
)

GROUP: Final = "kubeflow.org"

TF_CONFIG: Final = "TF_CONFIG"


class Phase(StrEnum):
    """Pending, Running, ended in one way or the other; or between two runs in one pod."""

    PENDING = "Pending"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Replica:
    """One pod of a job, or one SharePod.

    Attributes:
        role: None for one that is none of the job's by its name.
        node: Empty before it has one.
        is_deleted: It was asked to go, and only occupies its name and its room.
        is_over: None of its containers runs any more.
        code: The exit code of the newest run that is over; None where there is none.
        cause: The cluster's own words for having ended it; None where it did not.
        restarts: Of the container, in this pod.
        has_exited_well: Also in a run before, where the pod is restarted whatever happens.
        ran_s: How long the newest run took that is over; 0 where it is not known.
        ended_s: When that was, in seconds since the epoch.
    """

    resource: Resource
    name: str
    uid: str
    role: Role | None
    index: int
    node: str
    is_deleted: bool
    is_over: bool
    phase: Phase
    code: int | None
    cause: str | None
    restarts: int
    has_exited_well: bool
    ran_s: float
    ended_s: float

    @property
    def has_failed(self) -> bool:
        """Whether it is to be replaced, or fails the job."""
        return self.phase is Phase.FAILED and not self.is_deleted

    @property
    def bad_ends(self) -> int:
        """How often it has ended badly, the last end included."""
        return self.restarts + (self.phase is Phase.FAILED)

    @property
    def words(self) -> str:
        """How it has ended, for people."""
        how = self.cause or (
            "ended without a reason" if self.code is None else f"exited with code {self.code}"
        )
        return f"{self.name} on {self.node} {how}" if self.cause is None else f"{self.name}: {how}"

    def is_free(self, policy: RestartPolicy) -> bool:
        """Whether its failure is the cluster's doing, which costs a job nothing."""
        is_signal = self.code is not None and self.code >= CLUSTER_CODE
        return self.cause is not None or (policy is RestartPolicy.EXIT_CODE and is_signal)

    def is_fatal(self, policy: RestartPolicy) -> bool:
        """Whether its failure is one that no replacement follows."""
        may_replace = policy in {RestartPolicy.ALWAYS, RestartPolicy.ON_FAILURE}
        return self.has_failed and not may_replace and not self.is_free(policy)


def replicas_of(observed: Observed) -> tuple[Replica, ...]:
    """All that a job has, by name; not the pods that KubeShare made for its SharePods."""
    job = name_of(observed.job)
    pods = (pod for pod in observed.children.get(PODS, ()) if not _is_of_share_pod(pod))
    found = [_replica(PODS, pod, pod.get("status") or {}, job) for pod in pods]
    found += [
        _replica(SHARE_PODS, each, (each.get("status") or {}).get("PodStatus") or {}, job)
        for each in observed.children.get(SHARE_PODS, ())
    ]
    return tuple(sorted(found, key=lambda replica: replica.name))


def _is_of_share_pod(pod: Manifest) -> bool:
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("kind") == SHARE_PODS.kind for owner in owners)


def _replica(resource: Resource, item: Manifest, status: Mapping[str, Any], job: str) -> Replica:
    name, spec = name_of(item), item["spec"]
    pod = {"metadata": item["metadata"], "status": status}
    role, index = _place_in_job(name, job)
    entry = status_of(pod, CONTAINER)
    ends = [end for run in ("state", "lastState") if (end := end_of(entry, run))]
    newest = ends[0] if ends else {}
    phase = _phase(pod, entry, str(spec.get("restartPolicy") or "Always"))
    began_s, ended_s = (_seconds(newest.get(key)) for key in ("startedAt", "finishedAt"))
    return Replica(
        resource=resource,
        name=name,
        uid=uid_of(item),
        role=role,
        index=index,
        node=str(spec.get("nodeName") or ""),
        is_deleted=is_deleted(item),
        is_over=has_ended(pod),
        phase=phase,
        code=newest.get("exitCode"),
        cause=clusters_doing(pod) if phase is Phase.FAILED else None,
        restarts=int(entry.get("restartCount") or 0),
        has_exited_well=any(end.get("exitCode") == 0 for end in ends),
        ran_s=0.0 if began_s is None or ended_s is None else max(0.0, ended_s - began_s),
        ended_s=ended_s or _seconds(item["metadata"].get("creationTimestamp")) or 0.0,
    )


def _place_in_job(name: str, job: str) -> tuple[Role | None, int]:
    for role in Role:
        index = index_of(name, job, role.task_type)
        if index is not None:
            return role, index
    return None, 0


def _seconds(text: str | None) -> float | None:
    return None if text is None else seconds_of(text)


def _phase(pod: Manifest, entry: Mapping[str, Any], restart_policy: str) -> Phase:
    """How a replica is.

    Args:
        pod: Its metadata and status.
        entry: What it tells of the container; empty before it does.
        restart_policy: Of the pod.
    """
    is_over, ended = has_ended(pod), end_of(entry)
    if ended:
        if ended.get("exitCode") == 0:
            goes_on = restart_policy == "Always" and not is_over
            return Phase.PENDING if goes_on else Phase.SUCCEEDED
        goes_on = restart_policy != "Never" and not is_over
        return Phase.RESTARTING if goes_on else Phase.FAILED
    if is_over:
        return Phase.SUCCEEDED if phase_of(pod) == SUCCEEDED else Phase.FAILED
    before = end_of(entry, "lastState").get("exitCode")
    if "waiting" in (entry.get("state") or {}):
        return Phase.RESTARTING if before else Phase.PENDING
    return Phase.RUNNING if phase_of(pod) == RUNNING else Phase.PENDING


def of_role(replicas: Iterable[Replica], role: Role) -> list[Replica]:
    """Those of one role that were not asked to go."""
    return [each for each in replicas if each.role is role and not each.is_deleted]


@dataclass(frozen=True, slots=True)
class View:
    """One pass over a job whose spec can be read.

    Attributes:
        has_kubeshare: Whether the cluster knows SharePods.
        rooms: Remembers those of the pass before.
        is_planned: Whether a scheduler of all jobs gives sizes and places, by the status.
    """

    observed: Observed
    spec: TFJobSpec
    before: TFJobStatus
    replicas: Sequence[Replica]
    has_kubeshare: bool
    rooms: Rooms
    is_planned: bool = False

    @property
    def name(self) -> str:
        """Of the job."""
        return name_of(self.observed.job)

    @property
    def namespace(self) -> str:
        """Of the job."""
        namespace: str = self.observed.job["metadata"]["namespace"]
        return namespace

    @property
    def has_started(self) -> bool:
        """Whether pods were ever made for it."""
        return bool(self.replicas) or self.before.start_time is not None


Wanted = Mapping[str, tuple[Role, int]]
"""The replicas that are to be there, by the names of their pods, as they are placed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a job is to have.

    Attributes:
        size: How many workers; None for a job that waits for room to start.
        wanted: All replicas of a job of that size; those of the least one while it waits.
        seats: For those that have no pod; without an entry they wait.
        missing: Why something waits, for people; empty where nothing does.
    """

    size: int | None
    wanted: Wanted
    seats: Mapping[str, Seat]
    missing: str = ""


def wanted_of(job: str, spec: TFJobSpec, workers: int) -> Wanted:
    """All replicas of a job with so many workers."""
    return {
        replica_name(job, role.task_type, index): (role, index)
        for role, replicas in spec.roles.items()
        for index in range(workers if role is Role.WORKER else replicas.replicas)
    }


def plan_of(view: View) -> Plan:
    """The size of a job, and the places of what it lacks.

    A job starts with as many workers as there is room for, at least the fewest, or waits. Then its
    size is its own, and changes with what users write; what is lost is replaced where there is
    room, one by one.
    """
    low, first, _ = view.spec.worker_range
    # A chief that works alone has no size that anybody could decide.
    if view.is_planned and Role.WORKER in view.spec.roles:
        return _planned(view)
    if view.has_started:
        size = size_of(view.spec, view.before)
        wanted = wanted_of(view.name, view.spec, size)
        found = _find(view, {}, _lacking(view, wanted))
        return Plan(size, wanted, _by_pod(found), found.missing)
    least = wanted_of(view.name, view.spec, low)
    most = wanted_of(view.name, view.spec, first)
    more = {name: most[name] for name in most if name not in least}
    found = _find(view, _lacking(view, least), _lacking(view, more))
    if not found.seats:
        return Plan(None, least, {}, found.missing)
    size = low + len(found.seats) - len(least)
    return Plan(size, wanted_of(view.name, view.spec, size), _by_pod(found))


def _planned(view: View) -> Plan:
    """The size and the places that are written down, as far as there is room for them by now."""
    if view.before.size is None:
        least = wanted_of(view.name, view.spec, view.spec.worker_range[0])
        return Plan(None, least, {}, "waits for the scheduler: there is no room for it yet")
    size, seats = size_of(view.spec, view.before), view.before.seats
    wanted = seated_of(view.name, view.spec, size, seats)
    lacking = _lacking(view, wanted)
    if not lacking:
        return Plan(size, wanted, {})
    known = {name: Seat(name, each.node, each.card) for name, each in seats.items()}
    found = take(_demands(view, lacking), known, _rooms(view))
    return Plan(size, wanted, _by_pod(found), found.missing)


def seated_of(job: str, spec: TFJobSpec, workers: int, seats: Collection[str]) -> Wanted:
    """All replicas of a job with so many workers: those that have seats, and others beside them."""
    high = max(workers, spec.worker_range[2])
    ordered = sorted(
        range(high),
        key=lambda index: (replica_name(job, Role.WORKER.task_type, index) not in seats, index),
    )
    kept = set(ordered[:workers])
    every = wanted_of(job, spec, high)
    return {
        name: (role, index)
        for name, (role, index) in every.items()
        if role is not Role.WORKER or index in kept
    }


def size_of(spec: TFJobSpec, status: TFJobStatus) -> int:
    """How many workers a job that has started is to have: what it has, unless users wrote anew."""
    low, asked, high = spec.worker_range
    if status.size is None or status.size_asked != asked:
        return asked
    return max(low, min(high, status.size))


def _lacking(view: View, wanted: Wanted) -> Wanted:
    """Those whose names are free."""
    there = {replica.name for replica in view.replicas}
    return {name: each for name, each in wanted.items() if name not in there}


def _by_pod(found: Placement) -> dict[str, Seat]:
    return {seat.pod: seat for seat in found.seats}


_NO_KUBESHARE: Final = (
    "a template has the annotations of KubeShare, and this cluster does not know "
    f"{SHARE_PODS.plural}.{SHARE_PODS.group}: install KubeShare, or ask for whole GPUs"
)


def _find(view: View, required: Wanted, optional: Wanted) -> Placement:
    """Places; the cluster is not looked at where nothing is lacking."""
    if not required and not optional:
        return Placement(())
    least, more = _demands(view, required), _demands(view, optional)
    if not view.has_kubeshare and any(each.share is not None for each in (*least, *more)):
        return Placement((), _NO_KUBESHARE)
    near = {replica.node for replica in view.replicas if not replica.is_deleted}
    return place(least, more, _rooms(view), near)


def _rooms(view: View) -> Sequence[Room]:
    cluster = view.observed.cluster
    assert cluster is not None, "this kind sees the cluster"
    return view.rooms.of(cluster.nodes, _taking_room(view, cluster.pods))


def _demands(view: View, wanted: Wanted) -> list[Demand]:
    return [demand_of(name, view.spec.roles[role].template) for name, (role, _) in wanted.items()]


def _taking_room(view: View, pods: Sequence[Manifest]) -> list[Manifest]:
    """All pods with a node, the job's newest included, and its SharePods that have no pod yet."""
    children = view.observed.children
    by_uid = {uid_of(pod): pod for pod in (*pods, *children.get(PODS, ()))}
    # Those with a pod have its status, and their pod counts for them.
    podless = (
        each
        for each in children.get(SHARE_PODS, ())
        if not (each.get("status") or {}).get("PodStatus")
    )
    return [*by_uid.values(), *podless]


def service_of(job: str, spec: TFJobSpec, role: Role, index: int) -> Create:
    """The name of one replica; it leads to it before it is ready, since all wait for each other."""
    name, labels = _identity(job, role, index)
    port = {"name": PORT_NAME, "port": port_of(spec.roles[role].template)}
    manifest = {
        "apiVersion": SERVICES.api_version,
        "kind": SERVICES.kind,
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": labels,
            "ports": [port],
        },
    }
    return Create(SERVICES, manifest, Note("SuccessfulCreateService", f"Created service: {name}"))


def pod_of(job: str, namespace: str, spec: TFJobSpec, role: Role, index: int, seat: Seat) -> Create:
    """One replica at its place.

    Args:
        job: Its name.
        namespace: Of the job.
        spec: Of the job; it has the role.
        role: What the replica is.
        index: Among those of the role.
        seat: The node, and the card of which the replica has a part.
    """
    name, labels = _identity(job, role, index)
    replicas = spec.roles[role]
    template: Manifest = copy.deepcopy(replicas.template)
    metadata = template.get("metadata") or {}
    annotations = dict(metadata.get("annotations") or {})
    pod_spec = template["spec"]
    config = tf_config(job, namespace, spec, role, index)
    for container in pod_spec["containers"]:
        _configure(container, config)
    for container in (*pod_spec["containers"], *(pod_spec.get("initContainers") or ())):
        _request_limits(container)
    pod_spec["restartPolicy"] = pod_restart_policy(replicas.restart_policy)
    pod_spec["nodeName"] = seat.node
    resource, note = PODS, Note("SuccessfulCreatePod", f"Created pod: {name}")
    if seat.card is not None:
        annotations[CARD_ID] = seat.card
        resource, note = SHARE_PODS, Note("SuccessfulCreateSharePod", f"Created SharePod: {name}")
    manifest: dict[str, Any] = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, "labels": {**(metadata.get("labels") or {}), **labels}},
        "spec": pod_spec,
    }
    if annotations:
        manifest["metadata"]["annotations"] = annotations
    return Create(resource, manifest, note)


def tf_config(job: str, namespace: str, spec: TFJobSpec, role: Role, index: int) -> str:
    """What TensorFlow is told of its cluster, and who it is there.

    All workers that may come are listed, since the environment of a running pod cannot change. An
    evaluator knows the cluster and is no part of it.
    """
    cluster = {
        each.task_type: [
            f"{replica_name(job, each.task_type, i)}.{namespace}.svc:{port_of(replicas.template)}"
            for i in range(spec.worker_range[2] if each is Role.WORKER else replicas.replicas)
        ]
        for each, replicas in spec.roles.items()
        if each is not Role.EVALUATOR
    }
    config = {
        "cluster": dict(sorted(cluster.items())),
        "task": {"type": role.task_type, "index": index},
        "environment": "cloud",
    }
    return json.dumps(config, separators=(",", ":"))


def port_of(template: Manifest) -> int:
    """Where the replicas of a template answer each other."""
    for container in template["spec"]["containers"]:
        for port in container.get("ports") or ():
            if container["name"] == CONTAINER and port.get("name") == PORT_NAME:
                number: int = port["containerPort"]
                return number
    return DEFAULT_PORT


def _identity(job: str, role: Role, index: int) -> tuple[str, dict[str, str]]:
    task_type = role.task_type
    return replica_name(job, task_type, index), replica_labels(job, GROUP, task_type, index)


def _configure(container: Manifest, config: str) -> None:
    others = [each for each in container.get("env") or () if each["name"] != TF_CONFIG]
    container["env"] = [*others, {"name": TF_CONFIG, "value": config}]


def _request_limits(container: Manifest) -> None:
    """Request what is limited and not requested: an API server does so with pods alone."""
    resources: Mapping[str, Any] = container.get("resources") or {}
    if limits := resources.get("limits"):
        requests = {**limits, **(resources.get("requests") or {})}
        container["resources"] = {**resources, "requests": requests}
