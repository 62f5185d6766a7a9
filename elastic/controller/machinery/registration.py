"""Types of jobs that the API server does not know yet: installed where our rights allow."""

import logging
import threading
from collections.abc import Iterable, Sequence
from typing import Final

from elastic.platforms.kubernetes.api.cluster import Cluster, RefusedError, is_served
from elastic.platforms.kubernetes.api.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    Manifest,
    Resource,
)

OWNER: Final = "elastic"
"""Whose fields those of a definition are, whether a controller applies it or `elastic install`."""

PATIENCE_S: Final = 10.0
_POLL_S: Final = 0.2

logger = logging.getLogger(__name__)


def register(
    cluster: Cluster,
    resources: Iterable[Resource],
    definitions: Sequence[Manifest],
    remedy: str,
    stopping: threading.Event,
    patience_s: float = PATIENCE_S,
) -> list[Resource]:
    """Install the types of jobs that are not served; says once what it may not install.

    A type that is served is left as it is, whoever has installed it.

    Args:
        cluster: Where the jobs are.
        resources: The types of jobs.
        definitions: Theirs, and perhaps others.
        remedy: The command by which somebody else installs them.
        stopping: Ends waiting.
        patience_s: How long a new type may take until it is served.

    Returns:
        Those that are not served now.

    Raises:
        RefusedError: The API server refuses a definition, and not for want of a right.
        AwayError: It does not answer.
    """
    missing, asked = [], []
    for resource in resources:
        if is_served(cluster, resource):
            continue
        if _install(cluster, definition_of(resource, definitions)):
            asked.append(resource)
        else:
            missing.append(resource)
    if missing:
        names = ", ".join(full_name(resource) for resource in missing)
        logger.warning(
            "not installed in this cluster, and this account may not install it: %s: somebody who "
            "may has to run `%s`",
            names,
            remedy,
        )
    return missing + [each for each in asked if not _waits(cluster, each, stopping, patience_s)]


def full_name(resource: Resource) -> str:
    """As kubectl and the names of definitions have it."""
    return f"{resource.plural}.{resource.group}"


def definition_of(resource: Resource, definitions: Iterable[Manifest]) -> Manifest:
    """The CustomResourceDefinition of a type, among others."""
    name = full_name(resource)
    return next(each for each in definitions if each["metadata"]["name"] == name)


def _install(cluster: Cluster, definition: Manifest) -> bool:
    """Install a type; False where this account may not."""
    name = definition["metadata"]["name"]
    try:
        cluster.apply(CUSTOM_RESOURCE_DEFINITIONS.path(None, name), definition, OWNER)
    except RefusedError as error:
        if error.is_denied:
            return False
        raise
    logger.info("installed %s", name)
    return True


def _waits(
    cluster: Cluster, resource: Resource, stopping: threading.Event, patience_s: float
) -> bool:
    """Wait until a new type is served; whether it is."""
    for _ in range(max(1, int(patience_s / _POLL_S))):
        if is_served(cluster, resource):
            return True
        if stopping.wait(_POLL_S):
            return False
    return False
