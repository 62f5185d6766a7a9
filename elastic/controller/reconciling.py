"""What a kind of job is to the controller: objects in, actions and a status out. Pure.

Whoever decides sees objects as the API server has them and remembers nothing: all state that
matters is in the cluster, so that a controller that was just started decides the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, TypeAlias

from elastic.platforms.kubernetes.api.resources import Manifest, Resource


class EventType(StrEnum):
    """As Kubernetes has them."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Note:
    """One event of a job, as `kubectl describe` shows it.

    Attributes:
        reason: One word, in CamelCase.
        message: What happened, for people; equal ones within a few minutes are counted up.
    """

    reason: str
    message: str
    type: EventType = EventType.NORMAL


@dataclass(frozen=True, slots=True)
class Create:
    """Make an object; the job becomes its controller.

    Attributes:
        manifest: Without namespace and owner references, which whoever acts adds. Its name has to
            follow from the job and the object's role, so that a second try meets the first.
        note: Told when it is done; a failure is told by the API server's own words.
        if_taken: Whose an object of this name is that belongs to nobody, and what to do about it,
            for people.
    """

    resource: Resource
    manifest: Manifest
    note: Note | None = None
    if_taken: str = ""


@dataclass(frozen=True, slots=True)
class Patch:
    """Change an object that is there.

    Attributes:
        change: A merge patch (RFC 7386: null removes).
    """

    resource: Resource
    name: str
    change: Manifest
    note: Note | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove an object, if it is still this one.

    Attributes:
        uid: Of the one that is meant; None for whichever has the name.
        grace_s: Seconds a pod may take to end; its own grace where None.
    """

    resource: Resource
    name: str
    uid: str | None = None
    grace_s: float | None = None
    note: Note | None = None


@dataclass(frozen=True, slots=True)
class Rejection:
    """An object that the API server never takes as it is, whoever asks and whenever.

    Attributes:
        why: The API server's own words, with the field and its value.
    """

    create: Create
    why: str


Action: TypeAlias = Create | Patch | Delete


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Nodes and pods of the whole cluster, for kinds that place pods themselves."""

    nodes: Sequence[Manifest]
    pods: Sequence[Manifest]


@dataclass(frozen=True, slots=True)
class Observed:
    """What there is at one moment, from caches.

    Attributes:
        job: The object itself.
        children: By type, sorted by name: what the job controls, and what is controlled by that (as
            the pods of a ReplicaSet). Those that were asked to be removed have a
            `deletionTimestamp` from that moment on.
        now_s: Seconds since the epoch, by the clock of the API server.
        cluster: For kinds that ask for it.
        looked_at: By type, what the kind only looks at in the job's namespace; without the types
            that cannot be seen.
        random_hex: 128 hexadecimal digits that nobody can guess, drawn for this look alone.
    """

    job: Manifest
    children: Mapping[Resource, Sequence[Manifest]]
    now_s: float
    cluster: ClusterView | None = None
    random_hex: str = ""
    looked_at: Mapping[Resource, Sequence[Manifest]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is to be done.

    Attributes:
        actions: In this order; the first that fails ends the pass, which is tried again later.
        status: The whole status as it is to be; written where it differs from what is there, and
            after the actions.
        notes: What happened besides actions; told after the status was written, which says by its
            phase or conditions that it was told.
        again_in_s: When to look again although nothing has changed; None for never.
    """

    actions: Sequence[Action] = ()
    status: Manifest = field(default_factory=dict)
    notes: Sequence[Note] = ()
    again_in_s: float | None = None


class Kind(Protocol):
    """One kind of job.

    Attributes:
        resource: Of its objects, in the version that is watched.
        children: Types of what its jobs control, directly or not; each is watched once for all.
        unwatched: Types of what is made for its jobs and never listed, as of secrets: whether it is
            there shows when it is made again.
        looks_at: Types of what its jobs need of their namespace and do not control, as queues: jobs
            are looked at when one comes or goes, and wait for none.
        component: Source of its events.
        sees_cluster: Whether `Observed.cluster` is wanted.
    """

    # Properties, since a kind may be frozen, and its children a tuple.
    @property
    def resource(self) -> Resource: ...
    @property
    def children(self) -> Sequence[Resource]: ...
    @property
    def unwatched(self) -> Sequence[Resource]: ...
    @property
    def looks_at(self) -> Sequence[Resource]: ...
    @property
    def component(self) -> str: ...
    @property
    def sees_cluster(self) -> bool: ...

    def job_of(self, resource: Resource, child: Manifest) -> str | None:
        """The name of the job, in the namespace of `child`, that it belongs to by its labels.

        What has these labels and no controller is adopted, what has the labels no longer is
        released. None for objects that are no matter of this kind.
        """

    def reconcile(self, observed: Observed) -> Outcome:
        """Decide; called again whenever something has changed. Same in, same out."""

    def rejected(self, observed: Observed, rejection: Rejection) -> Outcome | None:
        """What follows when something that `reconcile` wanted to make can never be made.

        None where the job goes on without it, as one that runs does: it is tried again and told.
        """


@dataclass(frozen=True, slots=True)
class Overview:
    """All jobs at one moment, with what room there is for them, from caches.

    Attributes:
        now_s: Seconds since the epoch, by the clock of the API server.
        nodes: Of the cluster.
        pods: Of the cluster, in all namespaces.
        objects: What else is watched, by type: jobs, and what they are made of.
    """

    now_s: float
    nodes: Sequence[Manifest]
    pods: Sequence[Manifest]
    objects: Mapping[Resource, Sequence[Manifest]]


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be written into one object, as a decision on all jobs together.

    Attributes:
        target: The object as it was looked at: if it is another one by now, nothing is written.
        change: A merge patch of it; None where there is only something to be told.
        part: Its subresource, such as `status`; empty for the object itself.
        told_of: The object that events are of, where that is another one.
    """

    resource: Resource
    target: Manifest
    change: Manifest | None
    component: str
    note: Note | None = None
    part: str = ""
    told_of: Manifest | None = None


class Scaler(Protocol):
    """Decides on all jobs together.

    Attributes:
        period_s: How often it wants to be asked.
        looks_at: Types of objects that it wants to see, where they are watched.
    """

    @property
    def period_s(self) -> float: ...
    @property
    def looks_at(self) -> Sequence[Resource]: ...

    def plan(self, overview: Overview) -> Sequence[Change]:
        """What is to be told and written now, in this order: what gives room before what takes it.

        What follows a change that is refused is not done.
        """
