"""How clusters are written in YAML and JSON: nodes, pods and jobs, and snapshots of all, both ways.

Pure. What is wrong in such a text is said here as well.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Annotated, Any, Final, Self, TypeVar

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from elastic.errors import DescriptionError
from elastic.policy.cluster import (
    GPU,
    MEMORY,
    Amounts,
    Group,
    Job,
    JobPhase,
    Node,
    Pod,
    Rules,
    Share,
    Shown,
    Snapshot,
    Speed,
    Taint,
    Telling,
    Toleration,
    given_of,
    needed,
    needed_of,
    quantity,
)
from elastic.spec.values import nanos_of, nearest
from elastic.spec.yaml_text import load_value

F = TypeVar("F", bound="Form")

_MAX_SHOWN: Final = 80


class Form(BaseModel):
    """Keys of a document; one that is unknown is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def load_document(text: str, name: str) -> Any:
    """What a text holds: JSON where it begins like it, else YAML.

    Args:
        text: All of it.
        name: Of the file, for errors.

    Raises:
        DescriptionError: It is neither.
    """
    try:
        # PyYAML takes a minute for what JSON has read in a second.
        if text.lstrip()[:1] in {"{", "["}:
            return json.loads(text)
        return load_value(text)
    except json.JSONDecodeError as error:
        raise DescriptionError(f"{name}, line {error.lineno}: no JSON: {error.msg}") from error
    except yaml.YAMLError as error:
        raise DescriptionError(f"{name} is no YAML: {' '.join(str(error).split())}") from error


def read_form(form: type[F], document: Any, name: str) -> F:
    """A document in its form.

    Raises:
        DescriptionError: It has another one; names the key and its value.
    """
    if not isinstance(document, Mapping):
        shown = "is empty" if document is None else f"holds a {type(document).__name__}"
        raise DescriptionError(f"{name} {shown}: expected keys with values")
    try:
        return form.model_validate(document)
    except ValidationError as error:
        raise DescriptionError(f"{name}: {_first_problem(error)}") from error


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    path = ".".join(str(part) for part in first["loc"])
    message = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "missing":
        return f"{path} is missing"
    if first["type"] in {"extra_forbidden", "unexpected_keyword_argument"}:
        return f"{path} is no key that is known here{_near(str(first['loc'][-1]))}"
    if isinstance(first["input"], Mapping | list):
        return f"{path}: {message}" if path else message
    shown = repr(first["input"])
    cut = shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}…"
    return f"{path}={cut}: {message}"


def _near(key: str) -> str:
    known = {name for form in _all_forms(Form) for name in form.model_fields}
    near = nearest(key, sorted(known))
    return f": did you mean {near}?" if near else ""


def _all_forms(form: type[Form]) -> set[type[Form]]:
    below = {each for sub in form.__subclasses__() for each in _all_forms(sub)}
    return {form, *below}


# How clusters are written in files: nodes, pods and jobs, and snapshots of all, both ways. Pure.
#
# Quantities are those of Kubernetes. Limits fall back to requests, and requests to limits, each
# resource by itself. Nothing is added to what is written: a pod counts against the number of pods
# of a node where both name `pods`.


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
"""Quantities that are asked for, in the units of policies."""

Given = Annotated[dict[str, int], _of_mapping(given_of)]
"""Quantities that there are."""

MOST: Final = 100_000
"""Pods of a job, or nodes that are alike: more than anybody has, and few enough to plan for."""

Count = Annotated[int, Field(ge=0, le=MOST)]
Seconds = Annotated[float, Field(ge=0)]
Moment = Annotated[float, Field(allow_inf_nan=False)]


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
    count: Annotated[int, Field(ge=1, le=MOST)] | None = None

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
    count: Annotated[int, Field(ge=1, le=MOST)] = 1

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


