"""Which nodes a pod asks for: its name, selectors, required affinity. Pure."""

from collections.abc import Mapping, Sequence

from elastic.controller.resources.pod_parts import (
    NodeTerm,
    Operator,
    PodSpec,
    Requirement,
)


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
