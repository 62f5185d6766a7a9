"""What a policy is told of a cluster at one moment: its nodes, its jobs, and what else runs there.

All amounts are whole numbers (`amounts`), all times seconds of one clock. Whoever takes a snapshot
resolves what Kubernetes leaves open: limits fall back to requests and requests to limits, so that
both name all resources of a pod; affinity becomes the names of nodes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from elastic.policy.cluster.amounts import Amounts
from elastic.policy.cluster.rules import Rules, Taint


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
        return sum(self.placement.values())

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
        grad_var: Variance of the gradient of a batch of `min`.
        step: What batches are whole multiples of, and a replica computes at least.
    """

    min: int
    max: int
    grad_sqr: float
    grad_var: float
    step: int = 1


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
    """

    speeds: tuple[Speed, ...] = ()
    remaining_samples: float | None = None
    total_samples: float | None = None
    rescale_s: float | None = None
    global_batch_size: int | None = None
    max_local_batch: int | None = None
    elastic_batch: ElasticBatch | None = None
    trained_samples: float | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """What jobs of one program told that are over.

    Attributes:
        speeds: What was seen, in any order.
    """

    speeds: tuple[Speed, ...] = ()


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
        return any(group.placed < group.min for group in self.groups)


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
