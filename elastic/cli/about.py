"""`elastic completion` and `elastic version`: about the command itself."""

from typing import Final

import click
from click.shell_completion import get_completion_class

import elastic
from elastic.cli.exit_codes import ExitCode

VARIABLE: Final = "_ELASTIC_COMPLETE"
"""In the environment of `elastic` when a shell asks it for completions; click's convention."""

_EPILOG = """\b
For this shell, and for all that follow:
  eval "$(elastic completion bash)"            and as a line of ~/.bashrc
  eval "$(elastic completion zsh)"             and as a line of ~/.zshrc
  elastic completion fish | source             and into
      ~/.config/fish/completions/elastic.fish
"""


@click.command(
    "completion",
    short_help="Print the script by which a shell completes commands.",
    epilog=_EPILOG,
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print the script by which SHELL completes commands, flags and jobs.

    Jobs are those of --platform, or else of ELASTIC_PLATFORM; a cluster that does
    not answer at once completes none.
    """
    kind = get_completion_class(shell)
    assert kind is not None, f"click knows {shell}"
    click.echo(kind(context.find_root().command, {}, "elastic", VARIABLE).source())
    return ExitCode.DONE


@click.command("version", short_help="Print the version.")
def version() -> None:
    """Print the version."""
    click.echo(f"elastic {elastic.__version__}")
