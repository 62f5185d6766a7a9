"""`elastic version`."""

import click

import elastic


@click.command("version", short_help="Print the version.")
def command() -> None:
    """Print the version."""
    click.echo(f"elastic {elastic.__version__}")
