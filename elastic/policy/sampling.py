"""When a point of a training curve is due."""

from typing import Final

DENSE_UPDATES: Final = 200
"""Every one of the first updates has a point of its own, so that a short job has a curve too."""

INTERVAL_S: Final = 1.0
"""Between the points of later ones: TensorBoard shows a thousand of a curve at most."""


def is_point_due(version: int, last_version: int | None, now_s: float, last_s: float) -> bool:
    """Whether the version just made is to be a point.

    Args:
        version: The number of updates so far.
        last_version: That of the point before; None where there is none yet.
        now_s: Now, by the clock of `last_s`.
        last_s: When the point before was taken; without meaning where there is none.
    """
    if version == last_version:
        return False
    return last_version is None or version <= DENSE_UPDATES or now_s - last_s >= INTERVAL_S
