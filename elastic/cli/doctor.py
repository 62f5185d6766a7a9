"""`elastic doctor`: everything that jobs need, looked at one by one."""

import shutil
import sys
import textwrap
from collections.abc import Iterator
from itertools import chain
from typing import Final

import click
from click.core import ParameterSource

from elastic.cli.doctor_extras import check_distribution, check_extras, version_of
from elastic.cli.exit_codes import ExitCode
from elastic.cli.platform import cluster_choice, platform_option
from elastic.platforms.registry import Check, CheckRequest, Outcome, entry_of
from elastic.spec.job import JobSpec
from elastic.spec.packages import pip_install
from elastic.spec.platforms import HERE, PlatformName, Traits
from elastic.telemetry.display import takes_colours

_COLOURS: Final = {
    Outcome.OK: "green",
    Outcome.WARNING: "yellow",
    Outcome.FAILURE: "red",
    Outcome.SKIPPED: "cyan",
}
_FRAMEWORKS: Final = {
    "torch": ("torch",),
    "keras": ("tensorflow", "tensorflow-cpu"),
}
"""By the framework of a model, the packages that bring it."""

_MIN_WIDTH: Final = 40

_DOCKER_URL: Final = str(JobSpec.model_fields["docker_base_url"].default)

_EPILOG = """\b
Nothing is changed. The exit code is 1 where something stops jobs.
\b
Examples:
  elastic doctor -n team --docker_image_repository registry.example.com/team
  elastic doctor --platform local
"""


@click.command(
    "doctor",
    short_help="Check everything that jobs need, and say what to fix.",
    epilog=_EPILOG,
)
@click.option("--service_account", default="elastic-master", show_default=True, metavar="NAME",
              help="Account of the masters; the jobs' setting of the same name.")  # fmt: skip
@click.option("--docker_image_repository", "repository", default="", metavar="REPOSITORY",
              help="Repository that images will be pushed to; its registry is asked.")  # fmt: skip
@click.option("--docker_base_url", default=_DOCKER_URL, show_default=True, metavar="URL",
              help="Address of the Docker engine.")  # fmt: skip
@platform_option
@click.pass_context
def command(
    context: click.Context,
    service_account: str,
    repository: str,
    docker_base_url: str,
    platform: str,
) -> int:
    """Check everything that jobs need, and say what to fix.

    On Kubernetes: the cluster, the namespace, your rights, the account of the
    masters and its rights, the Docker engine and the registry. Everywhere: the
    frameworks of this machine and elastic's optional extras.
    """
    name = PlatformName(platform)
    request = CheckRequest(cluster_choice(context), service_account, docker_base_url, repository)
    own, here = entry_of(name).checks(request), _check_here(name.traits)
    checks = chain(here, own) if name.traits.is_here else chain(own, here)
    if context.get_parameter_source("platform") is ParameterSource.DEFAULT and name == HERE:
        text = "none is configured, so jobs run on this machine"
        checks = chain([Check("cluster", Outcome.SKIPPED, text)], checks)
    outcomes = set()
    for check in checks:
        outcomes.add(check.outcome)
        _tell(check)
    return ExitCode.ERROR if Outcome.FAILURE in outcomes else ExitCode.DONE


def _tell(check: Check) -> None:
    """One check: a line in a pipe, and on a terminal as many as its words need."""
    mark = f"{check.outcome:<4}"
    if takes_colours(sys.stdout):
        mark = click.style(mark, fg=_COLOURS[check.outcome])
    click.echo(f"{mark}  {_wrapped(f'{check.subject}: {check.text}', ' ' * 6)}")
    if check.fix:
        click.echo(f"      → {_wrapped(check.fix, ' ' * 8)}")


def _wrapped(text: str, indent: str) -> str:
    if not sys.stdout.isatty():
        return text
    width = max(_MIN_WIDTH, shutil.get_terminal_size().columns)
    # A path or a command that is cut in two could not be copied.
    lines = [
        textwrap.fill(
            line, width, initial_indent=indent, subsequent_indent=indent,
            break_long_words=False, break_on_hyphens=False,
        )
        for line in text.splitlines()
    ]  # fmt: skip
    return "\n".join(lines).lstrip()


def _check_here(traits: Traits) -> Iterator[Check]:
    found = [
        f"{framework} ({package} {version})"
        for framework, packages in _FRAMEWORKS.items()
        for package in packages
        if (version := version_of(package))
    ]
    if found:
        yield Check("frameworks", Outcome.OK, ", ".join(found))
    elif traits.has_images:
        text = "none on this machine; the image brings the job's own"
        yield Check("frameworks", Outcome.OK, text)
    else:
        fix = f"{pip_install('torch')}, or {pip_install('tensorflow')}"
        yield Check("frameworks", Outcome.FAILURE, "none on this machine", fix)
    yield check_distribution()
    yield from check_extras()
