"""What a policy is told of a cluster, and what it decides: snapshots in, plans out.

Belongs here: amounts, rules of nodes, snapshots, plans, and what a plan makes of a snapshot. Not
here: the policies (`scaling`), room on nodes (`placement`), objects of Kubernetes, and carrying out
what was decided.
"""

import gc
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import wraps
from typing import Final, Protocol, TypeVar

from elastic.spec.values import NANO, nanos_of, quantity_shown

# Amounts of resources as whole numbers: milli-CPU, bytes, thousandths of a GPU. Pure.


CPU: Final = "cpu"
MEMORY: Final = "memory"
GPU: Final = "nvidia.com/gpu"
"""The cards of which parts can be given out."""

PODS: Final = "pods"
"""Nodes bound how many pods they run, as one more resource."""

MILLI: Final = 1000
"""Thousandths in one core, or one card."""

Amounts = Mapping[str, int]
"""By resource, in the units of `unit_of`; what is not there is 0."""


def is_gpu(resource: str) -> bool:
    """Whether a resource is whole cards, whoever made them: `nvidia.com/gpu`, `amd.com/gpu`."""
    return resource.endswith("/gpu")


def unit_of(resource: str) -> int:
    """Nano-units in the unit in which a resource is counted here."""
    return NANO // MILLI if resource == CPU or is_gpu(resource) else NANO


def needed(resource: str, nanos: int) -> int:
    """What is asked for, rounded up: a pod never gets less than it needs."""
    return -(-nanos // unit_of(resource))


def given(resource: str, nanos: int) -> int:
    """What there is, rounded down: a node never gives more than it has."""
    return nanos // unit_of(resource)


def needed_of(written: Mapping[str, object]) -> dict[str, int]:
    """Amounts of quantities that are asked for, such as `{"cpu": "500m"}`.

    Raises:
        ValueError: One is no quantity, or negative.
    """
    return {name: needed(name, nanos_of(each)) for name, each in written.items()}


def given_of(written: Mapping[str, object]) -> dict[str, int]:
    """Amounts of quantities that there are.

    Raises:
        ValueError: One is no quantity, or negative.
    """
    return {name: given(name, nanos_of(each)) for name, each in written.items()}


def quantity(resource: str, amount: int) -> str:
    """An amount as Kubernetes writes it, for people and for files."""
    return quantity_shown(amount * unit_of(resource))


def total_of(amounts: Iterable[tuple[Amounts, int]]) -> dict[str, int]:
    """The sum of amounts, each taken so many times."""
    total: dict[str, int] = {}
    for each, times in amounts:
        for resource, amount in each.items():
            total[resource] = total.get(resource, 0) + amount * times
    return total


# Which nodes pods may run on: taints, selectors. Pure.


_FORBIDDING: Final = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True)
class Taint:
    """What keeps pods from a node that do not tolerate it."""

    key: str
    value: str
    effect: str


