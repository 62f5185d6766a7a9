"""Quantities as Kubernetes writes them: exact, in whole nano-units. Pure.

Kubernetes keeps no more than nine digits behind the point and rounds what is finer up, so that
integers of nano-units hold every quantity exactly and add up without error.
"""

import re
from functools import lru_cache
from typing import Final

NANO: Final = 10**9
"""Nano-units in one of anything."""

MOST: Final = (2**63 - 1) * NANO
"""Kubernetes takes every larger quantity for this one."""

_SMALL: Final = {"n": -9, "u": -6, "m": -3, "": 0}
_LARGE: Final = {"k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_WRITTEN: Final = re.compile(
    r"\+?(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?"
    r"(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]{1,9}))?",
    re.ASCII,
)
_FARTHEST: Final = 64
"""No exponent beyond this one changes what a quantity is: it is the least or the most there is."""

_MAX_LENGTH: Final = 64


def nanos_of(written: object) -> int:
    """A quantity that is not negative, in nano-units; rounded up, and at most `MOST`.

    Args:
        written: As in JSON: text such as `500m`, `8Gi` or `1e3`, or a number.

    Raises:
        ValueError: It is no quantity, or a negative one.
    """
    if isinstance(written, bool) or not isinstance(written, str | int | float):
        # pydantic makes a refusal of the field of this one alone.
        raise ValueError(_EXPECTED)  # noqa: TRY004
    return _nanos_of(str(written))


@lru_cache(maxsize=4096)
def _nanos_of(text: str) -> int:
    match = _WRITTEN.fullmatch(text)
    if match is None or len(text) > _MAX_LENGTH:
        raise ValueError(_EXPECTED)
    whole, part = match["whole"], match["part"] or ""
    if not whole + part:
        raise ValueError(_EXPECTED)
    suffix = match["suffix"] or ""
    exponent = int(match["exponent"] or (_SMALL | _LARGE).get(suffix, 0))
    exponent = max(-_FARTHEST, min(_FARTHEST, exponent)) + 9 - len(part)
    digits: int = int(whole + part) << _BINARY.get(suffix, 0)
    if exponent >= 0:
        return min(digits * int(10**exponent), MOST)
    return min(-(-digits // int(10**-exponent)), MOST)


def shown(nanos: int) -> str:
    """A quantity for people, in the largest unit in which it is a whole number."""
    if nanos % NANO:
        milli, rest = divmod(nanos, NANO // 1000)
        return f"{nanos}n" if rest else f"{milli}m"
    units = nanos // NANO
    for suffix, bits in reversed(_BINARY.items()):
        if units and units % (1 << bits) == 0:
            return f"{units >> bits}{suffix}"
    return str(units)


_EXPECTED: Final = (
    "expected a quantity that is not negative, such as 500m, 2 or 8Gi: digits, and one of "
    "n u m k M G T P E, Ki Mi Gi Ti Pi Ei or an exponent"
)
