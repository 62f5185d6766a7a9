"""What is told while an image is made: the value between whoever makes it and whoever shows it."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ImageProgress:
    """One thing that has happened to an image.

    Attributes:
        text: One line for people.
        fraction: How much of what runs now is done, 0 to 1; None where nobody can tell.
        is_detail: Output of a step that itself was told before; worth showing only while it is
            the newest.
    """

    text: str
    fraction: float | None = None
    is_detail: bool = False


OnProgress = Callable[[ImageProgress], None]
