"""The flags of `elastic train`, `evaluate` and `predict`: made from `JobSpec`, and read back."""

from collections.abc import Mapping
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import click

from elastic.client.settings import Given
from elastic.spec.describe import Setting, flag_settings, settings
from elastic.spec.kinds import JobKind
from elastic.spec.settings import Place
from elastic.spec.settings.text_forms import read_truth

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

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
    for setting in filter(lambda setting: setting.is_flag, settings()):
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
    setting: Setting, _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> "list[CompletionItem]":
    """What a setting's value may be: its choices, or a path."""
    # Of use to shells alone.
    from click.shell_completion import CompletionItem

    if setting.place is Place.PATH or setting.metavar == "PATH":
        return [CompletionItem(incomplete, type="file")]
    choices = setting.metavar.split("|") if setting.has_choices else []
    return [CompletionItem(choice) for choice in choices if choice.startswith(incomplete)]


def _default_note(setting: Setting, kind: JobKind) -> str:
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
        names = {setting.name for setting in settings()}
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
        used = flag_settings(self.kind)
        for group, members in groupby(used, key=lambda setting: setting.group):
            with formatter.section(group):
                formatter.write_dl([_help_record(setting, self.kind) for setting in members])


def _help_record(setting: Setting, kind: JobKind) -> tuple[str, str]:
    flags = [f"--{name}" for name in (setting.name, *setting.aliases)]
    names = ", ".join([*filter(None, [_SHORT.get(setting.name)]), *flags])
    value = f"[={setting.metavar}]" if setting.is_truth else f" {setting.metavar}"
    return names + value, f"{setting.help}  {_default_note(setting, kind)}".rstrip()


def _flag_as_typed(context: click.Context, setting: Setting) -> str:
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
    for setting in filter(lambda setting: setting.is_flag, settings()):
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


def _flag_value(setting: Setting, values: Mapping[str, Any]) -> Any:
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
