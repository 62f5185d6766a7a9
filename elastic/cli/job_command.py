"""`elastic train`, `evaluate`, `predict`: settings in, a running job out, followed to its end.

Their flags are made from `JobSpec`, and read back.
"""

import sys
import time
from collections.abc import Mapping
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from elastic.cli import exit_codes
from elastic.cli.exit_codes import ExitCode
from elastic.cli.options import cluster_choice, cluster_options, open_platform
from elastic.cli.terminal import as_ctrl_c, close_stdout
from elastic.client import settings
from elastic.client.gathering import check, gather, nothing_to_resume
from elastic.client.platforms import NoMasterError, looks
from elastic.client.settings import Given
from elastic.errors import InfrastructureError, JobNotFoundError
from elastic.platforms.base import Platform
from elastic.spec import job
from elastic.spec.job import JobSpec, write_job_file
from elastic.spec.platforms import JobKind
from elastic.spec.settings import Place
from elastic.spec.settings.text_forms import read_truth
from elastic.spec.status import JobPhase, JobStatus
from elastic.spec.yaml_text import dump_value
from elastic.telemetry.progress import open_display

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


STOP_TIMEOUT_S: Final = 30.0
"""How long Ctrl-C lets replicas end by themselves."""
NEVER_STARTED: Final = "StartTimeout"
"""A platform's reason for a job that has failed since its master did not start in time."""
END_TIMEOUT_S: Final = 30.0
"""How long what is left of such a job may take to end."""

TRUE_TEXT: Final = "true"
"""What a truth flag without a value stands for."""
_SHORT: Final = {"namespace": "-n"}
"""Flags that have one letter in every tool of their field."""
_HELP_WIDTH: Final = 80
_NO_PATH: Final = {
    "resume": "it takes no path, and goes on from the newest checkpoint of the job that --job_name "
    "names; a FOLDER stands before it, and --init_from PATH begins with the parameters of another "
    "checkpoint"
}
"""What to do instead, for truth flags that look as if they took a path."""


def setting_options() -> list[click.Option]:
    """One option per setting, and a hidden `--no_NAME` per truth setting.

    All values stay text, None where the user gave none: `JobSpec` is the one that reads them. They
    are those of every kind of job, so that one without a meaning is refused by its name.
    """
    options = []
    for setting in filter(lambda setting: setting.is_flag, job.settings()):
        declared = [setting.name, *(f"--{name}" for name in (setting.name, *setting.aliases))]
        complete = partial(_complete, setting)
        if setting.name in _SHORT:
            declared.append(_SHORT[setting.name])
        if setting.is_truth:
            options.append(click.Option(declared, is_flag=False, flag_value=TRUE_TEXT, type=str))
            options.append(click.Option([f"--no_{setting.name}"], is_flag=True, hidden=True))
        elif setting.adds_up:
            options.append(click.Option(declared, multiple=True, type=str))
        else:
            options.append(click.Option(declared, type=str, shell_complete=complete))
    return options


