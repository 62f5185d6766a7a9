"""`elastic controller`: keeps true what objects such as TrainingJob and ElasticJob say."""

import signal
from typing import Any

import click

from elastic.cli.clusters.policies import autoscaling_of, autoscaling_options
from elastic.cli.exit_codes import ExitCode
from elastic.cli.options import cluster_choice, cluster_options, kinds_option
from elastic.controller.settings import DEFAULTS, Settings

_EPILOG = """\b
Examples:
  elastic controller -n team
  elastic controller --all_namespaces --kinds elasticjob,tfjob
  elastic controller -n team --autoscale fulfillment --tf_scheduler dragon
"""


@click.command(
    "controller",
    short_help="Keep true what objects such as TrainingJob and ElasticJob say.",
    epilog=_EPILOG,
)
@click.option("-n", "--namespace", metavar="NAME",
              help="Whose jobs, and where the lease is; that of the context, or of the pod, "
              "by default.")  # fmt: skip
@click.option("--all_namespaces", is_flag=True, help="Look after the jobs of all namespaces.")
@kinds_option
@click.option("--port", type=click.IntRange(0, 65535), default=DEFAULTS.port, show_default=True,
              metavar="N", help="Port of /healthz, /readyz and /metrics; 0 for none.")  # fmt: skip
@click.option("--num_workers", type=click.IntRange(min=1), default=DEFAULTS.num_workers,
              show_default=True, metavar="N", help="Jobs that are looked at at once.")  # fmt: skip
@click.option("--requests_per_second", type=click.FloatRange(min=1),
              default=DEFAULTS.requests_per_second, show_default=True, metavar="N",
              help="Requests to the API server, on average; twice as many at once.")  # fmt: skip
@click.option("--lease_name", default=DEFAULTS.lease_name, show_default=True, metavar="NAME",
              help="Controllers that share this lease take turns.")  # fmt: skip
@autoscaling_options
@click.option("--log_level", type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]),
              default="INFO", show_default=True,
              help="What is told on standard error.")  # fmt: skip
@cluster_options
@click.pass_context
def command(
    context: click.Context,
    /,
    namespace: str | None,
    all_namespaces: bool,
    kinds: tuple[str, ...],
    port: int,
    num_workers: int,
    requests_per_second: float,
    lease_name: str,
    log_level: str,
    **options: Any,
) -> int:
    """Keep true what objects such as TrainingJob and ElasticJob say.

    One of all processes that share a lease acts, the others stand by. This one
    runs until SIGTERM, after which another one acts at once, or Ctrl-C. Types of
    jobs that the cluster does not know are installed where your rights allow.
    In a pod it acts by its service account: see elastic install --controller.
    """
    # The cluster's client is not needed for --help.
    from elastic.controller.assembly import assembled
    from elastic.controller.run import run_until_asked
    from elastic.platforms.traces import start_logging

    start_logging(log_level)
    choice = cluster_choice(context)
    settings = Settings(
        namespace=namespace,
        all_namespaces=all_namespaces,
        kinds=kinds,
        kubeconfig=choice.kubeconfig,
        context=choice.context,
        port=port,
        num_workers=num_workers,
        lease_name=lease_name,
        requests_per_second=requests_per_second,
        autoscaling=autoscaling_of(options),
    )
    ended_by = run_until_asked(settings, assembled(settings.autoscaling))
    # Who sends SIGTERM wants nothing but the end.
    return ExitCode.DONE if ended_by == signal.SIGTERM else ExitCode.INTERRUPTED
