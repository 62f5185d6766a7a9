"""`elastic doctor`: everything that jobs need, looked at one by one."""

import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib import metadata
from itertools import chain
from typing import Final

import click
from click.core import ParameterSource

from elastic.cli.exit_codes import ExitCode
from elastic.cli.options import cluster_choice, platform_option
from elastic.platforms.registry import Check, CheckRequest, Outcome, entry_of
from elastic.spec.job import JobSpec
from elastic.spec.platforms import HERE, PlatformName, Traits
from elastic.spec.values import (
    DISTRIBUTION,
    FORMER_DISTRIBUTION,
    PACKAGES,
    install_this,
    installed_version,
    pip_install,
)
from elastic.telemetry.progress import takes_colours

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

_EXTRAS: Final = {
    "tensorboard": "training curves in TensorBoard (--tensorboard_log_dir)",
    "parquet": "Parquet files as training data",
    "images": "folders of images as training data",
    "remote": "data at s3://, gs:// and https:// addresses",
    "zstd": "files that are compressed with zstd",
}
"""By extra. One that is new here is told by the packages that it brings."""
_OTHERS: Final = frozenset({"dev", "torch", "tensorflow"})
"""Extras that are no features: the developers' tools, and the frameworks, which are a check of
their own."""
_REQUIREMENT: Final = re.compile(
    r"(?P<package>[\w.-]+).*;.*\bextra\s*==\s*['\"](?P<extra>[\w.-]+)['\"]"
)

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
        if (version := installed_version(package))
    ]
    if found:
        yield Check("frameworks", Outcome.OK, ", ".join(found))
    elif traits.has_images:
        text = "none on this machine; the image brings the job's own"
        yield Check("frameworks", Outcome.OK, text)
    else:
        fix = f"{pip_install('torch')}, or {pip_install('tensorflow')}"
        yield Check("frameworks", Outcome.FAILURE, "none on this machine", fix)
    yield _check_distribution()
    yield from check_extras()


def _check_distribution() -> Check:
    """Whether the module `elastic` is of one distribution: ours."""
    providers = metadata.packages_distributions().get("elastic", [])
    return distribution_check({*providers, FORMER_DISTRIBUTION}, installed_version)


def distribution_check(names: Collection[str], version: Callable[[str], str | None]) -> Check:
    """What it means that these are, or may be, installed.

    Args:
        version: The installed version of a distribution, or None.
    """
    own = version(DISTRIBUTION)
    others = {name: version(name) for name in sorted(names) if _plain(name) != DISTRIBUTION}
    found = {name: number for name, number in others.items() if number}
    if found:
        text = ", ".join(f"{name} {number}" for name, number in found.items())
        fix = f"pip uninstall {' '.join(found)}, then install this one from its wheel or checkout"
        return Check(
            "distribution", Outcome.WARNING, f"{text} is installed too, with files of one name", fix
        )
    if own is None:
        text = f"elastic runs without being installed as {DISTRIBUTION}"
        return Check("distribution", Outcome.SKIPPED, text, install_this())
    return Check("distribution", Outcome.OK, f"{DISTRIBUTION} {own}")


def _plain(name: str) -> str:
    """The one way to write a distribution's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def check_extras() -> Iterator[Check]:
    """Each optional extra of the elastic that runs."""
    try:
        requirements = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        text = "elastic runs without being installed, so nobody knows them"
        yield Check("extras", Outcome.SKIPPED, text, install_this())
        return
    yield from checks_of(extras_in(requirements), installed_version)


def extras_in(requirements: Sequence[str]) -> dict[str, list[str]]:
    """Optional extra → the packages it brings, as the metadata of a distribution lists them."""
    found: dict[str, list[str]] = {}
    for match in filter(None, map(_REQUIREMENT.match, requirements)):
        if match["extra"] not in _OTHERS:
            found.setdefault(match["extra"], []).append(match["package"])
    return found


def checks_of(
    extras: Mapping[str, Sequence[str]], version: Callable[[str], str | None]
) -> Iterator[Check]:
    """One check an extra; what is not installed stops no job that does not ask for it.

    Args:
        version: The installed version of a package, or None.
    """
    for extra, packages in sorted(extras.items()):
        subject = f"extra {extra}"
        versions = {package: version(package) for package in packages}
        use = _EXTRAS.get(extra, f"what needs {', '.join(packages)}")
        if all(versions.values()):
            have = ", ".join(f"{package} {number}" for package, number in versions.items())
            yield Check(subject, Outcome.OK, f"{use} ({have})")
        else:
            missing = [package for package, number in versions.items() if not number]
            text = f"{use}: not installed: {', '.join(missing)}"
            fix = pip_install(extra) if extra in PACKAGES else f"pip install {' '.join(missing)}"
            yield Check(subject, Outcome.SKIPPED, text, fix)
