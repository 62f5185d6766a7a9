"""The `elastic` command: finds the subcommand, and turns every outcome into an exit code.

Nothing but click is imported here and for `elastic --help`; each subcommand brings its own
imports, and frameworks and cluster clients come only with the call that needs them.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

import elastic
from elastic.cli import exit_codes
from elastic.cli.exit_codes import ExitCode
from elastic.cli.terminal import close_stdout, ensure_output, is_unwritable
from elastic.errors import ElasticError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from elastic.cli.options import Opener


SUMMARIES: Final = {
    "train": "Train a model as an elastic job.",
    "evaluate": "Evaluate a trained model as an elastic job.",
    "predict": "Compute the predictions of a trained model as an elastic job.",
    "status": "Show all jobs, or one in depth.",
    "logs": "Print the logs of a job's replicas.",
    "tensorboard": "Show a job's curves in TensorBoard.",
    "scale": "Give a running job another number of workers.",
    "kill": "Cancel a job and end its processes (also: cancel, stop).",
    "prune": "Remove what jobs have left that ended long ago.",
    "rows": "Tell what has changed in tables of embeddings, and apply it.",
    "plan": "Show what a policy would do to a cluster.",
    "simulate": "Run a workload on a virtual clock, under several policies.",
    "zoo": "Begin a model of your own, and make images of models.",
    "data": "Look at records, and convert them.",
    "install": "Print or apply what a namespace needs before jobs can run in it.",
    "controller": "Keep true what objects such as TrainingJob and ElasticJob say.",
    "doctor": "Check everything that jobs need, and say what to fix.",
    "completion": "Print the script by which a shell completes commands.",
    "version": "Print the version.",
}
TOPICS: Final = {
    "Jobs": (
        "train",
        "evaluate",
        "predict",
        "status",
        "logs",
        "tensorboard",
        "scale",
        "kill",
        "prune",
        "rows",
    ),
    "Many jobs": ("plan", "simulate"),
    "What they need": ("zoo", "data", "install", "controller", "doctor"),
    "This command": ("completion", "version"),
}
_MODULES: Final = {
    **dict.fromkeys(("train", "evaluate", "predict"), "job_command"),
    **dict.fromkeys(("scale", "kill", "prune"), "control"),
    **dict.fromkeys(("status", "logs", "tensorboard"), "showing"),
    **dict.fromkeys(("plan", "simulate"), "policies"),
    **dict.fromkeys(("install", "controller"), "controller"),
    **dict.fromkeys(("data", "rows"), "data"),
    **{name: name for name in ("zoo", "doctor")},
    **dict.fromkeys(("completion", "version"), "main"),
}
"""Command → its module, which has it by its name, or as `command` where that is its own."""
ALIASES: Final = {"cancel": "kill", "stop": "kill"}

EPILOG: Final = """\b
Examples:
  elastic zoo new flowers
  elastic train flowers
  elastic status flowers
