"""`elastic controller` and `elastic install`: the controller, and what has to be there before jobs.

It keeps true what objects such as TrainingJob and ElasticJob say.
"""

import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from elastic.cli.exit_codes import ExitCode
from elastic.cli.options import cluster_choice, cluster_options, kinds_option, namespace_option
from elastic.cli.policies import OPTIONS as AUTOSCALING
from elastic.cli.policies import autoscaling_of, autoscaling_options
from elastic.controller.settings import DEFAULTS, IMAGE, Settings
from elastic.errors import PlatformError

if TYPE_CHECKING:
    from elastic.controller.installing import Installation
    from elastic.platforms.kubernetes.api.cluster import Cluster
    from elastic.platforms.kubernetes.objects.names import QueueSystem


_CONTROLLER_EPILOG = """\b
Examples:
  elastic controller -n team
  elastic controller --all_namespaces --kinds elasticjob,tfjob
  elastic controller -n team --autoscale fulfillment --tf_scheduler dragon
"""


@click.command(
    "controller",
    short_help="Keep true what objects such as TrainingJob and ElasticJob say.",
    epilog=_CONTROLLER_EPILOG,
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
    from elastic.platforms.process import start_logging

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


# `elastic install`: what a namespace needs before jobs can run in it, and the controller.


_INSTALL_EPILOG = """\b
Examples:
  elastic install -n team | less
  elastic install -n team --apply
  elastic install -n team --create_namespace --submitter jane --apply
  elastic install -n team --submitter jane --queues kueue --apply
  elastic install -n team --controller --dry_run
  elastic install -n elastic --controller --all_namespaces --create_namespace
  elastic install -n team --controller --autoscale fulfillment
"""
_QUEUES_HELP = (
    "Queues that jobs are to wait in, of kueue, volcano, kai and native (the PodGroups of "
    "Kubernetes): include the rights for them."
)


def _read_queues(
    _context: click.Context, _parameter: click.Parameter, text: str
) -> "tuple[QueueSystem, ...]":
    """Read `kueue,volcano`; a system that nobody knows is a mistake."""
    from elastic.platforms.kubernetes.objects.names import QueueSystem

    names = [part.strip().lower() for part in text.split(",") if part.strip()]
    for name in names:
        if name not in set(QueueSystem):
            known = ", ".join(QueueSystem)
            raise click.BadParameter(f"there is no system {name!r}: there are {known}")
    return tuple(QueueSystem(name) for name in names)


_OF_CONTROLLERS = ("kinds", "all_namespaces", "image", *AUTOSCALING)
_OF_JOBS = ("service_account", "priority_classes", "submitters")


@click.command(
    "install",
    short_help="Print or apply what a namespace needs before jobs can run in it.",
    epilog=_INSTALL_EPILOG,
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
@click.option("--queues", metavar="SYSTEM,…", default="", callback=_read_queues, help=_QUEUES_HELP)
@click.option("--controller", is_flag=True,
              help="Instead of all that, install the controller of TrainingJob, ElasticJob, "
              "TFJob and ElasticTrainJob objects: their types, its account and rights, and two "
              "replicas of it. Applied at once; --dry_run prints it.")  # fmt: skip
@kinds_option
@click.option("--all_namespaces", is_flag=True,
              help="Have the controller look after the jobs of all namespaces.")  # fmt: skip
@autoscaling_options
@click.option("--image", default=IMAGE, show_default=True, metavar="IMAGE",
              help="Of the controller; images/build_all.sh --only controller makes "
              "it.")  # fmt: skip
@click.option("--dry_run", is_flag=True, help="Print it as YAML, and change nothing.")
@namespace_option
@cluster_options
@click.pass_context
def install(context: click.Context, /, apply: bool, dry_run: bool, **options: Any) -> int:
    """Print or apply what a namespace needs before jobs can run in it.

    That is an account for the masters of jobs and the few rights it needs, in
    this namespace alone: pods and ConfigMaps. It is printed; --apply applies it.

    With --controller, it is what the controller of other kinds of jobs needs. That
    is applied at once; --dry_run prints it.
    """
    # The cluster's client is not needed for --help.
    from elastic.platforms.kubernetes.api.cluster import connect
    from elastic.platforms.kubernetes.api.transport import NAME_ONE

    is_controller = bool(options["controller"])
    _refuse_what_does_not_go_together(context, is_controller)
    if apply and dry_run:
        raise click.UsageError("--apply and --dry_run exclude each other: give one", context)
    choice, is_applied = cluster_choice(context), not dry_run and (apply or is_controller)
    cluster = None
    if is_applied or choice.namespace is None:
        cluster = connect(choice.kubeconfig, choice.context, remedy=NAME_ONE)
    namespace = choice.namespace or (cluster.namespace if cluster else "default")
    applied = cluster if is_applied else None
    if is_controller:
        return _install_controller(applied, namespace, options)
    return _install_access(applied, namespace, options)


def _refuse_what_does_not_go_together(context: click.Context, is_controller: bool) -> None:
    for name in _OF_JOBS if is_controller else _OF_CONTROLLERS:
        source = context.get_parameter_source(name)
        if source is click.core.ParameterSource.COMMANDLINE:
            flag = next(each.opts[0] for each in context.command.params if each.name == name)
            word = "does not go with" if is_controller else "means nothing without"
            raise click.UsageError(f"{flag} {word} --controller: leave one out", context)


def _install_access(
    cluster: "Cluster | None", namespace: str, options: Mapping[str, Any]
) -> ExitCode:
    from elastic.platforms.kubernetes.job import installing

    manifests = [installing.namespace(namespace)] if options["create_namespace"] else []
    queues = options["queues"]
    manifests += installing.master_access(namespace, options["service_account"], queues)
    if options["submitters"]:
        manifests += installing.submitter_access(namespace, options["submitters"], queues)
    if options["priority_classes"]:
        manifests += installing.priority_classes()
    if cluster is None:
        return _print(manifests, "give --apply to bring the cluster to it")
    _tell_where(cluster, namespace)
    for line in installing.apply(cluster, manifests):
        click.echo(line)
    click.echo(f"namespace {namespace} is ready for jobs; `elastic doctor` looks at the rest")
    return ExitCode.DONE


def _install_controller(
    cluster: "Cluster | None", namespace: str, options: Mapping[str, Any]
) -> ExitCode:
    from elastic.controller.assembly import assembled
    from elastic.controller.installing import Installation, everything_but_groups, manifests
    from elastic.controller.machinery.registration import OWNER
    from elastic.platforms.kubernetes.job import installing

    parts = assembled()
    names = parts.chosen(options["kinds"])
    autoscaling = autoscaling_of(options)
    assembled(autoscaling).make_scaler(names)
    installation = Installation(
        namespace,
        parts.kinds(names, everything_but_groups(options["queues"])),
        parts.definitions(),
        are_all=names == parts.names(),
        all_namespaces=options["all_namespaces"],
        image=options["image"],
        queues=options["queues"],
        autoscaling=autoscaling,
    )
    wanted = [installing.namespace(namespace)] if options["create_namespace"] else []
    wanted += manifests(installation)
    if cluster is None:
        return _print(wanted, "leave --dry_run out to bring the cluster to it")
    if foreign := list(_foreign(cluster, installation)):
        others = [name for name in names if name not in foreign]
        remedy = f"--kinds {','.join(others)}" if others else "no other kind was asked for"
        raise PlatformError(
            f"another controller's objects are of the same type: {', '.join(foreign)} (its "
            f"CustomResourceDefinition is not of elastic): leave that out: {remedy}"
        )
    _tell_where(cluster, namespace)
    for line in installing.apply_as_owner(cluster, wanted, OWNER):
        click.echo(line)
    click.echo(f"the controller of {', '.join(names)} is installed in namespace {namespace}")
    return ExitCode.DONE


def _foreign(cluster: "Cluster", installation: "Installation") -> Iterator[str]:
    """Kinds whose type the cluster has from somebody else, who may look after its objects."""
    from elastic.controller.installing import is_ours
    from elastic.controller.machinery.registration import full_name
    from elastic.platforms.kubernetes.api.resources import CUSTOM_RESOURCE_DEFINITIONS
    from elastic.platforms.kubernetes.job.installing import find

    for name, kind in installation.kinds.items():
        path = CUSTOM_RESOURCE_DEFINITIONS.path(None, full_name(kind.resource))
        there = find(cluster, path)
        if there is not None and not is_ours(there):
            yield name


def _tell_where(cluster: "Cluster", namespace: str) -> None:
    """Say what is about to change, before anything does."""
    click.echo(f"note: applies this to namespace {namespace} of {cluster.server}", err=True)


def _print(manifests: Sequence[dict[str, Any]], remedy: str) -> ExitCode:
    from elastic.spec.yaml_text import dump_value

    click.echo("---\n".join(dump_value(each) for each in manifests), nl=False)
    click.echo(f"note: nothing has been changed: {remedy}", err=True)
    return ExitCode.DONE
