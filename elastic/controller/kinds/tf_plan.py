"""Which replicas a TFJob is to have, and where those go that are not there. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from elastic.controller.kinds.placing import Placement, Seat, place, take
from elastic.controller.kinds.pods import name_of, replica_name, uid_of
from elastic.controller.kinds.rooms import Demand, Room, Rooms, demand_of
from elastic.controller.kinds.tf_replicas import Replica
from elastic.controller.reconciling import Observed
from elastic.controller.resources.tf_job import SHARE_PODS, Role, TFJobSpec, TFJobStatus
from elastic.platforms.kubernetes.api.resources import PODS, Manifest


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
