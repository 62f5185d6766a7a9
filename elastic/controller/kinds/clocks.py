"""What follows from the times in objects: deadlines, removals, pauses. Pure.

Nothing here is remembered by a process: a controller that was just started waits for the same
moments as the one before it.
"""

from typing import Final

FIRST_PAUSE_S: Final = 10.0
"""Before the second replacement in a row; the first is made at once."""

LAST_PAUSE_S: Final = 300.0
"""As the kubelet's own."""

STEADY_S: Final = 600.0
"""A pod that ran so long was no quick failure: the count begins anew, as the kubelet's."""


def pause_s(failures_in_a_row: int) -> float:
    """How long after a pod's end its replacement is made: 0, 10, 20, 40, … 300 s.

    Args:
        failures_in_a_row: At one index, the newest included, >= 1; none ran for `STEADY_S`.
    """
    # A count without bounds must not overflow a float.
    doublings = min(failures_in_a_row - 2, 16)
    return 0.0 if doublings < 0 else min(FIRST_PAUSE_S * 2.0**doublings, LAST_PAUSE_S)


def failures_in_a_row(before: int, ran_s: float) -> int:
    """The count with one more failure, of a pod that ran that long."""
    return 1 if ran_s >= STEADY_S else before + 1


def deadline_in_s(started_s: float, active_deadline_s: int | None, now_s: float) -> float | None:
    """Seconds until a job's deadline, 0 once it is over; None where it has none."""
    return None if active_deadline_s is None else max(0.0, started_s + active_deadline_s - now_s)


def removal_in_s(ended_s: float, ttl_s: int | None, now_s: float) -> float | None:
    """Seconds until a job that has ended is to be removed, 0 once it is; None for never."""
    return None if ttl_s is None else max(0.0, ended_s + ttl_s - now_s)


def soonest(*waits_s: float | None) -> float | None:
    """When to look again: the first of these moments; None where there is none."""
    return min((each for each in waits_s if each is not None), default=None)
