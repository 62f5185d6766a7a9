"""The settings of a job that its user gave as flags."""

from collections.abc import Mapping
from typing import Any

import click

from elastic.cli.flags import flag_as_typed
from elastic.client.settings import Given
from elastic.spec.describe import Setting, settings


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
        flag = flag_as_typed(context, setting)
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
    return value
