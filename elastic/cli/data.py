"""`elastic data` and `elastic rows`: records looked at and converted, tables brought up to date."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from elastic.cli.exit_codes import ExitCode
from elastic.cli.terminal import as_ctrl_c
from elastic.errors import JobSpecError
from elastic.spec.settings.text_forms import read_params

if TYPE_CHECKING:
    from elastic.checkpoints.table_files import TableDelta
    from elastic.data.convert import ConversionFolder, Plan, Work
    from elastic.data.inspection import Inspection


_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

_MAX_TEXT: Final = 200
"""Characters of a value that are shown."""
_MAX_NAMES: Final = 10
"""Files and classes that are listed."""
_FORMATS: Final = ("npz", "parquet", "csv", "lines", "tfrecord")


def _params_option(name: str, text: str) -> Callable[[_Decorated], _Decorated]:
    return click.option(f"--{name}", default="", metavar="a=1,b=2", help=text)


@click.group(
    "data",
    short_help="Look at records, and convert them.",
    epilog="\b\nExamples:\n  elastic data show data/train.csv\n"
    "  elastic data show photos --data_reader_params size=224x224\n"
    "  elastic data convert 'raw/*.csv' data/train --format parquet \\\n"
    "      --type '*=float32'\n"
    "  elastic data convert raw/a.xml raw/b.xml data/train \\\n"
    "      --model_zoo models --model_def news.net.CustomModel --num_workers 4",
)
def command() -> None:
    """Look at records, and convert them.

    `show` tells what a dataset_fn gets; `convert` writes the files that a job
    reads, from files of another format or by a prepare_data of your own.
    """


@command.command("show", short_help="Print the fields and the first records of a source.")
@click.argument("source")
@_params_option("data_reader_params", "Arguments of the reader, as elastic train takes them.")
@click.option("--records", "num_shown", default=3, show_default=True, metavar="N",
              type=click.IntRange(0, 100), help="Records to print.")  # fmt: skip
def show(source: str, data_reader_params: str, num_shown: int) -> int:
    """Print the fields and the first records of SOURCE: a file, a folder or a glob.

    A folder of images is a source as well. Shapes and types are those of the
    first 100 records; `*` stands for a length that differs among them.
    """
    from elastic.data import open_reader
    from elastic.data.formats.registry import parse_options
    from elastic.data.inspection import inspect

    params = _params("--data_reader_params", data_reader_params)
    reader = open_reader(source, 1000, params, None)
    found = inspect(reader, parse_options(params).classes)
    for line in _description(found):
        click.echo(line)
    for index, record in enumerate(found.records[:num_shown]):
        click.echo(f"\nrecord {index}")
        for line in _record_lines(record):
            click.echo(line)
    return ExitCode.DONE


@command.command("convert", short_help="Write records as files of another format.")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.argument("destination", metavar="DESTINATION")
@click.option("--format", "format_name", default="npz", show_default=True, metavar="FORMAT",
              type=click.Choice(_FORMATS),
              help=f"Of the files: {', '.join(_FORMATS)}.")  # fmt: skip
@click.option("--records_per_file", default=10_000, show_default=True, metavar="N",
              type=click.IntRange(1),
              help="Records of a file; they are in memory at once.")  # fmt: skip
@click.option("--num_workers", "--workers", default=1, show_default=True, metavar="N",
              type=click.IntRange(1), help="Processes that convert at once.")  # fmt: skip
@click.option("--type", "types", multiple=True, metavar="FIELD=DTYPE",
              help="Type of a field, as in label=int64; '*' means all others.")  # fmt: skip
@click.option("--shuffle", is_flag=True, help="Write the records in another order.")
@click.option("--seed", type=int, metavar="N", help="Of that order.  [default: 0]")
@_params_option("data_reader_params", "Arguments of the reader, as elastic train takes them.")
@click.option("--model_zoo", default=".", show_default=True, metavar="DIR",
              help="Folder of the module of --model_def.")  # fmt: skip
@click.option("--model_def", default="", metavar="MODULE.SYMBOL",
              help="Module whose prepare_data makes the records of each source.")  # fmt: skip
@click.option("--prepare_data", default="prepare_data", show_default=True, metavar="NAME",
              help="What that function is called.")  # fmt: skip
@_params_option("prepare_params", "Further arguments of prepare_data.")
def convert(
    sources: tuple[str, ...],
    destination: str,
    format_name: str,
    num_workers: int,
    shuffle: bool,
    seed: int | None,
    **values: Any,
) -> int:
    """Write records as files of another format into the folder DESTINATION.

    Every SOURCE is a file, a folder or a glob that elastic train could read.
    With --model_def it is whatever prepare_data(source) takes, and what that
    yields are the records.

    DESTINATION must be new. A file is there whole or not at all, and until
    all are, no job takes the folder for data; when the command was
    interrupted, repeat it to go on.

    With --shuffle the records are written as an epoch of a job reads them, in
    an order of the seed. Text, arrays and Parquet files are shuffled by chunks,
    and then within a window of many, which is all that is kept in memory.
    """
    from elastic.data.convert import Plan

    if seed is not None and not shuffle:
        raise click.UsageError("--seed is of --shuffle: say that too, or leave it out")

    values["types"] = _types(values["types"])
    for name in ("data_reader_params", "prepare_params"):
        values[name] = _params(f"--{name}", values[name])
    if values["model_def"] and values["data_reader_params"]:
        raise click.UsageError(
            "--data_reader_params has no meaning with --model_def, whose prepare_data reads by "
            "itself: say --prepare_params"
        )
    plan = Plan(
        sources=sources,
        destination=destination,
        format=format_name,
        reader_params=values.pop("data_reader_params"),
        shuffle_seed=(seed or 0) if shuffle else None,
        **values,
    )
    with as_ctrl_c():
        _convert(plan, num_workers)
    return ExitCode.DONE


def _convert(plan: "Plan", num_workers: int) -> None:
    from elastic.data.base import check_extra
    from elastic.data.convert import ConversionFolder, cut_work
    from elastic.data.writers import WRITERS

    if extra := WRITERS[plan.format].extra:
        check_extra(extra, f"{plan.format} files")
    work = cut_work(plan)
    with closing(ConversionFolder(plan, work.units)) as folder:
        _fill(folder, plan, work, num_workers)
    num_records = sum(file.num_records for file in folder.files)
    click.echo(
        f"wrote {_count(num_records, 'record')} in {_count(len(folder.files), 'file')} to "
        f"{plan.destination}"
    )
    header = " --data_reader_params header=true" if plan.format == "csv" else ""
    click.echo(f"read them with --training_data_dir {plan.destination}{header}")


def _fill(folder: "ConversionFolder", plan: "Plan", work: "Work", num_workers: int) -> None:
    from elastic.data.convert import write_units
    from elastic.telemetry.progress import ConversionProgress, open_counting_display

    done = folder.open()
    if done:
        click.echo(f"going on: {_count(len(folder.files), 'file')} already there", err=True)
    counts = {unit.index: unit.num_records or 1 for unit in work.units}
    unit_name = "sources" if plan.model_def else "records"
    written: dict[int, list[Any]] = {}
    with open_counting_display(sys.stderr, "data") as display:

        def tell() -> None:
            files = [*folder.files, *(file for each in written.values() for file in each)]
            progress = sum(counts[index] for index in done)
            records = sum(file.num_records for file in files)
            total = sum(counts.values())
            display.show(ConversionProgress(progress, total, unit_name, records, len(files)))

        tell()
        todo = [unit for unit in work.units if unit.index not in done]
        for unit, file in write_units(plan, todo, num_workers, work.shuffled):
            if file is None:
                folder.finish_unit(unit.index, written.pop(unit.index, []))
                done.add(unit.index)
            else:
                written.setdefault(unit.index, []).append(file)
            tell()
    folder.finish()


def _description(found: "Inspection") -> list[str]:
    files = found.files
    lines = [
        f"{_count(found.num_records, 'record')} in {_count(len(found.shards), 'shard')} of "
        f"{_count(len(files), 'source')}"
    ]
    listed = list(files.items())[:_MAX_NAMES]
    lines += [f"  {name}: {_count(count, 'record')}" for name, count in listed]
    if len(files) > _MAX_NAMES:
        lines.append(f"  and {len(files) - _MAX_NAMES} more")
    if found.classes:
        shown = [f"{label} {name}" for label, name in enumerate(found.classes[:_MAX_NAMES])]
        more = len(found.classes) - _MAX_NAMES
        lines.append(f"classes: {', '.join(shown)}{f' and {more} more' if more > 0 else ''}")
    lines.append(f"a record is a {found.kind}" + (" of" if found.kind in ("dict", "tuple") else ""))
    if found.kind not in ("dict", "tuple"):
        return [*lines[:-1], f"{lines[-1]}: {next(iter(found.forms.values()))}"]
    width = max(map(len, found.forms))
    return lines + [f"  {name:<{width}}  {form}" for name, form in found.forms.items()]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _record_lines(record: Any) -> list[str]:
    if isinstance(record, Mapping):
        return [f"  {name}: {_shown(value)}" for name, value in record.items()]
    if isinstance(record, tuple):
        return [f"  {index}: {_shown(value)}" for index, value in enumerate(record)]
    return [f"  {_shown(record)}"]


def _shown(value: Any) -> str:
    """A value in one line."""
    if isinstance(value, str):
        # NumPy's own text shows its type.
        value = repr(str(value))
    text = " ".join((repr(value) if isinstance(value, bytes) else str(value)).split())
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"


def _params(flag: str, text: str) -> dict[str, Any]:
    try:
        params = read_params(text)
    except ValueError as error:
        raise JobSpecError(f"{flag}: {error}") from error
    assert isinstance(params, dict), "text is read into a dict"
    return params


def _types(given: Sequence[str]) -> dict[str, str]:
    """`FIELD=DTYPE` texts as a mapping.

    Raises:
        JobSpecError: One is not of that form, or names no type.
    """
    import numpy as np

    types: dict[str, str] = {}
    for item in given:
        name, equals, dtype = item.rpartition("=")
        try:
            is_type = dtype == "str" or np.dtype(dtype).kind in "biuf"
        except TypeError:
            is_type = False
        if not (equals and name and is_type):
            raise JobSpecError(
                f"--type {item} is not FIELD=DTYPE: write one like label=int64, with a dtype like "
                "float32, int64, uint8, bool or str"
            )
        types[name] = dtype
    return types


# `elastic rows`: what has changed in tables of embeddings since a checkpoint, and its use.


_ROWS_EPILOG = """\b
Examples:
  elastic rows delta kept --since kept/version-0000000100 --output changes
  elastic rows apply changes model.safetensors.rows
