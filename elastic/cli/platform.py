"""Which platform a command talks to, and where that is."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from elastic.platforms.base import Platform
from elastic.spec.job import PlatformName

if TYPE_CHECKING:
    from elastic.platforms.images import ImageRequest

PLATFORM_VARIABLE = "ELASTIC_PLATFORM"
PATIENCE_S: Final = 4.0
"""How long people wait for an API server that is away or busy; followers wait longer."""
_META_KEY: Final = "elastic.cluster"

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class ClusterChoice:
    """Which cluster is meant, by kubectl's conventions; None leaves it to the kubeconfig."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None


Opener = Callable[[str, ClusterChoice], Platform]
"""Makes the platform of a name."""


def platform_option(function: _Decorated) -> _Decorated:
    """Give a command `--platform`, and what says which cluster and namespace that is."""
    return platform_name_option(namespace_option(cluster_options(function)))


def platform_name_option(function: _Decorated) -> _Decorated:
    """Give a command the option `--platform`."""
    return click.option(
        "--platform",
        type=click.Choice([name.value for name in PlatformName]),
        default=PlatformName.KUBERNETES.value,
        envvar=PLATFORM_VARIABLE,
        show_default=True,
        help=f"Where the job runs; {PLATFORM_VARIABLE} sets another default.",
    )(function)


def namespace_option(function: _Decorated) -> _Decorated:
    """Give a command the option `--namespace`."""
    return click.option(
        "-n", "--namespace", metavar="NAME", expose_value=False, callback=_remember,
        help="Namespace of the job; that of the context by default.",
    )(function)  # fmt: skip


def cluster_options(function: _Decorated) -> _Decorated:
    """Give a command the options `--context` and `--kubeconfig`."""
    for name, metavar, text in (
        ("kubeconfig", "FILE", "Kubeconfig to use; $KUBECONFIG or ~/.kube/config by default."),
        ("context", "NAME", "Context of the kubeconfig; its current one by default."),
    ):
        function = click.option(
            f"--{name}", metavar=metavar, help=text, expose_value=False, callback=_remember
        )(function)
    return function


def _remember(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Keep an option for `cluster_choice`, so that no command has to hand it on."""
    if value is not None:
        context.meta.setdefault(_META_KEY, {})[parameter.name] = value


def cluster_choice(context: click.Context, namespace: str | None = None) -> ClusterChoice:
    """What the options of a command say about the cluster.

    Args:
        namespace: Taken where no option names one.
    """
    given: dict[str, str] = context.meta.get(_META_KEY, {})
    return ClusterChoice(
        given.get("kubeconfig"), given.get("context"), given.get("namespace") or namespace or None
    )


def open_platform(context: click.Context, name: str, namespace: str | None = None) -> Platform:
    """The platform of that name, or of the caller's own making where `main` was given one.

    Raises:
        PlatformError: The platform cannot be used from here.
    """
    opener: Opener = context.find_root().obj or _open
    if name == PlatformName.LOCAL and context.meta.get(_META_KEY):
        unused = ", ".join(f"--{option}" for option in context.meta[_META_KEY])
        click.echo(f"note: unused with --platform {name}: {unused}", err=True)
    return opener(name, cluster_choice(context, namespace))


def _open(name: str, choice: ClusterChoice) -> Platform:
    # The other platform's clients are not loaded for one.
    if name == PlatformName.LOCAL:
        from elastic.platforms.local.platform import LocalPlatform

        return LocalPlatform()
    from elastic.platforms.kubernetes.connection import connect
    from elastic.platforms.kubernetes.platform import KubernetesPlatform

    cluster = connect(choice.kubeconfig, choice.context, PATIENCE_S)
    return KubernetesPlatform(cluster, choice.namespace, _build_image)


def open_quietly(name: str, choice: ClusterChoice) -> Platform:
    """The platform of that name, whose API server is asked once."""
    if name == PlatformName.LOCAL:
        return _open(name, choice)
    from elastic.platforms.kubernetes.connection import connect
    from elastic.platforms.kubernetes.platform import KubernetesPlatform

    return KubernetesPlatform(connect(choice.kubeconfig, choice.context, 0.0), choice.namespace)


def _build_image(request: "ImageRequest") -> str:
    """Make the image of a job, and show how far it is."""
    from elastic.platforms.images import build_and_push
    from elastic.telemetry.image_display import open_image_display

    # Standard output is for what becomes of the job.
    with open_image_display(sys.stderr) as display:
        return build_and_push(request, display.show)
