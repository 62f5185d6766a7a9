"""`elastic install`: what a namespace needs before jobs can run in it."""

import click
import yaml

from elastic.cli.exit_codes import ExitCode
from elastic.cli.options import cluster_choice, cluster_options, namespace_option

_EPILOG = """\b
Examples:
  elastic install -n team | less
  elastic install -n team --apply
  elastic install -n team --create_namespace --submitter jane --apply
"""


@click.command(
    "install",
    short_help="Print or apply what a namespace needs before jobs can run in it.",
    epilog=_EPILOG,
)
@click.option("--apply", is_flag=True, help="Bring the cluster to it, instead of printing it.")
@click.option("--create_namespace", is_flag=True, help="Include the namespace itself.")
@click.option("--service_account", default="elastic-master", show_default=True, metavar="NAME",
              help="Account of the masters; the jobs' setting of the same name.")  # fmt: skip
@click.option("--priority_classes", is_flag=True,
              help="Include the classes high and low, which a fraction as --worker_pod_priority "
              "means. They belong to the whole cluster.")  # fmt: skip
@click.option("--submitter", "submitters", multiple=True, metavar="USER",
              help="Let this user run jobs here; may be given several times.")  # fmt: skip
@namespace_option
@cluster_options
@click.pass_context
def command(
    context: click.Context,
    apply: bool,
    create_namespace: bool,
    service_account: str,
    priority_classes: bool,
    submitters: tuple[str, ...],
) -> int:
    """Print or apply what a namespace needs before jobs can run in it.

    That is an account for the masters of jobs and the few rights it needs, in
    this namespace alone: pods and ConfigMaps.
    """
    # The cluster's client is not needed for --help.
    from elastic.platforms.kubernetes.api.cluster import connect
    from elastic.platforms.kubernetes.job import installing
    from elastic.platforms.kubernetes.job.installing import apply as apply_manifests

    choice = cluster_choice(context)
    cluster = None
    if apply or choice.namespace is None:
        cluster = connect(choice.kubeconfig, choice.context)
    namespace = choice.namespace or (cluster.namespace if cluster else "default")
    manifests = [installing.namespace(namespace)] if create_namespace else []
    manifests += installing.master_access(namespace, service_account)
    if submitters:
        manifests += installing.submitter_access(namespace, submitters)
    if priority_classes:
        manifests += installing.priority_classes()
    if apply and cluster is not None:
        for line in apply_manifests(cluster, manifests):
            click.echo(line)
        click.echo(f"namespace {namespace} is ready for jobs; `elastic doctor` looks at the rest")
    else:
        click.echo(yaml.safe_dump_all(manifests, sort_keys=False), nl=False)
    return ExitCode.DONE
