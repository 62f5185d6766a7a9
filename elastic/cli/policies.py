"""`elastic plan` and `elastic simulate`: what policies would do to a cluster or a workload.

And what commands are told of policies, of the files that they name, and of who decides sizes: those
two name policies and files, `elastic controller` and `elastic install` who is to decide the sizes
of jobs.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from elastic.cli.exit_codes import ExitCode
from elastic.cli.options import cluster_choice, cluster_options, kinds_option, namespace_option
from elastic.controller.settings import (
    AUTOSCALERS,
    FIRST_FIT,
    NO_AUTOSCALING,
    TF_SCHEDULERS,
    Autoscaling,
)
from elastic.errors import DescriptionError
from elastic.spec.values import parse_since

if TYPE_CHECKING:
    from elastic.policy.cluster import Snapshot
    from elastic.simulation.outcome import Result
    from elastic.simulation.workload import Scenario, Workload


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


# `elastic plan`: what a policy would do to a cluster, and why.


_PLAN_EPILOG = """\b
Examples:
  elastic plan --policy fulfillment
  elastic plan --policy fulfillment --all_namespaces --save now.json
  elastic plan --policy fulfillment --snapshot now.json --max_load 0.9 -o json
"""


@click.command("plan", short_help="Show what a policy would do to a cluster.", epilog=_PLAN_EPILOG)
@click.option("--policy", "policy_name", required=True, type=click.Choice(POLICY_NAMES),
              help="Who decides.")  # fmt: skip
@click.option("--snapshot", metavar="FILE", type=click.Path(path_type=Path),
              help="A cluster at one moment, as YAML or JSON; the current one by "
              "default.")  # fmt: skip
@click.option("--save", metavar="FILE", type=click.Path(path_type=Path),
              help="Keep the snapshot, as JSON.")  # fmt: skip
@click.option("-o", "--output", "form", type=click.Choice(["table", "json"]), default="table",
              show_default=True, help="For people, or for programs.")  # fmt: skip
@policy_options
@click.option("--all_namespaces", is_flag=True, help="Jobs of all namespaces of the cluster.")
@kinds_option
@namespace_option
@cluster_options
@click.pass_context
def plan(
    context: click.Context,
    /,
    policy_name: str,
    snapshot: Path | None,
    save: Path | None,
    form: str,
    all_namespaces: bool,
    kinds: tuple[str, ...],
    **options: Any,
) -> int:
    """Show what a policy would do to a cluster, job by job, and why.

    Nothing is changed. A snapshot is one file: take it here, look at it there,
    edit it, and plan again. What belongs to no job of --kinds counts as pods
    that are simply there.
    """
    # Nothing of this is needed for --help.
    from elastic.planning.forms import read_snapshot, snapshot_document
    from elastic.planning.policies import POLICIES, PolicyOptions, plan_document, plan_lines

    if snapshot is not None:
        refuse_cluster_options(context, "with --snapshot")
        seen = read_snapshot(read_text(snapshot), str(snapshot))
    else:
        seen = _snapshot_of_cluster(context, all_namespaces, kinds)
    if save is not None:
        write_text(save, json.dumps(snapshot_document(seen), indent=1) + "\n")
    policy = POLICIES[policy_name]
    said = PolicyOptions(options["max_load"], options["starve_after"], options["grow_after"])
    plan, remark = policy.policy(said).plan(seen), policy.remarks(seen)
    if form == "json":
        click.echo(json.dumps(plan_document(plan, seen, policy_name, remark), indent=2))
    else:
        click.echo("\n".join(plan_lines(plan, seen, remark)))
    return ExitCode.DONE


def _snapshot_of_cluster(
    context: click.Context, all_namespaces: bool, kinds: tuple[str, ...]
) -> "Snapshot":
    from elastic.controller.snapshots.looking import check_kinds, look
    from elastic.platforms.kubernetes.api.cluster import connect
    from elastic.platforms.kubernetes.api.transport import NAME_ONE

    check_kinds(kinds)
    choice = cluster_choice(context)
    cluster = connect(choice.kubeconfig, choice.context, remedy=NAME_ONE)
    where = None if all_namespaces else choice.namespace or cluster.namespace
    return look(cluster, where, kinds)


# `elastic simulate`: whole workloads on a virtual clock, for several policies side by side.


GENERATOR_NAMES: Final = ("equal_jobs", "off_peak", "tfjobs", "philly")
"""Those of `elastic.simulation.workload`, which is not imported for --help."""

_TELLS: Final = ("nothing", "speed", "all")
_ALL: Final = "all"

_SIMULATE_EPILOG = """\b
Examples:
  elastic simulate --generate equal_jobs
  elastic simulate --generate philly --jobs 500 --policy all --plots plots
  elastic simulate --workload jobs.yaml --nodes nodes.yaml -o json
  elastic simulate --elastic 0.5:2 --workload cluster_log.csv \\
      --nodes cluster_gpu_number.csv