"""


class LazyGroup(click.Group):
    """Loads the module of a subcommand when it is called, not for `elastic --help`."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(SUMMARIES)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in SUMMARIES:
            return None
        path = _MODULES[name]
        attribute = "command" if path == name else name
        command: click.Command = getattr(importlib.import_module(f"elastic.cli.{path}"), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            near = _nearest(args[0], [*SUMMARIES, *ALIASES])
            raise click.UsageError(f"unknown command {args[0]}" + (near or ""), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, SUMMARIES))
        for topic, names in TOPICS.items():
            with formatter.section(topic):
                formatter.write_dl([(name.ljust(width), SUMMARIES[name]) for name in names])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        # Of use to shells alone; click's own would load every subcommand for its help.
        from click.shell_completion import CompletionItem

        names = [name for name in SUMMARIES if name.startswith(incomplete)]
        items = [CompletionItem(name, help=SUMMARIES[name]) for name in names]
        return items + click.Command.shell_complete(self, ctx, incomplete)


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    epilog=EPILOG,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda token: token.replace("-", "_"),
    },
)
@click.version_option(elastic.__version__, prog_name="elastic", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Deep-learning jobs that survive the loss of any process and resize while they run.

    `-` and `_` are alike in the names of flags. Each command explains itself with --help.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(
    argv: Sequence[str] | None = None,
    open_platform: "Opener | None" = None,
) -> int:
    """Run one command and return its exit code.

    Args:
        argv: Arguments without the program's name; those of this process by default.
        open_platform: Makes the platform of a name; the real ones by default.
    """
    ensure_output()
    try:
        result = cli.main(
            None if argv is None else list(argv),
            prog_name="elastic",
            standalone_mode=False,
            obj=open_platform,
        )
        sys.stdout.flush()
        return int(result or ExitCode.DONE)
    except ElasticError as error:
        click.echo(f"error: {error}", err=True)
        return exit_codes.of_error(error)
    except click.ClickException as error:
        click.echo(_usage_text(error), err=True)
        return ExitCode.USAGE if isinstance(error, click.UsageError) else ExitCode.ERROR
    except (click.Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        close_stdout()
        return ExitCode.ERROR
    # The one broad catch of the program: a bug is told in one line, its traceback kept in a file.
    except Exception as error:  # noqa: BLE001 - see above
        if is_unwritable(error):
            close_stdout()
            click.echo(f"error: the output cannot be written ({error})", err=True)
        else:
            click.echo(_bug_text(error), err=True)
        return ExitCode.ERROR


def _usage_text(error: click.ClickException) -> str:
    """A usage error in one line, and where the right usage is explained."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    message = error.format_message()
    if isinstance(error, click.NoSuchOption):
        message = f"unknown flag {error.option_name}{_meant_flag(error.option_name, context)}"
    return f"error: {message}" + (f"\nhelp: {context.command_path} --help" if context else "")


def _meant_flag(flag: str, context: click.Context | None) -> str:
    """`: …` with what may have been meant by an unknown flag, or nothing."""
    parameters = context.command.params if context else []
    if any(parameter.name == "minibatch_size" for parameter in parameters):
        # Only a mistake pays for the import.
        from elastic.spec.job import INSTEAD

        instead = INSTEAD.get(flag.removeprefix("--"))
        if instead is not None:
            return f": {instead}"
    opts = [name for parameter in parameters for name in parameter.opts]
    return _nearest(flag, [name for name in opts if name.startswith("--")]) or ""


def _nearest(name: str, known: Sequence[str]) -> str | None:
    """`: did you mean …?` for a mistyped name, or None where nothing is near."""
    # Only a mistake pays for the import.
    from elastic.spec.values import nearest

    near = nearest(name, known)
    return near and f": did you mean {near}?"


def _bug_text(error: Exception) -> str:
    """One line for people; the traceback goes to a file."""
    import tempfile
    import traceback

    home = os.environ.get("ELASTIC_HOME")
    folder = Path(home) if home and Path(home).is_dir() else Path(tempfile.gettempdir())
    cause: dict[str, Any] = {"prefix": "elastic-error-", "suffix": ".log", "dir": folder}
    with tempfile.NamedTemporaryFile("w", delete=False, encoding="utf-8", **cause) as file:
        file.write("".join(traceback.format_exception(error)))
    return (
        f"error: {type(error).__name__}: {error}\n"
        f"This is a bug of elastic; please report it with the traceback in {file.name}"
    )


# `elastic completion` and `elastic version`: about the command itself.


VARIABLE: Final = "_ELASTIC_COMPLETE"
"""In the environment of `elastic` when a shell asks it for completions; click's convention."""

_COMPLETION_EPILOG = """\b
For this shell, and for all that follow:
  eval "$(elastic completion bash)"            and as a line of ~/.bashrc
  eval "$(elastic completion zsh)"             and as a line of ~/.zshrc
  elastic completion fish | source             and into
      ~/.config/fish/completions/elastic.fish
"""


@click.command(
    "completion",
    short_help="Print the script by which a shell completes commands.",
    epilog=_COMPLETION_EPILOG,
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print the script by which SHELL completes commands, flags and jobs.

    Jobs are those of --platform, or else of ELASTIC_PLATFORM; a cluster that does
    not answer at once completes none.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, f"click knows {shell}"
    click.echo(kind(context.find_root().command, {}, "elastic", VARIABLE).source())
    return ExitCode.DONE


@click.command("version", short_help="Print the version.")
def version() -> None:
    """Print the version."""
    click.echo(f"elastic {elastic.__version__}")