"""
_folder = click.Path(path_type=Path)


@click.group(
    "rows", short_help="Tell what has changed in tables of embeddings.", epilog=_ROWS_EPILOG
)
def rows() -> None:
    """Tell what has changed in tables of embeddings, and bring an export up to date."""


@rows.command("delta", short_help="Write the rows that have changed since a checkpoint.")
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
    from elastic.checkpoints.table_files import write_delta

    try:
        _show(write_delta(since, checkpoint, output))
    except OSError as error:
        raise _unwritable(output, error) from error
    return ExitCode.DONE


@rows.command("apply", short_help="Bring exported tables up to date.")
@click.argument("delta", type=_folder)
@click.argument("rows", type=_folder)
def apply(delta: Path, rows: Path) -> int:
    """Apply what `elastic rows delta` has written to exported tables.

    ROWS is the folder MODEL.rows beside an exported model: of the version that
    the changes begin with, or of one in between.
    """
    from elastic.checkpoints.table_files import apply_delta

    try:
        _show(apply_delta(delta, rows))
    except OSError as error:
        raise _unwritable(rows, error) from error
    return ExitCode.DONE


def _show(tables: Iterable["TableDelta"]) -> None:
    for table in tables:
        click.echo(f"{table.name}: {table.changed:,} rows changed, {table.removed:,} removed")


def _unwritable(folder: Path, error: OSError) -> JobSpecError:
    return JobSpecError(
        f"{folder} cannot be written: {error.strerror or error}: free space there, or name another"
    )