def _told_of(telling: Telling) -> Telling:
    """Refuse numbers that no job could tell.

    Raises:
        ValueError: One is out of its range.
    """
    for name in ("remaining_samples", "total_samples", "trained_samples", "rescale_s"):
        _check_finite(name, getattr(telling, name))
    for name in ("global_batch_size", "max_local_batch"):
        _check_above_0(name, getattr(telling, name))
    _check_speeds(telling.speeds)
    batch = telling.elastic_batch
    if batch is not None:
        if not (0 < batch.min <= batch.max and batch.step > 0):
            raise ValueError("elastic_batch: min, max and step are above 0, and min at most max")
        _check_above_0("measured_at", batch.measured_at)
        _check_finite("noise_growth", batch.noise_growth)
        _check_gradients("elastic_batch", batch.grad_sqr, batch.grad_var)
    if telling.first_gradients is not None:
        first = telling.first_gradients
        _check_gradients("first_gradients", first.sqr, first.var)
    return telling


def _shown_of(shown: Shown) -> Shown:
    """The same of jobs that are over."""
    if shown.gradients is not None:
        _check_gradients("gradients", shown.gradients.sqr, shown.gradients.var)
    _check_speeds(shown.speeds)
    _check_finite("noise_growth", shown.noise_growth)
    return shown


def _check_gradients(of: str, sqr: float, var: float) -> None:
    if not (0 <= sqr < math.inf and 0 <= var < math.inf):
        raise ValueError(f"{of}: lengths and variances of gradients are finite, and 0 or more")


def _check_speeds(speeds: Iterable[Speed]) -> None:
    for speed in speeds:
        _check_finite("samples_per_s", speed.samples_per_s)
        _check_finite("compute_s", speed.compute_s)
        _check_above_0("global_batch_size", speed.global_batch_size)


def _check_above_0(name: str, number: int | None) -> None:
    if number is not None and number <= 0:
        raise ValueError(f"{name}={number} is to be above 0")


def _check_finite(name: str, number: float | None) -> None:
    if number is not None and not math.isfinite(number):
        raise ValueError(f"{name}={number} is to be finite")


class JobForm(GroupForm):
    """A job: its workers by the keys of a group, and what else it has."""

    name: str
    namespace: str = "default"
    kind: str = "TrainingJob"
    submitted_s: Moment = 0.0
    last_scaled_s: Moment | None = None
    waiting_since_s: Moment | None = None
    phase: Annotated[JobPhase, BeforeValidator(_phase)] | None = None
    ps: GroupForm | None = None
    others: tuple[GroupForm, ...] = ()
    telling: Annotated[Telling, AfterValidator(_told_of)] = Telling()
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


class SnapshotForm(Form):
    """A cluster at one moment."""

    now_s: Moment
    nodes: tuple[NodeForm, ...]
    jobs: tuple[JobForm, ...] = ()
    pods: tuple[PodForm, ...] = ()
    last_change_s: Moment | None = None
    shown: Mapping[str, Annotated[Shown, AfterValidator(_shown_of)]] = Field(default_factory=dict)


def read_snapshot(text: str, name: str) -> Snapshot:
    """A snapshot that was written as YAML or JSON.

    Args:
        text: All of the file.
        name: Of the file, for errors.

    Raises:
        DescriptionError: It is none.
    """
    form = read_form(SnapshotForm, load_document(text, name), name)
    nodes = tuple(node for each in form.nodes for node in each.values())
    jobs = tuple(each.job() for each in form.jobs)
    pods = tuple(pod for each in form.pods for pod in each.values())
    refuse_repeated([node.name for node in nodes], "nodes", name)
    refuse_repeated([job.key for job in jobs], "jobs", name)
    return Snapshot(form.now_s, nodes, jobs, pods, form.last_change_s, form.shown)


def refuse_repeated(names: list[str], what: str, file: str) -> None:
    """Refuse names that are not unique.

    Raises:
        DescriptionError: Two are alike.
    """
    seen: set[str] = set()
    for each in names:
        if each in seen:
            raise DescriptionError(f"{file}: two {what} are named {each}")
        seen.add(each)