class Tolerating(Protocol):
    """Which taints a pod bears; an empty key or effect stands for all."""

    @property
    def key(self) -> str: ...

    @property
    def operator(self) -> str: ...

    @property
    def value(self) -> str: ...

    @property
    def effect(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Toleration:
    """See `Tolerating`; the operator is `Equal` or `Exists`."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Rules:
    """Which nodes pods may run on.

    Attributes:
        node_selector: Labels that a node has to have.
        nodes: The names of those that affinity leaves; None for all.
    """

    tolerations: tuple[Toleration, ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    nodes: frozenset[str] | None = None

    def admit(self, name: str, labels: Mapping[str, str], taints: Sequence[Taint]) -> bool:
        """Whether a pod may run on a node of that name."""
        return (self.nodes is None or name in self.nodes) and self.admit_alike(labels, taints)

    def admit_alike(self, labels: Mapping[str, str], taints: Sequence[Taint]) -> bool:
        """Whether a pod may run on a node with such labels and taints, whatever its name."""
        is_selected = self.node_selector.items() <= labels.items()
        return is_selected and untolerated(self.tolerations, taints) is None


def untolerated(tolerations: Sequence[Tolerating], taints: Sequence[Taint]) -> Taint | None:
    """The first taint that keeps the pod away; None where there is none."""
    return next(
        (
            taint
            for taint in taints
            if taint.effect in _FORBIDDING
            and not any(_tolerates(each, taint) for each in tolerations)
        ),
        None,
    )


def _tolerates(toleration: Tolerating, taint: Taint) -> bool:
    if toleration.effect not in {"", taint.effect}:
        return False
    if toleration.operator == "Exists":
        return toleration.key in {"", taint.key}
    return (toleration.key, toleration.value) == (taint.key, taint.value)


# What a policy is told of a cluster at one moment: its nodes, its jobs, and what else runs there.
#
# All amounts are whole numbers, all times seconds of one clock. Whoever takes a
# snapshot resolves what Kubernetes leaves open: limits fall back to requests and requests to
# limits, so that both name all resources of a pod; affinity becomes the names of nodes.


class JobPhase(StrEnum):
    """Life of a job as all policies see it: `WAITING → RUNNING → OVER`, of whatever kind it is.

    A job waits until its smallest size runs, also when it has lost what it had.
    """

    WAITING = "Waiting"
    RUNNING = "Running"
    OVER = "Over"


Placement = Mapping[str, int]
"""How many replicas a node has, by its name."""

Cards = Mapping[str, Mapping[str, int]]
"""How many replicas a card has, by the name of its node and its own id."""


@dataclass(frozen=True, slots=True)
class Share:
    """A part of one GPU: thousandths of it, and bytes of its memory."""

    milli: int
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the cluster.

    Attributes:
        allocatable: What its pods may have together.
        card_memory_bytes: Of its smallest GPU; None where nobody has told.
    """

    name: str
    allocatable: Amounts
    is_ready: bool = True
    is_unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    card_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that belongs to no job.

    Attributes:
        node: Where it runs; None while it waits for a node.
        share: Its part of a GPU; None where it has none.
        card: The id of that GPU.
    """

    node: str | None
    requests: Amounts
    limits: Amounts
    rules: Rules = field(default_factory=Rules)
    share: Share | None = None
    card: str | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """The replicas of one role of a job, which are all alike.

    Attributes:
        min: The fewest with which the job works.
        max: The most that it may have.
        replicas: How many it is to have now; 0 where nothing was started yet.
        requests: Of one replica: what a node has to have free for it.
        limits: Of one replica: what counts against the capacity of the cluster.
        placement: Those that have a node and stay. `replicas` less these wait for one.
        leaving: Those that were asked to end and still hold their room; none of `placement`.
        share: The part of a GPU that each has, beside the whole ones of `requests`.
        cards: On which cards those of `placement` are, where they have parts of cards; who is not
            told of is taken to be where first fit would have put it.
        first_node: Where replica 0 is, which stays as long as the job; None where nobody knows.
        asked: With how many its user would like it to start; None where nobody has said.
        role: What the job calls them.
    """

    min: int
    max: int
    replicas: int
    requests: Amounts
    limits: Amounts
    placement: Placement = field(default_factory=dict)
    leaving: Placement = field(default_factory=dict)
    rules: Rules = field(default_factory=Rules)
    share: Share | None = None
    cards: Cards = field(default_factory=dict)
    first_node: str | None = None
    asked: int | None = None
    role: str = "worker"

    @property
    def placed(self) -> int:
        """How many have a node."""
        return sum(self.placement.values()) if self.placement else 0

    @property
    def size_at_start(self) -> int:
        """With how many it starts if there is room: what was asked for, else all that it may have.

        What is to be there already and is not counts as asked for.
        """
        asked = self.replicas or self.max if self.asked is None else self.asked
        return max(self.min, min(self.max, asked))


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a job was seen to be at one size.

    Attributes:
        replicas: Workers that took part.
        nodes: On how many nodes they were.
        samples_per_s: Together.
        global_batch_size: Samples of one update then; None where nobody has told.
        compute_s: Seconds for which one replica computed the gradient of one minibatch, without
            waiting for others; None where nobody has told.
    """

    replicas: int
    nodes: int
    samples_per_s: float
    global_batch_size: int | None = None
    compute_s: float | None = None


@dataclass(frozen=True, slots=True)
class ElasticBatch:
    """A job that lets its global batch be chosen, with what is known of its gradients.

    Attributes:
        min: The batch that its user chose, in samples.
        max: The largest that the user allows.
        grad_sqr: Squared length of the mean gradient.
        grad_var: Variance of the gradient of a batch of `min`; both are 0 until it has measured
            them.
        step: What batches are whole multiples of, and a replica computes at least.
        measured_at: The batch while both were measured; None for `min`.
        noise_growth: The power of the batch by which noise grows with it; None until it has changed
            its batch.
    """

    min: int
    max: int
    grad_sqr: float = 0.0
    grad_var: float = 0.0
    step: int = 1
    measured_at: int | None = None
    noise_growth: float | None = None

    @property
    def is_measured(self) -> bool:
        """Whether anything is known of its gradients."""
        return self.grad_sqr > 0 or self.grad_var > 0

    @property
    def gradients(self) -> "Gradients | None":
        """The same for any smallest batch; None until it has measured them."""
        return Gradients(self.grad_sqr, self.grad_var * self.min) if self.is_measured else None


@dataclass(frozen=True, slots=True)
class Gradients:
    """How much the gradients of a program differ, which says what its larger batches are worth.

    Attributes:
        sqr: Squared length of the mean gradient.
        var: Variance of the gradient of one sample.
    """

    sqr: float
    var: float

    @property
    def noise(self) -> float:
        """Samples of a batch in which variance and gradient weigh the same."""
        return self.var / self.sqr if self.sqr > 0 else math.inf


@dataclass(frozen=True, slots=True)
class Telling:
    """What a job tells of itself; None, or nothing, is unknown.

    Attributes:
        speeds: What was seen, in any order.
        remaining_samples: Samples that are still to be trained on.
        total_samples: Samples of the whole job.
        trained_samples: Samples that it has been trained on so far.
        rescale_s: Seconds of work that a change of its size costs, as measured.
        global_batch_size: Samples of one update now.
        max_local_batch: The most samples that one replica can hold at once.
        elastic_batch: None where the batch is the user's alone.
        first_gradients: What its gradients were at the begin; None where the batch is the user's
            alone, and until they are known.
    """

    speeds: tuple[Speed, ...] = ()
    remaining_samples: float | None = None
    total_samples: float | None = None
    rescale_s: float | None = None
    global_batch_size: int | None = None
    max_local_batch: int | None = None
    elastic_batch: ElasticBatch | None = None
    trained_samples: float | None = None
    first_gradients: Gradients | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """What jobs of one program told that are over.

    Attributes:
        speeds: What was seen, in any order.
        gradients: Of those that choose their batches, at their begin; None where none has
            measured them.
        noise_growth: As `ElasticBatch` has it, in the mean.
    """

    speeds: tuple[Speed, ...] = ()
    gradients: Gradients | None = None
    noise_growth: float | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job that has a size to be decided.

    Attributes:
        workers: The replicas that come and go.
        ps: Its parameter servers; None where it has none.
        others: What it has one or few of as long as it runs: a master, a chief, an evaluator.
        submitted_s: When it came.
        last_scaled_s: When its size was last changed; None where it never was.
        waiting_since_s: Since when it waits; None while it runs.
        is_stoppable: Whether it may have no worker for a while, and goes on later with what it has
            done.
        is_movable: Whether workers that run may come to other nodes, too.
        program: What it has in common with all jobs whose replicas do the same steps, whatever
            their sizes and batches; None where nobody knows.
    """

    name: str
    namespace: str
    kind: str
    workers: Group
    submitted_s: float
    phase: JobPhase
    ps: Group | None = None
    others: tuple[Group, ...] = ()
    last_scaled_s: float | None = None
    waiting_since_s: float | None = None
    telling: Telling = field(default_factory=Telling)
    is_stoppable: bool = False
    is_movable: bool = False
    program: str | None = None

    @property
    def key(self) -> str:
        """Its name among all jobs: `KIND/NAMESPACE/NAME`."""
        return f"{self.kind}/{self.namespace}/{self.name}"

    @property
    def groups(self) -> tuple[Group, ...]:
        """All of them, in the order in which they are started: the workers last."""
        return (*self.others, *((self.ps,) if self.ps is not None else ()), self.workers)

    @property
    def is_waiting(self) -> bool:
        """Whether less than its smallest size has nodes."""
        # Asked of all jobs of a cluster: a generator would cost more.
        for group in self.groups:  # noqa: SIM110
            if group.placed < group.min:
                return True
        return False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A cluster at one moment.

    Attributes:
        now_s: The moment.
        pods: What belongs to no job of `jobs`, and is not over.
        last_change_s: When a job was last started or scaled; None where none ever was.
        shown: By program, what jobs told that are over.
    """

    now_s: float
    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...]
    pods: tuple[Pod, ...] = ()
    last_change_s: float | None = None
    shown: Mapping[str, Shown] = field(default_factory=dict)


