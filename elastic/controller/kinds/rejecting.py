"""What is said of an object that the API server never takes as it is. Pure."""

import re
from typing import Final

from elastic.controller.kinds.pods import name_of
from elastic.controller.reconciling import Rejection

_FIELD: Final = re.compile(r"(?<=[\s\[])(?=(?:spec|metadata)\.)")
"""Where a field of the object begins in the API server's words."""


def words_of(rejection: Rejection, template: str = "") -> str:
    """Which object cannot be made and why, with the field and its value, for people.

    Args:
        rejection: What was refused.
        template: Field of the job that the object is made from, which its own fields are below.
    """
    create = rejection.create
    why = _FIELD.sub(f"{template}.", rejection.why) if template else rejection.why
    return f"{create.resource.kind} {name_of(create.manifest)} cannot be made: {why}"
