"""What `elastic controller` and `elastic install` are told of who decides the sizes of jobs."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from elastic.cli.planning import seconds
from elastic.controller.settings import (
    AUTOSCALERS,
    FIRST_FIT,
    NO_AUTOSCALING,
    TF_SCHEDULERS,
    Autoscaling,
)

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

OPTIONS: Final = ("autoscale", "tf_scheduler", "max_load", "starve_after", "grow_after", "hold")


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
