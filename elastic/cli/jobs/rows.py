"""`elastic rows`: what has changed in tables of embeddings since a checkpoint, and its use."""

from collections.abc import Iterable
from pathlib import Path

import click

from elastic.checkpoints.table_files import TableDelta, apply_delta, write_delta
from elastic.cli.exit_codes import ExitCode
from elastic.errors import JobSpecError

_EPILOG = """\b
Examples:
  elastic rows delta kept --since kept/version-0000000100 --output changes
  elastic rows apply changes model.safetensors.rows
"""
_folder = click.Path(path_type=Path)


@click.group("rows", short_help="Tell what has changed in tables of embeddings.", epilog=_EPILOG)
def command() -> None:
    """Tell what has changed in tables of embeddings, and bring an export up to date."""


@command.command("delta", short_help="Write the rows that have changed since a checkpoint.")
@click.argument("checkpoint", type=_folder)
@click.option("--since", required=True, type=_folder, metavar="CHECKPOINT",
              help="An older checkpoint of the job.")  # fmt: skip
@click.option("--output", required=True, type=_folder, metavar="FOLDER",
              help="Where the files go; what was there is replaced.")  # fmt: skip
def delta(checkpoint: Path, since: Path, output: Path) -> int:
    """Write the rows that have changed from one checkpoint to a later one.

    FOLDER gets a file TABLE.parquet for each table, with the columns id and row;
    the row is null where it was removed. Optimizer slots are left out.
    """
    try:
        _show(write_delta(since, checkpoint, output))
    except OSError as error:
        raise _unwritable(output, error) from error
    return ExitCode.DONE


@command.command("apply", short_help="Bring exported tables up to date.")
@click.argument("delta", type=_folder)
@click.argument("rows", type=_folder)
def apply(delta: Path, rows: Path) -> int:
    """Apply what `elastic rows delta` has written to exported tables.

    ROWS is the folder MODEL.rows beside an exported model: of the version that
    the changes begin with, or of one in between.
    """
    try:
        _show(apply_delta(delta, rows))
    except OSError as error:
        raise _unwritable(rows, error) from error
    return ExitCode.DONE


def _show(tables: Iterable[TableDelta]) -> None:
    for table in tables:
        click.echo(f"{table.name}: {table.changed:,} rows changed, {table.removed:,} removed")


def _unwritable(folder: Path, error: OSError) -> JobSpecError:
    return JobSpecError(
        f"{folder} cannot be written: {error.strerror or error}: free space there, or name another"
    )
