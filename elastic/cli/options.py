"""Arguments and options that several commands share: a job, its platform, a moment.

A JOB is a job of elastic's own, or an object of another kind, KIND/NAME (`target_of`).
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from elastic.client import platforms
from elastic.client.platforms import PLATFORM_VARIABLE, ClusterChoice
from elastic.errors import ElasticError, JobNotFoundError, JobSpecError
from elastic.platforms.base import Platform, unheard
from elastic.spec.platforms import PlatformName, traits_of
from elastic.spec.values import Since, parse_since

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from elastic.controller.inspection.kinds import Reference
    from elastic.controller.inspection.objects import Objects

COMPLETION_PATIENCE_S: Final = 1.5
"""Whoever has pressed the key waits; nothing that takes longer is worth it."""

_META_KEY: Final = "elastic.cluster"

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


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
        callback=_or_default,
        envvar=PLATFORM_VARIABLE,
        help=f"Where the job runs; {PLATFORM_VARIABLE} sets a default, which else is kubernetes "
        "where a kubeconfig is, and local elsewhere.",
    )(function)


def _or_default(context: click.Context, _parameter: click.Parameter, value: str | None) -> str:
    # What was typed has been remembered by now: click takes what was left out last.
    return value or str(platforms.default_platform(cluster_choice(context)))


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
    opener: Opener = context.find_root().obj or platforms.open_platform
    traits = traits_of(name)
    if traits is not None and not traits.names_clusters and context.meta.get(_META_KEY):
        unused = ", ".join(f"--{option}" for option in context.meta[_META_KEY])
        click.echo(f"note: unused with --platform {name}: {unused}", err=True)
    return opener(name, cluster_choice(context, namespace))


def job_argument(required: bool = True) -> Callable[[_Decorated], _Decorated]:
    """Give a command the argument JOB, completed by the names of the platform's jobs.

    After a kind and `/`, these are the names of the cluster's objects of that kind.
    """
    return click.argument("job", required=required, shell_complete=_jobs)


def _jobs(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> "list[CompletionItem]":
    """The jobs of the platform that the words so far name; none where it does not tell in time."""
    # Of use to shells alone.
    from click.shell_completion import CompletionItem

    opener: Opener = context.find_root().obj or _open_quietly
    choice = cluster_choice(context)
    platform = context.params.get("platform") or platforms.default_platform(choice)
    found: list[str] = []

    def look() -> None:
        found.extend(_names(opener, str(platform), choice, incomplete))

    # What never answers is left behind; the process ends with the answer to the shell.
    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    looking.join(COMPLETION_PATIENCE_S)
    # The newest is the one that is most likely meant.
    return [CompletionItem(name) for name in reversed(found) if name.startswith(incomplete)]


def _names(opener: Opener, platform: str, choice: ClusterChoice, incomplete: str) -> list[str]:
    try:
        opened = opener(platform, choice)
        word, slash, _ = incomplete.partition("/")
        return _names_of_kind(opened, word) if slash else list(opened.jobs())
    except ElasticError:
        # A prompt is no place for messages.
        return []


def _names_of_kind(platform: Platform, word: str) -> list[str]:
    # A cluster's client comes with them.
    from elastic.controller.inspection.kinds import kind_named
    from elastic.controller.inspection.objects import objects_of

    objects, kind = objects_of(platform, unheard), kind_named(word)
    if objects is None or kind is None:
        return []
    return [f"{word}/{name}" for name in objects.names(kind)]


def _open_quietly(name: str, choice: ClusterChoice) -> Platform:
    """The platform of that name, whose API server is asked once."""
    return platforms.open_platform(name, choice, patience_s=0.0)


def kinds_option(function: _Decorated) -> _Decorated:
    """Give a command the option `--kinds`, a tuple of names."""
    return click.option(
        "--kinds", metavar="NAME,…", default="", callback=_split,
        help="Kinds of objects, such as trainingjob, elasticjob and tfjob; all of them by "
        "default. Leave out those that another controller of the cluster looks after.",
    )(function)  # fmt: skip


def _split(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def read_moment(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> Since | None:
    """Read an option that names a moment, or how long ago it was, as its callback."""
    try:
        return None if text is None else parse_since(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@dataclass(frozen=True, slots=True)
class ObjectTarget:
    """An object of another kind."""

    objects: "Objects"
    reference: "Reference"


@dataclass(frozen=True, slots=True)
class JobTarget:
    """A job of elastic's own."""

    name: str


def objects_beside(platform: Platform, name: str) -> "Objects | None":
    """The objects of other kinds beside the jobs of a platform; None where that is no cluster.

    Args:
        platform: Opened by this name.
        name: Its own.
    """
    traits = traits_of(name)
    if traits is None or not traits.names_clusters:
        return None
    # A cluster's client comes with it.
    from elastic.controller.inspection.objects import objects_of

    return objects_of(platform, lambda text: click.echo(f"note: {text}", err=True))


def target_of(
    text: str, platform: Platform, objects: "Objects | None"
) -> "JobTarget | ObjectTarget":
    """What JOB means. An object that is a job of elastic's own as well is taken for that.

    Raises:
        JobSpecError: A kind is named that is none, or where there are none.
    """
    if "/" not in text:
        return JobTarget(text)
    if objects is None:
        raise JobSpecError(
            f"{text}: objects of other kinds are in a cluster: choose one with --platform "
            "kubernetes, or leave the kind out"
        )
    from elastic.controller.inspection.kinds import TRAIN_JOBS, parse_reference

    reference = parse_reference(text)
    if reference.kind is TRAIN_JOBS and _is_job(platform, reference.name):
        return JobTarget(reference.name)
    return ObjectTarget(objects, reference)


def _is_job(platform: Platform, name: str) -> bool:
    try:
        platform.status(name)
    except JobNotFoundError:
        return False
    return True


@contextmanager
def others_named(context: click.Context, job: str, objects: "Objects | None") -> Iterator[None]:
    """Where there is no job of that name, tell of objects that have it.

    Raises:
        JobNotFoundError: The same, with the command that means the object.
    """
    try:
        yield
    except JobNotFoundError as error:
        others = [] if objects is None else objects.named(job)
        if not others:
            raise
        commands = " or ".join(
            f"`{context.command_path} {other}{_cluster_words(context)}`" for other in others
        )
        kinds = " and ".join(f"a {other.kind.resource.kind}" for other in others)
        raise JobNotFoundError(f"{error}; there is {kinds} of that name: {commands}") from error


def _cluster_words(context: click.Context) -> str:
    """The options that name the cluster and the namespace, as they were given."""
    choice = cluster_choice(context)
    given = {
        "--namespace": choice.namespace,
        "--context": choice.context,
        "--kubeconfig": choice.kubeconfig,
    }
    return "".join(f" {flag} {value}" for flag, value in given.items() if value)
