"""`elastic plan`: what a policy would do to a cluster, and why."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elastic.cli.clusters.policies import (
    POLICY_NAMES,
    policy_options,
    read_text,
    refuse_cluster_options,
    write_text,
)
from elastic.cli.exit_codes import ExitCode
from elastic.cli.options import cluster_choice, cluster_options, kinds_option, namespace_option

if TYPE_CHECKING:
    from elastic.policy.cluster.snapshot import Snapshot

_EPILOG = """\b
Examples:
  elastic plan --policy fulfillment
  elastic plan --policy fulfillment --all_namespaces --save now.json
  elastic plan --policy fulfillment --snapshot now.json --max_load 0.9 -o json
"""


@click.command("plan", short_help="Show what a policy would do to a cluster.", epilog=_EPILOG)
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
def command(
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
    from elastic.planning.policies import POLICIES, PolicyOptions
    from elastic.planning.telling import plan_document, plan_lines

    if snapshot is not None:
        refuse_cluster_options(context, "with --snapshot")
        seen = read_snapshot(read_text(snapshot), str(snapshot))
    else:
        seen = _of_cluster(context, all_namespaces, kinds)
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


def _of_cluster(context: click.Context, all_namespaces: bool, kinds: tuple[str, ...]) -> "Snapshot":
    from elastic.controller.snapshots.looking import check_kinds, look
    from elastic.platforms.kubernetes.api.cluster import connect
    from elastic.platforms.kubernetes.api.kubeconfig import NAME_ONE

    check_kinds(kinds)
    choice = cluster_choice(context)
    cluster = connect(choice.kubeconfig, choice.context, remedy=NAME_ONE)
    where = None if all_namespaces else choice.namespace or cluster.namespace
    return look(cluster, where, kinds)
