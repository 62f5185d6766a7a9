"""What a shell is told to complete: the names of jobs, and the values of settings."""

import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from elastic.cli.platform import Opener, cluster_choice, open_quietly
from elastic.client.opening import ClusterChoice, default_platform
from elastic.errors import ElasticError
from elastic.spec.describe import Setting
from elastic.spec.job import Place

PATIENCE_S: Final = 1.5
"""Whoever has pressed the key waits; nothing that takes longer is worth it."""

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


def job_argument(required: bool = True) -> Callable[[_Decorated], _Decorated]:
    """Give a command the argument JOB, completed by the names of the platform's jobs."""
    return click.argument("job", required=required, shell_complete=_jobs)


def setting_items(setting: Setting, incomplete: str) -> list[CompletionItem]:
    """What a setting's value may be: its choices, or a path."""
    if setting.place is Place.PATH or setting.metavar == "PATH":
        return [CompletionItem(incomplete, type="file")]
    choices = setting.metavar.split("|") if setting.has_choices else []
    return [CompletionItem(choice) for choice in choices if choice.startswith(incomplete)]


def _jobs(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The jobs of the platform that the words so far name; none where it does not tell in time."""
    opener: Opener = context.find_root().obj or open_quietly
    choice = cluster_choice(context)
    platform = context.params.get("platform") or default_platform(choice)
    found: list[str] = []

    def look() -> None:
        found.extend(_names(opener, str(platform), choice))

    # What never answers is left behind; the process ends with the answer to the shell.
    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    looking.join(PATIENCE_S)
    # The newest is the one that is most likely meant.
    return [CompletionItem(name) for name in reversed(found) if name.startswith(incomplete)]


def _names(opener: Opener, platform: str, choice: ClusterChoice) -> list[str]:
    try:
        return list(opener(platform, choice).jobs())
    except ElasticError:
        # A prompt is no place for messages.
        return []