# What a policy decides.


P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Decision:
    """The size of one job, where it is to change.

    Where something is placed, the placement is whole: of all replicas that have a node once this is
    carried out, those that stay where they are included. Kinds that choose the nodes of their pods
    follow it; for others it says where room was found, and Kubernetes chooses.

    Attributes:
        job: Its key.
        replicas: How many workers it is to have; 0 for a job that is to wait.
        placement: Where its workers are then; fewer than `replicas` where some wait for a node.
        ps_replicas: How many parameter servers; None where it has none, or they stay as they are.
        ps_placement: Where those are then; None likewise.
        other_placements: Where its other groups are then, by role; without those that stay.
        cards: For groups with parts of GPUs, by role: which cards they have then.
        is_after_others: Whether some of its room is still held by replicas that are leaving, or
            leave by this plan: who chooses the nodes of pods makes them once these have gone.
        reason: Why, for people.
        global_batch_size: Samples of one update from then on; None where it stays as it is.
    """

    job: str
    replicas: int
    reason: str
    placement: Placement | None = None
    ps_replicas: int | None = None
    ps_placement: Placement | None = None
    other_placements: Mapping[str, Placement] = field(default_factory=dict)
    cards: Mapping[str, Cards] = field(default_factory=dict)
    is_after_others: bool = False
    global_batch_size: int | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """Why a job does not get what it lacks, for people."""

    job: str
    text: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done now.

    Attributes:
        decisions: One for each job that changes, in the order in which they are carried out: what
            gives room comes before what takes it.
        notes: On jobs that would change and cannot.
    """

    decisions: tuple[Decision, ...] = ()
    notes: tuple[Note, ...] = ()


class Policy(Protocol):
    """Decides the sizes of all jobs of a cluster.

    A plan is a function of the snapshot alone; carried out, and asked again at the same moment, it
    is empty.
    """

    def plan(self, snapshot: Snapshot) -> Plan:
        """What is to change now."""
        ...


def uncollected(plan: Callable[[P, Snapshot], Plan]) -> Callable[[P, Snapshot], Plan]:
    """Have the collector of cycles rest while a policy plans.

    What is made for a plan lives until it is there, so that it would only walk over all of it,
    again and again: a fifth of the time of a plan for 10,000 jobs, and more.
    """

    @wraps(plan)
    def planned(policy: P, snapshot: Snapshot) -> Plan:
        if not gc.isenabled():
            return plan(policy, snapshot)
        gc.disable()
        try:
            return plan(policy, snapshot)
        finally:
            gc.enable()

    return planned


# What a cluster is once a plan has been carried out, at the same moment.


def carried_out(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The snapshot with all decisions done and their times noted."""
    if not plan.decisions:
        return snapshot
    by_job = {decision.job: decision for decision in plan.decisions}
    jobs = tuple(
        _changed(job, by_job[job.key], snapshot.now_s) if job.key in by_job else job
        for job in snapshot.jobs
    )
    return replace(snapshot, jobs=jobs, last_change_s=snapshot.now_s)


