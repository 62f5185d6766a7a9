"""Which nodes a pod may run on by its rules: selectors, required affinity, taints. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from elastic.controller.resources.pod_parts import (
    NodeTerm,
    Operator,
    PodSpec,
    Requirement,
    Toleration,
)

_FORBIDDING: Final = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True)
class Taint:
    """What keeps pods from a node that do not tolerate it."""

    key: str
    value: str
    effect: str


def is_allowed(spec: PodSpec, name: str, labels: Mapping[str, str]) -> bool:
    """Whether a node of that name and with these labels is one that the pod asks for."""
    if spec.node_name not in {"", name}:
        return False
    if not spec.node_selector.items() <= labels.items():
        return False
    required = spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    return required is None or any(
        _holds(term, name, labels) for term in required.node_selector_terms
    )


def untolerated(spec: PodSpec, taints: Sequence[Taint]) -> Taint | None:
    """The first taint that keeps the pod away; None where there is none."""
    return next(
        (
            taint
            for taint in taints
            if taint.effect in _FORBIDDING
            and not any(_tolerates(each, taint) for each in spec.tolerations)
        ),
        None,
    )


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in {"", taint.effect}:
        return False
    if toleration.operator == "Exists":
        return toleration.key in {"", taint.key}
    return (toleration.key, toleration.value) == (taint.key, taint.value)


def _holds(term: NodeTerm, name: str, labels: Mapping[str, str]) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    # The name is the only field that Kubernetes knows here.
    fields = {"metadata.name": name}
    return all(_meets(each, labels) for each in term.match_expressions) and all(
        _meets(each, fields) for each in term.match_fields
    )


def _meets(requirement: Requirement, values: Mapping[str, str]) -> bool:
    found, wanted = values.get(requirement.key), requirement.values
    match requirement.operator:
        case Operator.IN:
            return found in wanted
        case Operator.NOT_IN:
            return found not in wanted
        case Operator.EXISTS:
            return found is not None
        case Operator.DOES_NOT_EXIST:
            return found is None
        case Operator.GREATER:
            return _is_more(found, wanted, 1)
        case Operator.LESS:
            return _is_more(found, wanted, -1)


def _is_more(found: str | None, wanted: Sequence[str], sign: int) -> bool:
    """Whether a label is a number beyond the only one that is given, in the sign's direction."""
    try:
        [limit] = wanted
        return sign * int(found or "") > sign * int(limit)
    except ValueError:
        return False
