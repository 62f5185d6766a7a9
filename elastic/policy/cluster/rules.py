"""Which nodes pods may run on: taints, selectors. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

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
