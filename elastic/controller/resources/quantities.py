"""Amounts of resources as Kubernetes writes them: `500m`, `2Gi`, `1e3`, or a plain number."""

import re
from decimal import Decimal
from typing import Annotated, Any, Final

from pydantic import BeforeValidator

_FORM: Final = re.compile(
    r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?",
    re.ASCII,
)
_FACTORS: Final = {
    "": Decimal(1),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("num", start=-3)},
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}
_MAX_EXPONENT: Final = 18
"""More than any machine has; and `1e999999999` is not worth its digits."""


def amount(quantity: int | float | str) -> Decimal:
    """How much a quantity is, in its base unit: cores, bytes, devices.

    Raises:
        ValueError: It is no quantity of Kubernetes.
    """
    match = _FORM.fullmatch(str(quantity))
    if match is None:
        raise ValueError(f"{quantity!r} is no quantity: write it as 2, 500m, 1.5 or 600Mi")
    number, suffix = Decimal(match["number"]), match["suffix"] or ""
    if suffix in _FACTORS:
        return number * _FACTORS[suffix]
    exponent = int(suffix[1:])
    if abs(exponent) > _MAX_EXPONENT:
        raise ValueError(f"{quantity!r} has an exponent beyond {_MAX_EXPONENT}")
    return number.scaleb(exponent)


def _checked(quantity: Any) -> Any:
    """Say what is wrong in our words: those of a union name each type that it is not."""
    if isinstance(quantity, bool) or not isinstance(quantity, int | float | str):
        raise ValueError("is no quantity: write it as 2, 500m, 1.5 or 600Mi")  # noqa: TRY004 - for pydantic
    if amount(quantity) < 0:
        raise ValueError("is negative, which an amount of a resource cannot be")
    return quantity


Quantity = Annotated[int | float | str, BeforeValidator(_checked)]
"""An amount of a resource, kept as it was written: in YAML `cpu: 1` and `cpu: 0.5` are numbers."""
