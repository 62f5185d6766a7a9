"""How nodes, pods and jobs are written in files. Pure.

Quantities are those of Kubernetes. Limits fall back to requests, and requests to limits, each
resource by itself. Nothing is added to what is written: a pod counts against the number of pods of
a node where both name `pods`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

from pydantic import BeforeValidator, Field, model_validator

from elastic.planning.documents import Form
from elastic.policy.cluster.amounts import GPU, Amounts, given_of, needed, needed_of
from elastic.policy.cluster.rules import Rules, Taint, Toleration
from elastic.policy.cluster.snapshot import (
    Group,
    Job,
    JobPhase,
    Node,
    Pod,
    Share,
    Telling,
)
from elastic.spec.quantities import nanos_of


def _of_mapping(read: Any) -> BeforeValidator:
    """A reader of quantities that says what it expects where there are none."""

    def checked(written: object) -> object:
        if not isinstance(written, Mapping):
            # pydantic makes a refusal of the key of this one alone.
            raise ValueError(_EXPECTED)  # noqa: TRY004
        return read(written)

    return BeforeValidator(checked)


_EXPECTED: Final = "expected quantities by resource, such as {cpu: 4, memory: 8Gi}"

Needed = Annotated[dict[str, int], _of_mapping(needed_of)]
"""Quantities that are asked for, in the units of `amounts`."""

Given = Annotated[dict[str, int], _of_mapping(given_of)]
"""Quantities that there are."""

Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]


def _milli(written: object) -> int:
    amount = needed(GPU, nanos_of(written))
    if not 0 < amount <= 1000:
        raise ValueError("expected a part of one GPU, above 0 and up to 1, such as 0.5 or 500m")
    return amount


class ShareForm(Form):
    """A part of one GPU, and bytes of its memory."""

    gpu: Annotated[int, BeforeValidator(_milli)]
    memory: Annotated[int, BeforeValidator(lambda each: needed("memory", nanos_of(each)))] = 0

    def value(self) -> Share:
        """As policies have it."""
        return Share(self.gpu, self.memory)


class TaintForm(Form):
    """A taint of a node."""

    key: str
    value: str = ""
    effect: str


class TolerationForm(Form):
    """A toleration of a pod."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class NodeForm(Form):
    """A node, or `count` nodes that are alike, named NAME-0 and so on."""

    name: str
    allocatable: Given
    ready: bool = True
    unschedulable: bool = False
    taints: tuple[TaintForm, ...] = ()
    labels: dict[str, str] = Field(default_factory=dict)
    card_memory: Annotated[int, BeforeValidator(lambda each: needed("memory", nanos_of(each)))] = 0
    count: Annotated[int, Field(ge=1)] | None = None

    def values(self) -> list[Node]:
        """As policies have them."""
        names = [self.name]
        if self.count is not None:
            width = len(str(self.count - 1))
            names = [f"{self.name}-{index:0{width}}" for index in range(self.count)]
        taints = tuple(Taint(each.key, each.value, each.effect) for each in self.taints)
        return [
            Node(
                name,
                self.allocatable,
                is_ready=self.ready,
                is_unschedulable=self.unschedulable,
                taints=taints,
                labels=self.labels,
                card_memory_bytes=self.card_memory or None,
            )
            for name in names
        ]


class PodNeeds(Form):
    """What one pod asks for, and of which nodes."""

    requests: Needed = Field(default_factory=dict)
    limits: Needed = Field(default_factory=dict)
    share: ShareForm | None = None
    tolerations: tuple[TolerationForm, ...] = ()
    node_selector: dict[str, str] = Field(default_factory=dict)
    affinity_nodes: tuple[str, ...] | None = None

    @property
    def all_requests(self) -> Amounts:
        """With the limits where nothing is requested."""
        return self.limits | self.requests

    @property
    def all_limits(self) -> Amounts:
        """With the requests where there is no limit."""
        return self.requests | self.limits

    @property
    def rules(self) -> Rules:
        """On which nodes they may run."""
        return Rules(
            tuple(Toleration(t.key, t.operator, t.value, t.effect) for t in self.tolerations),
            self.node_selector,
            None if self.affinity_nodes is None else frozenset(self.affinity_nodes),
        )

    @property
    def share_value(self) -> Share | None:
        """The part of a GPU, as policies have it."""
        return None if self.share is None else self.share.value()