"""


def _range(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[float, float]:
    """`LEAST:MOST`, as parts and multiples of the recorded size."""
    try:
        least, most = (float(each) for each in text.split(":"))
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is no LEAST:MOST such as 0.5:2") from error
    if not 0 < least <= 1 <= most:
        raise click.BadParameter(f"{text!r}: 0 < LEAST <= 1 <= MOST does not hold")
    return least, most


def _rescale(
    _context: click.Context, _parameter: click.Parameter, texts: Sequence[str]
) -> dict[str, float]:
    """`KIND=SECONDS` of each."""
    found = {}
    for text in texts:
        kind, _, seconds = text.partition("=")
        try:
            found[kind] = float(seconds)
        except ValueError as error:
            raise click.BadParameter(f"{text!r} is no KIND=SECONDS such as TFJob=30") from error
    return found


@click.command(
    "simulate", short_help="Run a workload on a virtual clock, under several policies.",
    epilog=_SIMULATE_EPILOG,
)  # fmt: skip
@click.option("--policy", "policies", default=_ALL, show_default=True, metavar="NAME,…",
              help=f"Who decides: {', '.join(POLICY_NAMES)}, or all of them.")  # fmt: skip
@click.option("--workload", metavar="FILE", type=click.Path(path_type=Path),
              help="What is submitted: YAML, JSON or CSV, or a public trace.")  # fmt: skip
@click.option("--from_cluster", is_flag=True,
              help="What the jobs of the current cluster did, on its nodes.")  # fmt: skip
@click.option("--all_namespaces", is_flag=True, help="Of the jobs of all its namespaces.")
@click.option("--nodes", metavar="FILE", type=click.Path(path_type=Path),
              help="The machines: YAML or JSON, a snapshot, or those of a trace.")  # fmt: skip
@click.option("--generate", type=click.Choice(GENERATOR_NAMES),
              help="Make a workload, and nodes for it, instead of reading them.")  # fmt: skip
@click.option("--jobs", "num_jobs", type=click.IntRange(1), metavar="N",
              help="How many jobs are made.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, metavar="N",
              help="Of what is drawn for them.")  # fmt: skip
@click.option("--elastic", default="1:1", show_default=True, metavar="LEAST:MOST",
              callback=_range,
              help="Sizes of the jobs of a trace: a part and a multiple of the recorded "
              "one.")  # fmt: skip
@click.option("--serial", type=click.FloatRange(0, 1), default=0.0, show_default=True,
              metavar="PART", help="What more workers do not shorten of the jobs of a "
              "trace.")  # fmt: skip
@click.option("--tells", type=click.Choice(_TELLS), default="nothing", show_default=True,
              help="What jobs of a trace tell policies of themselves: nothing, their speed, or "
              "also how much work remains.")  # fmt: skip
@click.option("--profiles", metavar="DIR", type=click.Path(path_type=Path, file_okay=False),
              help="Measured profiles of the applications of a Pollux workload.")  # fmt: skip
@click.option("--kind", metavar="KIND", help="Take all jobs for this kind, such as TFJob.")
@click.option("--period", "period_s", type=click.FloatRange(0.1), default=5.0, show_default=True,
              metavar="SECONDS", help="How often a policy is asked.")  # fmt: skip
@click.option("--rescale", multiple=True, metavar="KIND=SECONDS", callback=_rescale,
              help="What a change of its size costs a job of that kind; ElasticJob=30 and "
              "ElasticTrainJob=1 by default.")  # fmt: skip
@policy_options
@click.option("-o", "--output", "form", type=click.Choice(["table", "json"]), default="table",
              show_default=True, help="For people, or for programs.")  # fmt: skip
@click.option("--plots", metavar="DIR", type=click.Path(path_type=Path, file_okay=False),
              help="Draw what happened into this folder, as PNG.")  # fmt: skip
@click.option("--save", metavar="DIR", type=click.Path(path_type=Path, file_okay=False),
              help="Write the workload and the nodes to this folder, in our own form.")  # fmt: skip
@namespace_option
@cluster_options
@click.pass_context
def simulate(
    context: click.Context,
    /,
    policies: str,
    form: str,
    plots: Path | None,
    save: Path | None,
    **values: Any,
) -> int:
    """Run a workload on a virtual clock, under one policy or several side by side.

    The policies are those that run in a cluster; jobs, pods and time are not
    real. Told are utilisation, waiting, completion and makespan, fairness and
    how often jobs changed their size.
    """
    from elastic.simulation.outcome import result_document, result_lines

    names = _names(policies)
    if plots is not None:
        _check_plotting()
    scenario = _scenario(context, values)
    _check_kinds(values["rescale"], scenario)
    if save is not None:
        _save(save, scenario)
    results = [_simulate(name, scenario, values) for name in names]
    if plots is not None:
        _draw(results, plots)
    if form == "json":
        click.echo(json.dumps(result_document(results)))
    else:
        click.echo("\n".join(result_lines(results)))
    return ExitCode.DONE


def _names(text: str) -> list[str]:
    names = [each.strip() for each in text.split(",") if each.strip()]
    names = list(POLICY_NAMES) if names == [_ALL] else names
    # One that is named twice would have two columns that say the same.
    names = list(dict.fromkeys(names))
    if unknown := [each for each in names if each not in POLICY_NAMES]:
        raise click.UsageError(
            f"--policy {unknown[0]} is none of {', '.join(POLICY_NAMES)} and {_ALL}"
        )
    if not names:
        raise click.UsageError("--policy names no policy")
    return names


def _scenario(context: click.Context, values: dict[str, Any]) -> "Scenario":
    """What the options name, read or made."""
    from elastic.simulation.traces.reading import read_nodes
    from elastic.simulation.workload import GENERATORS, Scenario

    generate, workload, nodes = values["generate"], values["workload"], values["nodes"]
    if [generate is not None, workload is not None, values["from_cluster"]].count(True) != 1:
        raise click.UsageError("say one of --workload, --generate and --from_cluster")
    if not values["from_cluster"]:
        refuse_cluster_options(context, "without --from_cluster")
    if workload is not None and nodes is None:
        raise click.UsageError("--workload needs --nodes: the machines that it runs on")
    if values["from_cluster"]:
        made = _scenario_of_cluster(context, values)
    elif generate is not None:
        generator = GENERATORS[generate]
        made = generator.make(values["num_jobs"] or generator.num_jobs, values["seed"])
    else:
        if values["num_jobs"] is not None:
            raise click.UsageError("--jobs is of --generate: say that too, or leave it out")
        made = Scenario(_read_workload(workload, values), ())
    if nodes is not None:
        made = replace(made, nodes=read_nodes(read_text(nodes), str(nodes)))
    return made if values["kind"] is None else _of_kind(made, values["kind"])


def _scenario_of_cluster(context: click.Context, values: dict[str, Any]) -> "Scenario":
    from elastic.controller.snapshots.looking import look_back
    from elastic.platforms.kubernetes.api.cluster import connect
    from elastic.platforms.kubernetes.api.transport import NAME_ONE
    from elastic.simulation.workload import Scenario

    choice = cluster_choice(context)
    cluster = connect(choice.kubeconfig, choice.context, remedy=NAME_ONE)
    where = None if values["all_namespaces"] else choice.namespace or cluster.namespace
    return Scenario(*look_back(cluster, where, values["serial"]))


def _read_workload(path: Path, values: dict[str, Any]) -> "Workload":
    from elastic.simulation.traces.common import Elasticity
    from elastic.simulation.traces.reading import read_workload
    from elastic.simulation.workload import Tells

    least, most = values["elastic"]
    elasticity = Elasticity(least, most, values["serial"], Tells(values["tells"]))
    profiles = {} if values["profiles"] is None else _profiles(values["profiles"])
    return read_workload(read_text(path), str(path), elasticity, profiles)


def _profiles(folder: Path) -> dict[str, str]:
    found = {str(path.relative_to(folder)): read_text(path) for path in folder.glob("*/*.csv")}
    if not found:
        raise DescriptionError(f"--profiles {folder} has no APPLICATION/FILE.csv")
    return found


def _of_kind(scenario: "Scenario", kind: str) -> "Scenario":
    submissions = tuple(
        replace(each, job=replace(each.job, kind=kind)) for each in scenario.workload.submissions
    )
    return replace(scenario, workload=replace(scenario.workload, submissions=submissions))


def _check_kinds(rescale: Mapping[str, float], scenario: "Scenario") -> None:
    from elastic.simulation.engine import RESCALE_S

    known = {*RESCALE_S, *(each.job.kind for each in scenario.workload.submissions)}
    if unknown := [kind for kind in rescale if kind not in known]:
        raise click.UsageError(
            f"--rescale: no job is of the kind {unknown[0]}; known are {', '.join(sorted(known))}"
        )


def _simulate(name: str, scenario: "Scenario", values: dict[str, Any]) -> "Result":
    from elastic.planning.policies import POLICIES, PolicyOptions
    from elastic.simulation.engine import RESCALE_S, Settings, simulate
    from elastic.simulation.outcome import Result, measure
    from elastic.telemetry.progress import SimulationProgress, open_counting_display

    nodes, workload = scenario.nodes, scenario.workload
    settings = Settings(values["period_s"], {**RESCALE_S, **values["rescale"]})
    options = PolicyOptions(values["max_load"], values["starve_after"], values["grow_after"])
    policy = POLICIES[name].policy(options)
    begun_s = time.monotonic()
    with open_counting_display(sys.stderr, "simulation") as display:

        def on_end(num_ended: int) -> None:
            display.show(SimulationProgress(name, num_ended, len(workload.submissions)))

        outcome = simulate(nodes, workload, policy, settings, on_end)
    took_s = time.monotonic() - begun_s
    return Result(name, outcome, measure(outcome, workload.windows), took_s)


def _save(folder: Path, scenario: "Scenario") -> None:
    from elastic.planning.forms import node_document
    from elastic.simulation.forms import workload_document

    _make_folder("--save", folder)
    jobs = workload_document(scenario.workload)
    nodes = {"nodes": [node_document(each) for each in scenario.nodes]}
    write_text(folder / "workload.json", json.dumps(jobs, indent=1) + "\n")
    write_text(folder / "nodes.json", json.dumps(nodes, indent=1) + "\n")


def _make_folder(option: str, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DescriptionError(f"{option} {folder} cannot be made: {error.strerror}") from error


def _check_plotting() -> None:
    """Say what is missing before anything is simulated."""
    from importlib.util import find_spec

    from elastic.spec.values import pip_install

    if find_spec("matplotlib") is None:
        raise DescriptionError(
            "--plots draws with matplotlib, which is not installed here: " + pip_install("plots")
        )


def _draw(results: "list[Result]", folder: Path) -> None:
    from elastic.simulation.plots import draw

    _make_folder("--plots", folder)
    for path in draw(results, folder):
        click.echo(f"drawn: {path}", err=True)
