"""All that is said about a job, by its user, a folder, a file and the environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from elastic.client import settings
from elastic.client.folder import Folder
from elastic.client.opening import PLATFORM_VARIABLE, ClusterChoice, default_platform
from elastic.client.settings import Given
from elastic.spec.kinds import JobKind
from elastic.spec.platforms import HERE


@dataclass(frozen=True, slots=True)
class Gathered:
    """The settings of a job.

    Attributes:
        given: By name; what its user gave wins over a job file, that over a folder.
        problems: What is wrong with the keys of a job file.
        said: What was found and nobody gave, a short line each.
    """

    given: dict[str, Given]
    problems: list[str]
    said: list[str]


def gather(
    kind: JobKind,
    own: Mapping[str, Given],
    choice: ClusterChoice,
    folder: str | Path | None = None,
    config: str | Path | None = None,
) -> Gathered:
    """Bring the settings of a job together.

    Args:
        own: What its user gave, as flags or keywords.
        choice: Which cluster the user has named, if any.
        folder: Holds the model, and may hold settings and records.
        config: A job file.

    Raises:
        JobSpecError: The file cannot be read, or see `Folder.look`.
        ModelDefError: See `Folder.look`.
    """
    given, problems = settings.from_file(Path(config)) if config is not None else ({}, [])
    given |= own
    if "namespace" in given:
        choice = replace(choice, namespace=str(given["namespace"].value))
    platform = Given(default_platform(choice), PLATFORM_VARIABLE)
    said: list[str] = []
    if folder is not None:
        found = Folder(kind, Path(folder))
        found.look(given, platform.value)
        given, said = {**found.given, **given}, found.said
    if "platform" not in given:
        given["platform"] = platform
        if platform.value == HERE and not os.environ.get(PLATFORM_VARIABLE):
            said.append("found no kubeconfig: runs on this machine")
    return Gathered(given, problems, said)