class PodForm(PodNeeds):
    """A pod that belongs to no job, or `count` of them that are alike."""

    node: str | None = None
    card: str | None = None
    count: Annotated[int, Field(ge=1)] = 1

    def values(self) -> list[Pod]:
        """As policies have them."""
        pod = Pod(
            self.node,
            self.all_requests,
            self.all_limits,
            self.rules,
            self.share_value,
            self.card,
        )
        return [pod] * self.count


class GroupForm(PodNeeds):
    """Replicas of one role; without `min` and `max` there are always as many as `replicas`."""

    role: str = ""
    min: Count | None = None
    max: Count | None = None
    replicas: Count | None = None
    asked: Count | None = None
    placement: dict[str, Count] = Field(default_factory=dict)
    leaving: dict[str, Count] = Field(default_factory=dict)
    cards: dict[str, dict[str, Count]] = Field(default_factory=dict)
    first_node: str | None = None

    @property
    def range(self) -> tuple[int, int, int]:
        """The fewest, those wanted, and the most; what is left out follows from the others."""
        low = self.min if self.min is not None else self._any(self.replicas, 1)
        high = self.max if self.max is not None else max(low, self._any(self.replicas, 0))
        return low, self._any(self.replicas, 0), high

    @staticmethod
    def _any(value: int | None, otherwise: int) -> int:
        return otherwise if value is None else value

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        low, wanted, high = self.range
        if low > high:
            raise ValueError(f"min={low} is above max={high}")
        if (self.replicas is not None and wanted > high) or sum(self.placement.values()) > high:
            placed = sum(self.placement.values())
            raise ValueError(f"replicas={wanted}, of which {placed} have a node, and max={high}")
        return self

    def group(self, role: str) -> Group:
        """As policies have it."""
        low, wanted, high = self.range
        return Group(
            min=low,
            max=high,
            replicas=max(wanted, sum(self.placement.values())),
            requests=self.all_requests,
            limits=self.all_limits,
            placement=self.placement,
            leaving=self.leaving,
            rules=self.rules,
            share=self.share_value,
            cards=self.cards,
            first_node=self.first_node,
            asked=self.asked,
            role=self.role or role,
        )


_PHASES: Final = {
    "created": JobPhase.WAITING,
    "creating": JobPhase.WAITING,
    "pending": JobPhase.WAITING,
    "restarting": JobPhase.RUNNING,
    "succeeded": JobPhase.OVER,
    "failed": JobPhase.OVER,
} | {phase.value.lower(): phase for phase in JobPhase}
"""What the kinds of jobs call their phases, in any case."""


def _phase(written: object) -> object:
    return _PHASES.get(written.lower(), written) if isinstance(written, str) else written


class JobForm(GroupForm):
    """A job: its workers by the keys of a group, and what else it has."""

    name: str
    namespace: str = "default"
    kind: str = "TrainingJob"
    submitted_s: float = 0.0
    last_scaled_s: float | None = None
    waiting_since_s: float | None = None
    phase: Annotated[JobPhase, BeforeValidator(_phase)] | None = None
    ps: GroupForm | None = None
    others: tuple[GroupForm, ...] = ()
    telling: Telling = Telling()
    stoppable: bool = False
    movable: bool = False
    program: str | None = None

    def job(self) -> Job:
        """As policies have it."""
        workers = self.group("worker")
        ps = None if self.ps is None else self.ps.group("ps")
        others = tuple(each.group("other") for each in self.others)
        lacks = any(each.placed < each.min for each in (workers, *others, *((ps,) if ps else ())))
        phase = self.phase or (JobPhase.WAITING if lacks else JobPhase.RUNNING)
        since_s = self.waiting_since_s
        if since_s is None and phase is JobPhase.WAITING:
            since_s = self.submitted_s
        return Job(
            self.name,
            self.namespace,
            self.kind,
            workers,
            self.submitted_s,
            phase,
            ps=ps,
            others=others,
            last_scaled_s=self.last_scaled_s,
            waiting_since_s=since_s,
            telling=self.telling,
            is_stoppable=self.stoppable,
            is_movable=self.movable,
            program=self.program,
        )
