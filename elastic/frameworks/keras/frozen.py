"""Which variables a compiled step leaves as they are."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

READS: Final = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape"})
"""Operations that take a variable and do not change it."""


def unwritten(variables: Mapping[str, Any], graph: Any) -> list[str]:
    """The names of those that a graph reads, and no run of it changes.

    Whatever else is given a variable, such as a loop that may write to it, counts as a write.

    Args:
        variables: Of Keras, by name.
        graph: Of a `tf.function`, traced.
    """
    inside = {id(handle): placeholder for handle, placeholder in graph.captures}
    return [
        name
        for name, variable in variables.items()
        if _are_reads(inside.get(id(variable.value.handle)))
    ]


def _are_reads(placeholder: Any | None) -> bool:
    """Whether a variable is read and nothing else; None stands for one that is not found."""
    if placeholder is None:
        return False
    consumers: Iterable[Any] = placeholder.consumers()
    return all(consumer.type in READS for consumer in consumers)
