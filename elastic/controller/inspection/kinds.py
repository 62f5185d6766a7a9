"""All kinds as commands see them, and `KIND/NAME` as commands take it. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from elastic.controller.inspection.elastic_jobs import SeenElasticJobs
from elastic.controller.inspection.seeing import Seen
from elastic.controller.inspection.tf_jobs import SeenTFJobs
from elastic.controller.inspection.train_jobs import SeenTrainJobs
from elastic.controller.inspection.training_jobs import SeenTrainingJobs
from elastic.controller.resources.definitions import DEFINITIONS
from elastic.errors import JobSpecError
from elastic.spec.names import nearest

TRAIN_JOBS: Final[Seen] = SeenTrainJobs()
"""Those whose objects are jobs of ours as well."""

KINDS: Final[tuple[Seen, ...]] = (
    SeenTrainingJobs(),
    SeenElasticJobs(),
    SeenTFJobs(),
    TRAIN_JOBS,
)
"""In the order in which they are listed."""


@dataclass(frozen=True, slots=True)
class Reference:
    """One object, as commands name it."""

    kind: Seen
    name: str

    def __str__(self) -> str:
        return f"{self.kind.resource.kind.lower()}/{self.name}"


_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def is_name(text: str) -> bool:
    """Whether an object can have this name."""
    return _NAME.fullmatch(text) is not None


def _by_word() -> dict[str, Seen]:
    """All that kubectl takes for a kind: its name, plural or short name, with or without group."""
    words: dict[str, Seen] = {}
    for kind in KINDS:
        resource = kind.resource
        full = (resource.kind.lower(), resource.plural)
        words |= dict.fromkeys(full, kind)
        words |= dict.fromkeys((f"{word}.{resource.group}" for word in full), kind)
        words |= dict.fromkeys(DEFINITIONS[resource.kind].short_names, kind)
    return words


_WORDS: Final[Mapping[str, Seen]] = _by_word()


def kind_named(word: str) -> Seen | None:
    """The kind that a word means, in any case of letters; None where there is none."""
    return _WORDS.get(word.lower())


def parse_reference(text: str) -> Reference:
    """Read `KIND/NAME`; the kind by its name, plural or short name, in any case of letters.

    Raises:
        JobSpecError: There is no such kind, or no object can have the name.
    """
    word, _, name = text.partition("/")
    kind = kind_named(word)
    known = [each.resource.kind.lower() for each in KINDS]
    if kind is None:
        near = nearest(word.lower(), _WORDS)
        raise JobSpecError(
            f"{text}: there is no kind {word!r}"
            + (f": did you mean {near}/{name}?" if near else f": use {', '.join(known)}")
        )
    if not is_name(name):
        raise JobSpecError(
            f"{text}: {name!r} is no name of an object: those have lower-case letters, digits, "
            "'-' and '.' only"
        )
    return Reference(kind, name)
