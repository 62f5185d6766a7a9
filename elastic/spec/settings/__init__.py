"""How a setting of a job is declared: once, with its type, default, unit and reason.

`text_forms` reads what flags and job files hold; `work` declares the settings of every platform,
and `cluster` those that Kubernetes alone reads, and their form. `elastic.spec.job` has them all.
"""

import re
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from elastic.spec.platforms import EVERY_KIND, JobKind, PlatformName


class Place(StrEnum):
    """What a text setting says about the file system of whoever submits the job."""

    PATH = "path"
    SOURCE = "source"
    """A path, or a name that means something to the user's own reader only."""


class WorkerRange(BaseModel):
    """How many workers a job may have: `2` is exactly two, `2:8` two to eight."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    minimum: int = Field(ge=0)
    maximum: int = Field(ge=0)

    @classmethod
    def parse(cls, text: str | int) -> "WorkerRange":
        """Read `N` or `MIN:MAX`.

        Raises:
            ValueError: The text is neither, or the minimum is above the maximum.
        """
        match = re.fullmatch(r"\s*(\d+)\s*(?::\s*(\d+)\s*)?", str(text))
        if match is None:
            raise ValueError(f"{text!r} is neither a number like 2 nor a range like 2:8")
        low = int(match[1])
        high = int(match[2]) if match[2] is not None else low
        if low > high:
            raise ValueError(f"{text!r} has a minimum above its maximum: swap them")
        return cls(minimum=low, maximum=high)

    def __str__(self) -> str:
        if self.minimum == self.maximum:
            return str(self.minimum)
        return f"{self.minimum}:{self.maximum}"


def setting(
    default: Any,
    help: str,
    *,
    group: str,
    only: PlatformName | None = None,
    kinds: tuple[JobKind, ...] = EVERY_KIND,
    aliases: tuple[str, ...] = (),
    place: Place | None = None,
    **limits: Any,
) -> Any:
    """Declare one setting: a pydantic field that the command line can also describe.

    Args:
        default: The default; `...` for a required setting.
        help: One sentence for people, with the unit.
        group: Heading it stands under in `elastic train --help` and in the docs.
        kinds: The jobs that it has a meaning for; the commands of others refuse it.
        only: The platform that uses it; elsewhere it is accepted and said to be unused.
        aliases: Other names that flags and job files may use.
        place: Set where the value names a place in the file system; it is made absolute for the
            local platform, whose replicas have another working directory than the user.
        limits: Passed to `pydantic.Field` (ge, gt, le, …).
    """
    extra: dict[str, Any] = {"group": group, "aliases": list(aliases), "kinds": list(kinds)}
    if place is not None:
        extra["place"] = place.value
    if only is not None:
        extra["only"] = only.value
    return Field(default, description=help, json_schema_extra=extra, **limits)