def _changed(job: Job, decision: Decision, now_s: float) -> Job:
    ps = job.ps
    if ps is not None and decision.ps_placement is not None:
        ps = _placed(ps, decision.ps_replicas, decision.ps_placement, decision.cards)
    others = tuple(
        _placed(group, None, decision.other_placements[group.role], decision.cards)
        if group.role in decision.other_placements
        else group
        for group in job.others
    )
    workers = _placed(job.workers, decision.replicas, decision.placement, decision.cards)
    telling = job.telling
    if decision.global_batch_size is not None:
        telling = replace(telling, global_batch_size=decision.global_batch_size)
    changed = replace(
        job, workers=workers, ps=ps, others=others, telling=telling, last_scaled_s=now_s
    )
    if changed.is_waiting:
        return replace(changed, phase=JobPhase.WAITING)
    return replace(changed, phase=JobPhase.RUNNING, waiting_since_s=None)


def _placed(
    group: Group,
    replicas: int | None,
    placement: Placement | None,
    cards: Mapping[str, Mapping[str, Mapping[str, int]]],
) -> Group:
    if placement is None:
        return group if replicas is None else replace(group, replicas=replicas)
    count = sum(placement.values()) if replicas is None else replicas
    return replace(
        group, replicas=count, placement=placement, cards=cards.get(group.role, group.cards)
    )