def snapshot_document(snapshot: Snapshot) -> dict[str, Any]:
    """What `read_snapshot` reads, as plain values; without what says nothing."""
    return _told(
        {
            "now_s": snapshot.now_s,
            "last_change_s": snapshot.last_change_s,
            "nodes": [node_document(each) for each in snapshot.nodes],
            "jobs": [job_document(each) for each in snapshot.jobs],
            "pods": [_pod(each) for each in snapshot.pods],
            "shown": {name: _told(asdict(each)) for name, each in snapshot.shown.items()},
        }
    )


_NOTHING: Final[tuple[Any, ...]] = ("", (), [], {})


_KEPT: Final = frozenset({"nodes", "affinity_nodes"})
"""Has to be written, also where there is nothing."""


def _told(keys: Mapping[str, Any]) -> dict[str, Any]:
    said = {key: each for key, each in keys.items() if each is not None}
    return {key: each for key, each in said.items() if each not in _NOTHING or key in _KEPT}


def _quantities(amounts: Amounts) -> dict[str, str]:
    return {name: quantity(name, amount) for name, amount in amounts.items()}


def node_document(node: Node) -> dict[str, Any]:
    """A node as `NodeForm` reads it."""
    memory = node.card_memory_bytes
    return _told(
        {
            "name": node.name,
            "allocatable": _quantities(node.allocatable),
            "ready": None if node.is_ready else False,
            "unschedulable": node.is_unschedulable or None,
            "taints": [_told(asdict(taint)) for taint in node.taints],
            "labels": dict(node.labels),
            "card_memory": None if memory is None else quantity(MEMORY, memory),
        }
    )


def _pod(pod: Pod) -> dict[str, Any]:
    return _told(
        {"node": pod.node, "card": pod.card}
        | _needs(pod.requests, pod.limits, pod.rules, pod.share)
    )


def _needs(requests: Amounts, limits: Amounts, rules: Rules, share: Share | None) -> dict[str, Any]:
    return {
        "requests": _quantities(requests),
        "limits": None if limits == requests else _quantities(limits),
        "share": None if share is None else _share(share),
        "tolerations": [_told(asdict(each)) for each in rules.tolerations],
        "node_selector": dict(rules.node_selector),
        "affinity_nodes": None if rules.nodes is None else sorted(rules.nodes),
    }


def _share(share: Share) -> dict[str, str]:
    written = {"gpu": quantity(GPU, share.milli)}
    return written | (
        {"memory": quantity(MEMORY, share.memory_bytes)} if share.memory_bytes else {}
    )


def _group(group: Group) -> dict[str, Any]:
    return {
        "min": group.min,
        "max": group.max,
        "replicas": group.replicas,
        "asked": group.asked,
        "placement": dict(group.placement),
        "leaving": dict(group.leaving),
        "cards": {node: dict(each) for node, each in group.cards.items()},
        "first_node": group.first_node,
    } | _needs(group.requests, group.limits, group.rules, group.share)


def job_document(job: Job) -> dict[str, Any]:
    """A job as `JobForm` reads it."""
    return _told(
        {
            "name": job.name,
            "namespace": job.namespace,
            "kind": job.kind,
            "phase": str(job.phase),
            "submitted_s": job.submitted_s,
            "last_scaled_s": job.last_scaled_s,
            "waiting_since_s": job.waiting_since_s,
            "role": job.workers.role,
            **_group(job.workers),
            "ps": None if job.ps is None else _told(_group(job.ps) | {"role": job.ps.role}),
            "others": [_told(_group(each) | {"role": each.role}) for each in job.others],
            "telling": _telling(job.telling),
            "stoppable": job.is_stoppable or None,
            "movable": job.is_movable or None,
            "program": job.program,
        }
    )


def _telling(telling: Telling) -> dict[str, Any]:
    return _told(asdict(telling))
