"""What `elastic plan` and `elastic simulate` share: files that are named, options of policies."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from elastic.errors import DescriptionError
from elastic.spec.since import parse_since

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

POLICY_NAMES: Final = ("fulfillment", "dragon", "goodput", "gang", "fifo")
"""Those of `elastic.planning.policies`, which is not imported for --help; a test compares them."""


def policy_options(function: _Decorated) -> _Decorated:
    """Give a command what can be said to policies."""
    for name, metavar, reader, text in (
        ("grow_after", "TIME", seconds,
         "How long nothing has to have changed before jobs grow (dragon); 60s by default."),
        ("starve_after", "TIME", seconds,
         "How long a job waits before others give way (dragon: 30s by default), or before nodes "
         "are kept for it (fulfillment: 5m, goodput: 1d)."),
    ):  # fmt: skip
        function = click.option(f"--{name}", metavar=metavar, callback=reader, help=text)(function)
    return click.option(
        "--max_load", type=click.FloatRange(0, 1, min_open=True), metavar="PART",
        help="The part of CPU and memory that is given out at most (fulfillment); 0.97 by "
        "default.",
    )(function)  # fmt: skip


def seconds(_context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    """A duration such as `30s`, in seconds."""
    if text is None:
        return None
    problem = f"{text!r} is no duration such as 30s or 5m"
    try:
        span = parse_since(text)
    except ValueError as error:
        raise click.BadParameter(problem, param=parameter) from error
    if not span.before_now:
        raise click.BadParameter(problem, param=parameter)
    return span.seconds


def refuse_cluster_options(context: click.Context, without: str) -> None:
    """See that nothing is said of the current cluster where it is not looked at.

    Args:
        context: Of the command.
        without: What was said, or not, for that, such as `with --snapshot`.

    Raises:
        click.UsageError: An option says whose jobs of the cluster are meant.
    """
    for name, option in (("all_namespaces", "--all_namespaces"), ("kinds", "--kinds"),
                         ("namespace", "--namespace"), ("context", "--context"),
                         ("kubeconfig", "--kubeconfig")):  # fmt: skip
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(
                f"{option} is of the current cluster, which is not looked at {without}: "
                "leave it out"
            )


def read_text(path: Path) -> str:
    """A file that a user has named.

    Raises:
        DescriptionError: It cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DescriptionError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DescriptionError(f"{path} is no text: {error.reason}") from error


def write_text(path: Path, text: str) -> None:
    """Write a file that a user has named.

    Raises:
        DescriptionError: It cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise DescriptionError(f"{path} cannot be written: {error.strerror}") from error
