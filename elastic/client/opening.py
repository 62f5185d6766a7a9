"""Which platform is meant, and where that is."""

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from elastic.platforms.base import Platform
from elastic.spec.job import PlatformName

if TYPE_CHECKING:
    from elastic.platforms.images import ImageRequest

PLATFORM_VARIABLE: Final = "ELASTIC_PLATFORM"
PATIENCE_S: Final = 4.0
"""How long people wait for an API server that is away or busy; followers wait longer."""


@dataclass(frozen=True, slots=True)
class ClusterChoice:
    """Which cluster is meant, by kubectl's conventions; None leaves it to the kubeconfig."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None


def default_platform(choice: ClusterChoice) -> str:
    """The platform that is meant where nobody names one.

    That of the environment, or else a cluster where one is configured.
    """
    name = os.environ.get(PLATFORM_VARIABLE)
    if name:
        return name
    # Every command begins with this module.
    from elastic.platforms.kubernetes.api.kubeconfig import is_configured

    if choice != ClusterChoice() or is_configured():
        return PlatformName.KUBERNETES
    return PlatformName.LOCAL


def open_platform(name: str, choice: ClusterChoice, patience_s: float = PATIENCE_S) -> Platform:
    """The platform of that name.

    Args:
        patience_s: How long an API server that does not answer is asked again.

    Raises:
        PlatformError: The platform cannot be used from here.
    """
    # The other platform's clients are not loaded for one.
    if name == PlatformName.LOCAL:
        from elastic.platforms.local.platform import LocalPlatform

        return LocalPlatform()
    from elastic.platforms.kubernetes.api.cluster import connect
    from elastic.platforms.kubernetes.job.platform import KubernetesPlatform

    cluster = connect(choice.kubeconfig, choice.context, patience_s)
    return KubernetesPlatform(cluster, choice.namespace, _build_image)


def _build_image(request: "ImageRequest") -> str:
    """Make the image of a job, and show how far it is."""
    from elastic.platforms.images import build_and_push
    from elastic.telemetry.image_display import open_image_display

    # Standard output is for what becomes of the job.
    with open_image_display(sys.stderr) as display:
        return build_and_push(request, display.show)
