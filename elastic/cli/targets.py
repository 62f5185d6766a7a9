"""What a command's JOB means: a job of elastic's own, or an object of another kind, KIND/NAME."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from elastic.cli.options import cluster_choice
from elastic.errors import JobNotFoundError, JobSpecError
from elastic.platforms.base import Platform
from elastic.spec.platforms import traits_of

if TYPE_CHECKING:
    from elastic.controller.inspection.kinds import Reference
    from elastic.controller.inspection.objects import Objects


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
