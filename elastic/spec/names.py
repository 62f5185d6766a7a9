"""Names that somebody mistyped, and those that they may have meant."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Final

MAX_OTHERS: Final = 5


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that a mistyped one most likely means, or None where none is near."""
    matches = get_close_matches(name, list(known), n=1)
    return matches[0] if matches else None


def other_jobs(name: str, known: Sequence[str]) -> str:
    """What there is instead of an unknown job: the nearest name, and a few of the rest.

    Args:
        known: Newest first, which are the likeliest to be meant.
    """
    near = nearest(name, known)
    others = [other for other in known if other != near]
    shown = ", ".join(others[:MAX_OTHERS]) or "none"
    rest = f" and {len(others) - MAX_OTHERS} more" if len(others) > MAX_OTHERS else ""
    if near is None:
        return f"known jobs: {shown}{rest}"
    return f"did you mean {near}?" + (f" Others: {shown}{rest}" if others else "")
