"""Which platform a command talks to."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from elastic.errors import PlatformError
from elastic.platforms.base import Platform
from elastic.spec.job import PlatformName

PLATFORM_VARIABLE = "ELASTIC_PLATFORM"
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


def platform_option(function: _Decorated) -> _Decorated:
    """Give a command the option `--platform`."""
    return click.option(
        "--platform",
        type=click.Choice([name.value for name in PlatformName]),
        default=PlatformName.KUBERNETES.value,
        envvar=PLATFORM_VARIABLE,
        show_default=True,
        help=f"Where the job runs; {PLATFORM_VARIABLE} sets another default.",
    )(function)


def open_platform(context: click.Context, name: str) -> Platform:
    """The platform of that name, or of the caller's own making where `main` was given one.

    Raises:
        PlatformError: The platform cannot be used from here.
    """
    factory: Callable[[str], Platform] = context.find_root().obj or _open
    return factory(name)


def _open(name: str) -> Platform:
    if name == PlatformName.LOCAL:
        # The other platform's clients are not loaded for it, nor it for them.
        from elastic.platforms.local.platform import LocalPlatform

        return LocalPlatform()
    if not _has_cluster():
        raise PlatformError(
            "no Kubernetes cluster is configured (no file in $KUBECONFIG, no ~/.kube/config, no "
            "service account): add --platform local to run on this machine"
        )
    raise PlatformError(
        "this version runs jobs on one machine only, and --platform is kubernetes: "
        "add --platform local"
    )


def _has_cluster() -> bool:
    """Whether there is a kubeconfig, or the service account of a pod."""
    listed = [part for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    paths = [Path(part) for part in listed] or [Path.home() / ".kube" / "config"]
    return any(path.is_file() for path in (*paths, _SERVICE_ACCOUNT))
