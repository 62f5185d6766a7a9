"""Options that name a moment, or how long ago it was."""

import click

from elastic.spec.since import Since, parse_since


def read_moment(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> Since | None:
    """Read the value of an option, as its callback."""
    try:
        return None if text is None else parse_since(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