def _complete(
    setting: job.Setting, _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> "list[CompletionItem]":
    """What a setting's value may be: its choices, or a path."""
    # Of use to shells alone.
    from click.shell_completion import CompletionItem

    if setting.place is Place.PATH or setting.metavar == "PATH":
        return [CompletionItem(incomplete, type="file")]
    choices = setting.metavar.split("|") if setting.has_choices else []
    return [CompletionItem(choice) for choice in choices if choice.startswith(incomplete)]


def _default_note(setting: job.Setting, kind: JobKind) -> str:
    """`[default: …]`, `[required]`, or nothing where the default is to leave it out."""
    if kind in setting.required_by:
        return "[required]"
    return f"[default: {setting.default}]" if setting.default else ""


class SettingsCommand(click.Command):
    """A command whose flags are the settings of a job of its name, told by group in its help."""

    @property
    def kind(self) -> JobKind:
        return JobKind(str(self.name))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Errors name a flag as the user wrote it, which the parsed options no longer tell.
        ctx.meta["elastic.argv"] = list(args)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = {setting.name for setting in job.settings()}
        own = [
            record
            for parameter in self.get_params(ctx)
            # Newer versions of click give a record of arguments too, which the text tells about.
            if isinstance(parameter, click.Option)
            and parameter.name not in names
            and (record := parameter.get_help_record(ctx))
        ]
        with formatter.section("Command"):
            formatter.write_dl(own)
        used = job.flag_settings(self.kind)
        for group, members in groupby(used, key=lambda setting: setting.group):
            with formatter.section(group):
                formatter.write_dl([_help_record(setting, self.kind) for setting in members])


def _help_record(setting: job.Setting, kind: JobKind) -> tuple[str, str]:
    flags = [f"--{name}" for name in (setting.name, *setting.aliases)]
    names = ", ".join([*filter(None, [_SHORT.get(setting.name)]), *flags])
    value = f"[={setting.metavar}]" if setting.is_truth else f" {setting.metavar}"
    return names + value, f"{setting.help}  {_default_note(setting, kind)}".rstrip()


def _flag_as_typed(context: click.Context, setting: job.Setting) -> str:
    """The flag of a setting as the user wrote it, such as `--num-workers` or `--workers`."""
    known = {f"--{name}" for name in (setting.name, *setting.aliases, f"no_{setting.name}")}
    argv: list[Any] = context.meta.get("elastic.argv", [])
    for token in argv:
        flag = str(token).split("=", 1)[0]
        if flag[:2] == _SHORT.get(setting.name):
            return flag[:2]
        if flag.startswith("--") and "--" + flag[2:].replace("-", "_") in known:
            return flag
    return f"--{setting.name}"


def from_flags(
    context: click.Context, values: Mapping[str, Any]
) -> tuple[dict[str, Given], list[str]]:
    """The settings that the user gave as flags, and what is wrong with them.

    Args:
        context: The command's context, which knows how flags were typed.
        values: Parsed options by name, None or empty where not given.
    """
    given: dict[str, Given] = {}
    problems = []
    for setting in filter(lambda setting: setting.is_flag, job.settings()):
        flag = _flag_as_typed(context, setting)
        try:
            value = _flag_value(setting, values)
        except ValueError as error:
            problems.append(f"{flag}: {error}")
            continue
        if isinstance(value, str) and value.startswith("--"):
            problems.append(f"{flag} needs a value, but {value} follows: write {flag}=VALUE")
        elif value is not None:
            given[setting.name] = Given(value, flag)
    return given, problems


def _flag_value(setting: job.Setting, values: Mapping[str, Any]) -> Any:
    """One setting's value, None where no flag gave it; some flags add up where repeated."""
    value = values.get(setting.name)
    if setting.adds_up:
        return ",".join(value) if value else None
    if setting.is_truth and values.get(f"no_{setting.name}"):
        if value is not None:
            raise ValueError(f"--{setting.name} and --no_{setting.name} exclude each other")
        return False
    if setting.name in _NO_PATH and value is not None:
        return _truth(value, _NO_PATH[setting.name])
    return value


def _truth(value: str, advice: str) -> object:
    """Read a truth value.

    Raises:
        ValueError: It is none; with the advice.
    """
    try:
        return read_truth(value)
    except ValueError as error:
        raise ValueError(f"{error}: {advice}") from error


_OPTIONS: Final = setting_options()

_EXAMPLES = """\b
Flags win over the file of --config, that over the FOLDER, that over the
defaults.
\b
Examples:
"""

_TRAIN = """\
Train a model as an elastic job and show its progress until it ends.

FOLDER holds the model: the settings that no flag gives are those of its
elastic.yaml, or found there (the one model, data/train.*), and what was found
is told. Without a FOLDER, flags or a job file say all.

Ctrl-C stops a job of this machine, and lets one in a cluster go on; so do
SIGTERM and a closed terminal. With --detach either goes on without you. A
flag that takes a BOOL means true when it stands alone, and --no_FLAG false.
"""
_TRAIN_EXAMPLES = """\
  elastic train flowers --num_epochs=5
  elastic train --platform local --model_zoo=model_zoo \\
      --model_def=mnist.CustomModel --training_data_dir=data/train \\
      --minibatch_size=64 --num_workers=2:4 --num_epochs=3
  elastic train --config job.yaml --num_epochs=5 --dry_run
"""

_EVALUATE = """\
Evaluate a trained model as an elastic job and show its metrics when it ends.

Each record counts once, whoever dies, and the metrics are those of all records
at once. The parameters are those of a checkpoint (--init_from) or of an
exported model (--model).

FOLDER gives what no flag does, as to `elastic train`; without --init_from and
--model, the parameters are those that its training has exported.

Ctrl-C stops a job of this machine, and lets one in a cluster go on; so do
SIGTERM and a closed terminal. With --detach either goes on without you.
"""
_EVALUATE_EXAMPLES = """\
  elastic evaluate flowers
  elastic evaluate --platform local --model_zoo=model_zoo \\
      --model_def=mnist.CustomModel --model=mnist.safetensors \\
      --evaluation_data_dir=data/test --minibatch_size=64 --num_workers=2
"""

_PREDICT = """\
Compute the predictions of a trained model as an elastic job.

Each record has its prediction once, whoever dies: one file for every range of
records, which is there whole or not at all, and a _manifest.json that is
written when all of them are. The parameters are those of a checkpoint
(--init_from) or of an exported model (--model). A PredictionOutputsProcessor
in the model_def takes the predictions instead of the files.

FOLDER gives what no flag does, as to `elastic train`; without --init_from and
--model, the parameters are those that its training has exported.

Ctrl-C stops a job of this machine, and lets one in a cluster go on; so do
SIGTERM and a closed terminal. With --detach either goes on without you.
"""
_PREDICT_EXAMPLES = """\
  elastic predict flowers
  elastic predict --platform local --model_zoo=model_zoo \\
      --model_def=mnist.CustomModel --init_from=checkpoints \\
      --prediction_data_dir=data/new --prediction_outputs=predictions \\
      --minibatch_size=64 --num_workers=2:4
"""


def job_command(kind: JobKind, help_text: str, examples: str) -> click.Command:
    """The command that starts jobs of one kind.

    Args:
        kind: Its name, and what its jobs do.
        help_text: What it does, for people; the first sentence stands in the list of commands.
        examples: Of its use.
    """

    @click.command(
        kind.value, cls=SettingsCommand, params=[*_OPTIONS], help=help_text,
        epilog=_EXAMPLES + examples, short_help=help_text.partition(".")[0] + ".",
    )  # fmt: skip
    @click.argument("folder", required=False, metavar="[FOLDER]", type=click.Path(path_type=Path))
    @click.option(
        "--config", type=click.Path(path_type=Path), metavar="FILE",
        help="Job file: YAML with the settings below as keys.",
    )  # fmt: skip
    @click.option("--dry_run", is_flag=True, help="Print the whole job as YAML and start nothing.")
    @click.option(
        "-o", "form", type=click.Choice(["yaml", "crd"]),
        help="What --dry_run prints: a job file, or with crd the ElasticTrainJob that a controller "
        "in the cluster runs, for kubectl apply.",
    )  # fmt: skip
    @click.option("--detach", is_flag=True, help="Return when the job has started.")
    @cluster_options
    @click.pass_context
    def command(
        context: click.Context,
        /,
        folder: Path | None,
        config: Path | None,
        dry_run: bool,
        form: str | None,
        detach: bool,
        **values: Any,
    ) -> int:
        if form is not None and not dry_run:
            raise click.UsageError(f"-o {form} says what --dry_run prints: add it", context)
        spec = _resolve(kind, context, folder, config, values)
        if dry_run:
            click.echo(_resource_text(spec) if form == "crd" else write_job_file(spec), nl=False)
            return ExitCode.DONE
        return _start(context, spec, detach)

    return command


def _resource_text(spec: JobSpec) -> str:
    """The job as a resource, as `kubectl apply` takes it."""
    # A job that is started needs no controller.
    from elastic.controller.resources.elastic_train_job import resource_of, without_state

    text = dump_value(resource_of(spec))
    _tell(without_state(spec))
    return text


def _start(context: click.Context, spec: JobSpec, detach: bool) -> int:
    """Check what can be checked here, and start the job."""
    platform = open_platform(context, spec.platform, spec.namespace)
    where = _where(context, spec)
    check(spec)
    _tell(nothing_to_resume(platform, spec))
    with as_ctrl_c():
        return _run(platform, spec, where, detach)


def _run(platform: Platform, spec: JobSpec, where: str, detach: bool) -> int:
    """Start the job, and stay with it unless the user wants to go."""
    began_s = time.time()
    is_submitted = False
    try:
        platform.submit(spec)
        is_submitted = True
        click.echo(f"job {spec.job_name} has been started")
        # Only once there is a job that trains any.
        _tell(settings.lost_parameters(spec))
        if spec.tensorboard_log_dir:
            click.echo(f"see its curves with: elastic tensorboard {where}")
        if detach:
            click.echo(f"see it with: elastic status {where}")
            return ExitCode.DONE
        submitted_s = _submitted_s(platform, spec.job_name)
        since_s = began_s if submitted_s is None else submitted_s
        return follow_to_end(platform, spec.job_name, sys.stdout, since_s, where)
    except KeyboardInterrupt:
        # A terminal may be closed as soon as it shows that a detached job has been started.
        is_free = detach and is_submitted
        is_watched = spec.platform.traits.is_here and not is_free
        # Asked last: a cluster may be why the user has had enough.
        if is_watched and (is_submitted or _is_since(platform, spec.job_name, began_s)):
            _stop(platform, spec.job_name)
            return ExitCode.INTERRUPTED
        _leave(spec, where, is_submitted)
        # Who lets a job go on has what was asked for.
        return ExitCode.DONE if is_submitted else ExitCode.INTERRUPTED
    except BrokenPipeError:
        if not is_submitted:
            raise
        # Who read its display has gone, as `| head` does.
        _leave(spec, where, is_submitted)
        close_stdout()
        return ExitCode.NOT_FINISHED


def _resolve(
    kind: JobKind,
    context: click.Context,
    folder: Path | None,
    config: Path | None,
    values: dict[str, Any],
) -> JobSpec:
    """The job that flags, file, folder, environment and defaults describe together."""
    by_flags, problems = from_flags(context, values)
    gathered = gather(kind, by_flags, cluster_choice(context), folder, config)
    for line in gathered.said:
        click.echo(line, err=True)
    spec, notes = settings.complete(kind, gathered.given, [*gathered.problems, *problems])
    for note in notes:
        _tell(note)
    return spec


def _tell(note: str) -> None:
    if note:
        click.echo(f"note: {note}", err=True)


def _where(context: click.Context, spec: JobSpec) -> str:
    """The arguments that mean this job in every other command."""
    choice = cluster_choice(context, spec.namespace)
    cluster = {
        "--namespace": choice.namespace, "--context": choice.context,
        "--kubeconfig": choice.kubeconfig,
    }  # fmt: skip
    given = [part for item in cluster.items() if item[1] for part in item]
    if not spec.platform.traits.names_clusters:
        given = []
    return " ".join([spec.job_name, "--platform", spec.platform, *map(str, given)])


def _leave(spec: JobSpec, where: str, is_submitted: bool) -> None:
    """Tell what Ctrl-C did not do: a job in a cluster, or a detached one, needs no watcher."""
    if not is_submitted:
        click.echo(f"\njob {spec.job_name} has not been submitted", err=True)
        return
    click.echo(
        f"\njob {spec.job_name} goes on without you: see it with `elastic status {where}`, "
        f"end it with `elastic kill {where}`",
        err=True,
    )


def _submitted_s(platform: Platform, job_name: str) -> float | None:
    """When the job was submitted, by the platform's clock: this machine's may be minutes off it."""
    try:
        return platform.submitted_s(job_name)
    except (InfrastructureError, JobNotFoundError):
        # Whoever follows the job tells it, should it last.
        return None


def _is_since(platform: Platform, job_name: str, since_s: float) -> bool:
    """Whether a job was submitted after a moment: an older one of the name is somebody else's.

    Asked on this machine alone, by whose clock both are told.
    """
    try:
        submitted_s = platform.submitted_s(job_name)
    except JobNotFoundError:
        return False
    return submitted_s is not None and submitted_s >= since_s


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


def follow_to_end(
    platform: Platform, job_name: str, stream: TextIO, since_s: float, where: str
) -> int:
    """Show the job's progress on `stream` until it ends; returns the exit code that tells how.

    Args:
        since_s: Events before this moment, of an earlier life of the job, are not told.
        where: The arguments that mean this job in other commands.
    """
    status: JobStatus | None = None
    try:
        with open_display(stream, since_s, platform.now_s) as display:
            # A display has to hear from time to time of a job that stands still, too.
            for status in looks(platform, job_name):
                display.show(status)
    except NoMasterError as error:
        click.echo(f"error: job {job_name} does not go on by itself: {error}", err=True)
        return ExitCode.NOT_FINISHED
    except (InfrastructureError, JobNotFoundError) as error:
        click.echo(
            f"error: job {job_name} can no longer be followed, it may go on: {error}", err=True
        )
        return ExitCode.NOT_FINISHED
    assert status is not None, "a job that is followed has at least one status"
    if status.reason == NEVER_STARTED:
        _end_unstarted(platform, job_name, where)
    elif status.phase is JobPhase.FAILED:
        click.echo(f"see what was written with: elastic logs {where}", err=True)
    return exit_codes.of_phase(status.phase)


def _end_unstarted(platform: Platform, job_name: str, where: str) -> None:
    """Have nothing of a failed job wait on for what it did not get in time."""
    try:
        platform.kill(job_name, END_TIMEOUT_S)
    except (InfrastructureError, JobNotFoundError) as error:
        click.echo(
            f"error: the master of job {job_name} still waits to start: {error}: "
            f"elastic kill {where}",
            err=True,
        )


train = job_command(JobKind.TRAIN, _TRAIN, _TRAIN_EXAMPLES)
evaluate = job_command(JobKind.EVALUATE, _EVALUATE, _EVALUATE_EXAMPLES)
predict = job_command(JobKind.PREDICT, _PREDICT, _PREDICT_EXAMPLES)
