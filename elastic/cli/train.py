"""`elastic train`: settings in, a running job out, followed to its end."""

import sys
import time
from pathlib import Path
from typing import Any

import click

from elastic.cli import settings
from elastic.cli.exit_codes import ExitCode
from elastic.cli.flags import SettingsCommand, setting_options
from elastic.cli.follow import follow_to_end
from elastic.cli.interrupts import as_ctrl_c
from elastic.cli.platform import cluster_choice, cluster_options, open_platform
from elastic.errors import JobNotFoundError
from elastic.platforms.base import Platform
from elastic.spec.job import JobSpec, PlatformName
from elastic.spec.job_file import write_job_file

STOP_TIMEOUT_S = 30.0
"""How long Ctrl-C lets replicas end by themselves."""

_EPILOG = """\b
Flags win over the file of --config, which wins over the defaults.
\b
Examples:
  elastic train --platform local --model_zoo=model_zoo \\
      --model_def=mnist.CustomModel --training_data_dir=data/train \\
      --minibatch_size=64 --num_workers=2:4 --num_epochs=3
  elastic train --config job.yaml --num_epochs=5 --dry_run
"""


@click.command(
    "train", cls=SettingsCommand, params=setting_options(), epilog=_EPILOG,
    short_help="Train a model as an elastic job.",
)  # fmt: skip
@click.option(
    "--config", type=click.Path(path_type=Path), metavar="FILE",
    help="Job file: YAML with the settings below as keys.",
)  # fmt: skip
@click.option("--dry_run", is_flag=True, help="Print the whole job as YAML and start nothing.")
@click.option("--detach", is_flag=True, help="Return when the job has started.")
@cluster_options
@click.pass_context
def command(
    context: click.Context, /, config: Path | None, dry_run: bool, detach: bool, **values: Any
) -> int:
    """Train a model as an elastic job and show its progress until it ends.

    Ctrl-C stops a job of this machine, and lets one in a cluster go on; so do
    SIGTERM and a closed terminal. With --detach either goes on without you. A
    flag that takes a BOOL means true when it stands alone, and --no_FLAG false.
    """
    spec = _resolve(context, config, values)
    if dry_run:
        click.echo(write_job_file(spec), nl=False)
        return ExitCode.DONE
    platform = open_platform(context, spec.platform, spec.namespace)
    where = _where(context, spec)
    _check_model(spec)
    if spec.platform is PlatformName.LOCAL:
        _check_data(spec)
    _note_nothing_to_resume(platform, spec)
    with as_ctrl_c():
        return _run(platform, spec, where, detach)


def _run(platform: Platform, spec: JobSpec, where: str, detach: bool) -> int:
    """Start the job, and stay with it unless the user wants to go."""
    since_s = time.time()
    is_submitted = False
    try:
        platform.submit(spec)
        is_submitted = True
        click.echo(f"job {spec.job_name} has been started")
        _note_lost_parameters(spec)
        if detach:
            click.echo(f"see it with: elastic status {where}")
            return ExitCode.DONE
        return follow_to_end(platform, spec.job_name, sys.stdout, since_s, where)
    except KeyboardInterrupt:
        if spec.platform is PlatformName.LOCAL:
            _stop(platform, spec.job_name)
        else:
            _leave(spec, where, is_submitted)
        return ExitCode.INTERRUPTED


def _resolve(context: click.Context, config: Path | None, values: dict[str, Any]) -> JobSpec:
    """The job that flags, file, environment and defaults describe together."""
    from_file, problems = settings.from_file(config) if config else ({}, [])
    from_flags, more = settings.from_flags(context, values)
    given = settings.from_environment() | from_file | from_flags
    spec = settings.with_name(settings.resolve(given, [*problems, *more]))
    for note in settings.notes(spec, given):
        click.echo(f"note: {note}", err=True)
    if spec.platform is PlatformName.LOCAL:
        return settings.with_absolute_paths(spec, Path.cwd())
    return spec


def _check_model(spec: JobSpec) -> None:
    """Find what is wrong with the user's module now, instead of in a replica's log."""
    # Not needed for --help and --dry_run.
    from elastic.spec.model_check import check_source, is_in_image

    if is_in_image(spec.image, spec.model_zoo):
        return
    check_source(spec.model_zoo, spec.model_def, spec.symbol_names())


def _note_nothing_to_resume(platform: Platform, spec: JobSpec) -> None:
    """Say what --resume cannot do: who repeats a command may have mistyped a name or a folder."""
    if not spec.resume or spec.job_name in platform.jobs():
        return
    folder = spec.checkpoint_dir
    if folder and spec.platform is not PlatformName.LOCAL:
        # What lies on a cluster's volume is its master's to see.
        return
    if folder:
        from elastic.master.cuts import list_cuts

        if list_cuts(Path(folder)):
            return
    empty = f", and --checkpoint_dir={folder} holds no checkpoint" if folder else ""
    click.echo(
        f"note: nothing to resume: there is no job {spec.job_name!r}{empty}: "
        "it starts from the first record",
        err=True,
    )


def _note_lost_parameters(spec: JobSpec) -> None:
    """Say that nobody will have the trained model; only once there is a job that trains one."""
    if not settings.keeps_parameters(spec):
        click.echo(
            "note: the trained parameters stay in the master's pod and go with it: keep them with "
            "--volume claim_name=CLAIM,mount_path=/results --output /results/model",
            err=True,
        )


def _check_data(spec: JobSpec) -> None:
    """Find data that is not there before the job is, whose name would be taken then.

    Raises:
        DataError: Nothing is there.
    """
    from elastic.data.sources import list_files
    from elastic.spec.model_check import may_have
    from elastic.spec.origins import absolute_origin

    if may_have(spec.model_zoo, spec.model_def, spec.custom_data_reader):
        # Only the user's reader knows what its origin means.
        return
    for origin in filter(None, (spec.training_data_dir, spec.evaluation_data_dir)):
        list_files(absolute_origin(origin, Path.cwd()))


def _where(context: click.Context, spec: JobSpec) -> str:
    """The arguments that mean this job in every other command."""
    choice = cluster_choice(context, spec.namespace)
    cluster = {
        "--namespace": choice.namespace, "--context": choice.context,
        "--kubeconfig": choice.kubeconfig,
    }  # fmt: skip
    is_local = spec.platform is PlatformName.LOCAL
    given = [] if is_local else [part for item in cluster.items() if item[1] for part in item]
    return " ".join([spec.job_name, "--platform", spec.platform, *map(str, given)])


def _leave(spec: JobSpec, where: str, is_submitted: bool) -> None:
    """Tell what Ctrl-C did not do: a job in a cluster needs nobody who watches it."""
    if not is_submitted:
        click.echo(f"\njob {spec.job_name} has not been submitted", err=True)
        return
    click.echo(
        f"\njob {spec.job_name} goes on without you: see it with `elastic status {where}`, "
        f"end it with `elastic kill {where}`",
        err=True,
    )


def _stop(platform: Platform, job_name: str) -> None:
    """End the job after Ctrl-C; a second Ctrl-C waits no longer for its replicas."""
    click.echo(f"\nstopping job {job_name}; Ctrl-C again to force it", err=True)
    try:
        try:
            platform.kill(job_name, STOP_TIMEOUT_S)
        except KeyboardInterrupt:
            click.echo(f"\nforcing job {job_name} to end", err=True)
            platform.kill(job_name, 0.0)
    except JobNotFoundError:
        click.echo(f"job {job_name} had not been started", err=True)
        return
    click.echo(f"job {job_name} has been stopped", err=True)
