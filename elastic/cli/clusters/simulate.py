"""`elastic simulate`: whole workloads on a virtual clock, for several policies side by side."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from elastic.cli.clusters.policies import (
    POLICY_NAMES,
    policy_options,
    read_text,
    refuse_cluster_options,
    write_text,
)
from elastic.cli.exit_codes import ExitCode
from elastic.cli.options import cluster_choice, cluster_options, namespace_option
from elastic.errors import DescriptionError

if TYPE_CHECKING:
    from elastic.simulation.generators import Scenario
    from elastic.simulation.outcome import Result
    from elastic.simulation.workload import Workload

GENERATOR_NAMES: Final = ("equal_jobs", "off_peak", "tfjobs", "philly")
"""Those of `elastic.simulation.generators`, which is not imported for --help."""

_TELLS: Final = ("nothing", "speed", "all")
_ALL: Final = "all"

_EPILOG = """\b
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
    epilog=_EPILOG,
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
def command(
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
    from elastic.simulation.generators import GENERATORS, Scenario
    from elastic.simulation.traces.reading import read_nodes

    generate, workload, nodes = values["generate"], values["workload"], values["nodes"]
    if [generate is not None, workload is not None, values["from_cluster"]].count(True) != 1:
        raise click.UsageError("say one of --workload, --generate and --from_cluster")
    if not values["from_cluster"]:
        refuse_cluster_options(context, "without --from_cluster")
    if workload is not None and nodes is None:
        raise click.UsageError("--workload needs --nodes: the machines that it runs on")
    if values["from_cluster"]:
        made = _of_cluster(context, values)
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


def _of_cluster(context: click.Context, values: dict[str, Any]) -> "Scenario":
    from elastic.controller.snapshots.looking import look_back
    from elastic.platforms.kubernetes.api.cluster import connect
    from elastic.platforms.kubernetes.api.kubeconfig import NAME_ONE
    from elastic.simulation.generators import Scenario

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

    settings = Settings(values["period_s"], {**RESCALE_S, **values["rescale"]})
    options = PolicyOptions(values["max_load"], values["starve_after"], values["grow_after"])
    begun_s = time.monotonic()
    outcome = simulate(scenario.nodes, scenario.workload, POLICIES[name].policy(options), settings)
    took_s = time.monotonic() - begun_s
    return Result(name, outcome, measure(outcome, scenario.workload.windows), took_s)


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

    from elastic.spec.values.packages import pip_install

    if find_spec("matplotlib") is None:
        raise DescriptionError(
            "--plots draws with matplotlib, which is not installed here: " + pip_install("plots")
        )


def _draw(results: "list[Result]", folder: Path) -> None:
    from elastic.simulation.plots import draw

    _make_folder("--plots", folder)
    for path in draw(results, folder):
        click.echo(f"drawn: {path}", err=True)
