"""What commands are told of policies, of the files that they name, and of who decides sizes.

`elastic plan` and `elastic simulate` name policies and files, `elastic controller` and
`elastic install` who is to decide the sizes of jobs.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from elastic.controller.settings import (
    AUTOSCALERS,
    FIRST_FIT,
    NO_AUTOSCALING,
    TF_SCHEDULERS,
    Autoscaling,
)
from elastic.errors import DescriptionError
from elastic.spec.values.since import parse_since

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

POLICY_NAMES: Final = ("fulfillment", "dragon", "goodput", "gang", "fifo")
"""Those of `elastic.planning.policies`, which is not imported for --help; a test compares them."""
OPTIONS: Final = ("autoscale", "tf_scheduler", "max_load", "starve_after", "grow_after", "hold")


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


def autoscaling_options(function: _Decorated) -> _Decorated:
    """Give a command these options."""
    for name, text in (
        ("hold", "How long a size that a user has set is left alone; 10m by default."),
        ("grow_after", "How long nothing has to have changed before TFJobs grow (dragon); 60s by "
                       "default."),
        ("starve_after", "How long a TFJob waits before others give it room (dragon); 30s by "
                         "default."),
    ):  # fmt: skip
        function = click.option(f"--{name}", metavar="TIME", callback=seconds, help=text)(function)
    for option in (
        click.option("--max_load", type=click.FloatRange(0, 1, min_open=True), metavar="PART",
                     help="The part of CPU and memory that is given out at most (fulfillment); "
                     "0.97 by default."),
        click.option("--tf_scheduler", type=click.Choice(TF_SCHEDULERS), default=FIRST_FIT,
                     show_default=True,
                     help="Who places the replicas of TFJobs. Dragon also has them make room for "
                     "those that starve, and grow."),
        click.option("--autoscale", type=click.Choice(AUTOSCALERS),
                     help="The policy that gives TrainingJobs, ElasticJobs and jobs of elastic "
                     "train their sizes; by default each has its own."),
    ):  # fmt: skip
        function = option(function)
    return function


def autoscaling_of(options: Mapping[str, Any]) -> Autoscaling:
    """What was said by them."""
    return Autoscaling(
        options["autoscale"] or "",
        options["tf_scheduler"],
        options["max_load"],
        options["starve_after"],
        options["grow_after"],
        NO_AUTOSCALING.hold_s if options["hold"] is None else options["hold"],
    )
