"""Which platform is meant, and where that is."""

import os
import sys
from typing import TYPE_CHECKING, Final

from elastic.errors import JobSpecError
from elastic.platforms.base import Platform
from elastic.platforms.registry import PATIENCE_S, ClusterChoice, entry_of
from elastic.spec.platforms import PLATFORMS, PlatformName

if TYPE_CHECKING:
    from elastic.platforms.images import ImageRequest

__all__ = [
    "PATIENCE_S",
    "PLATFORM_VARIABLE",
    "ClusterChoice",
    "default_platform",
    "open_platform",
    "platform_name",
]

PLATFORM_VARIABLE: Final = "ELASTIC_PLATFORM"


def default_platform(choice: ClusterChoice) -> str:
    """The platform that is meant where nobody names one.

    That of the environment, or else a cluster where one is configured.
    """
    name = os.environ.get(PLATFORM_VARIABLE)
    if name:
        return name
    return next(name for name in PLATFORMS if entry_of(name).is_meant(choice))


def open_platform(name: str, choice: ClusterChoice, patience_s: float = PATIENCE_S) -> Platform:
    """The platform of that name.

    Args:
        patience_s: How long an API server that does not answer is asked again.

    Raises:
        JobSpecError: There is no such platform.
        PlatformError: It cannot be used from here.
    """
    return entry_of(platform_name(name)).open(choice, patience_s, _build_image)


def platform_name(text: str) -> PlatformName:
    """The platform that a text names, which may be of the environment.

    Raises:
        JobSpecError: There is none.
    """
    try:
        return PlatformName(text)
    except ValueError as error:
        known = " or ".join(PlatformName)
        raise JobSpecError(f"there is no platform {text!r}: name {known}") from error


def _build_image(request: "ImageRequest") -> str:
    """Make the image of a job, and show how far it is."""
    from elastic.platforms.images import build_and_push
    from elastic.telemetry.preparation import open_image_display

    # Standard output is for what becomes of the job.
    with open_image_display(sys.stderr) as display:
        return build_and_push(request, display.show)
