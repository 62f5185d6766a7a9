"""Amounts of resources as whole numbers: milli-CPU, bytes, thousandths of a GPU. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

from elastic.spec.values.quantities import NANO, nanos_of, shown

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
    return shown(amount * unit_of(resource))


def total_of(amounts: Iterable[tuple[Amounts, int]]) -> dict[str, int]:
    """The sum of amounts, each taken so many times."""
    total: dict[str, int] = {}
    for each, times in amounts:
        for resource, amount in each.items():
            total[resource] = total.get(resource, 0) + amount * times
    return total
