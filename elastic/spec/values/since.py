"""From when on: `10m` before now, or a moment."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

_UNITS_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


@dataclass(frozen=True, slots=True)
class Since:
    """A moment; one `before_now` is of the clock of whoever wrote what is asked for.

    Attributes:
        seconds: Since the Unix epoch, or before now.
    """

    seconds: float
    before_now: bool

    def at_s(self, now_s: float) -> float:
        """The moment, where that clock shows `now_s`."""
        return now_s - self.seconds if self.before_now else self.seconds


def parse_since(text: str) -> Since:
    """Read `90s`, `10m`, `1h30m`, `2d`, or a date and time by ISO 8601, local without a zone.

    Raises:
        ValueError: It is neither.
    """
    parts = _PART.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return Since(sum(float(number) * _UNITS_S[unit] for number, unit in parts), True)
    try:
        return Since(datetime.fromisoformat(text).timestamp(), False)
    except ValueError as error:
        raise ValueError(
            f"{text!r} is neither a duration such as 90s, 10m, 1h30m or 2d, nor a moment such as "
            "2026-01-31T12:00:00Z or '2026-01-31 12:00'"
        ) from error
