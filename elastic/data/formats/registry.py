"""The formats of files: a format is one module that reads it and one entry here.

Entries import their readers when one is made: a command line that only lists files pays for none.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, TypeAlias

from elastic.data.base import FormatReader
from elastic.data.extras import Extra, check_extra
from elastic.data.storage.compression import without_codec, without_part
from elastic.spec.origins import file_name

if TYPE_CHECKING:
    from elastic.data.formats.options import ReaderOptions
    from elastic.data.storage.files import OpenFiles

Factory: TypeAlias = "Callable[[OpenFiles, ReaderOptions], FormatReader]"


@dataclass(frozen=True, slots=True)
class Format:
    """What is known of a format before a file of it is opened.

    Attributes:
        name: As in `--data_reader_params format=NAME`.
        build: Makes its reader; imports it then.
        suffixes: Lower case, with their dots. A file of none of all formats is read as lines.
        aliases: Other names that users write.
        params: The reader parameters it takes, besides `format`.
        is_stream: Whether its files are read forward, so that they may be compressed as a whole.
        extra: What it needs that may be missing.
    """

    name: str
    build: Factory
    suffixes: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    params: tuple[str, ...] = ()
    is_stream: bool = False
    extra: Extra | None = None


def _npz(files: "OpenFiles", options: "ReaderOptions") -> FormatReader:
    from elastic.data.formats.arrays import ArrayReader

    return ArrayReader(files, options, is_archive=True)


def _npy(files: "OpenFiles", options: "ReaderOptions") -> FormatReader:
    from elastic.data.formats.arrays import ArrayReader

    return ArrayReader(files, options, is_archive=False)


def _csv(files: "OpenFiles", options: "ReaderOptions") -> FormatReader:
    from elastic.data.formats.delimited import CsvReader

    return CsvReader(files, options, ",")


def _tsv(files: "OpenFiles", options: "ReaderOptions") -> FormatReader:
    from elastic.data.formats.delimited import CsvReader

    return CsvReader(files, options, "\t")


def _lines(files: "OpenFiles", options: "ReaderOptions") -> FormatReader:
    from elastic.data.formats.lines import LinesReader

    return LinesReader(files, options)


def _parquet(files: "OpenFiles", options: "ReaderOptions") -> FormatReader:
    from elastic.data.formats.parquet import ParquetReader

    return ParquetReader(files, options)


def _images(files: "OpenFiles", options: "ReaderOptions") -> FormatReader:
    from elastic.data.images.reader import ImageReader

    return ImageReader(files, options)


def _tfrecord(files: "OpenFiles", options: "ReaderOptions") -> FormatReader:  # noqa: ARG001 (factories are alike)
    from elastic.data.formats.tfrecord import TFRecordReader

    return TFRecordReader(files)


def _recordio(files: "OpenFiles", options: "ReaderOptions") -> FormatReader:  # noqa: ARG001 (factories are alike)
    from elastic.data.formats.recordio import RecordIOReader

    return RecordIOReader(files)


_CSV: Final = ("header", "delimiter", "encoding", "compression")
_TFRECORD: Final = (".tfrecord", ".tfrecords", ".tfrec")

_ALL: Final = (
    Format("csv", _csv, (".csv",), params=_CSV, is_stream=True),
    Format("tsv", _tsv, (".tsv",), params=_CSV, is_stream=True),
    Format(
        "lines",
        _lines,
        (".txt",),
        aliases=("text", "txt", "line"),
        params=("encoding", "compression"),
        is_stream=True,
    ),
    Format(
        "tfrecord",
        _tfrecord,
        _TFRECORD,
        aliases=("tfrecords",),
        params=("compression",),
        is_stream=True,
    ),
    Format("recordio", _recordio, (".recordio", ".rio"), aliases=("rio",)),
    Format("npz", _npz, (".npz",), params=("cache_mb",)),
    Format("npy", _npy, (".npy",), params=("cache_mb",)),
    Format(
        "parquet",
        _parquet,
        (".parquet", ".pq"),
        aliases=("pq",),
        params=("columns", "cache_mb"),
        extra=Extra("parquet", ("pyarrow",)),
    ),
    Format(
        "images",
        _images,
        aliases=("image",),
        params=("size", "mode", "classes", "processes"),
        extra=Extra("images", ("PIL",)),
    ),
)

FORMATS: Final = {entry.name: entry for entry in _ALL}

PARAMS: Final = tuple(dict.fromkeys(("format", *(name for entry in _ALL for name in entry.params))))
"""All reader parameters of all formats."""

_BY_NAME: Final = {alias: entry for entry in _ALL for alias in (entry.name, *entry.aliases)}
_BY_SUFFIX: Final = {suffix: entry for entry in _ALL for suffix in entry.suffixes}


def find_format(name: str) -> Format | None:
    """The format that a user's word for it means, or None."""
    return _BY_NAME.get(name.lower().removeprefix("."))


def is_folder(name: str) -> bool:
    """Whether a name stands for a folder that is one source, as folders of images are."""
    return name.endswith("/")


def format_of(name: str) -> str:
    """The format that a file's suffix stands for; `lines` for every suffix that names none."""
    if is_folder(name):
        return FORMATS["images"].name
    suffix = PurePath(without_part(without_codec(file_name(name)))).suffix.lower()
    return _BY_SUFFIX.get(suffix, FORMATS["lines"]).name


def build_reader(name: str, files: "OpenFiles", options: "ReaderOptions") -> FormatReader:
    """Make the reader of a format.

    Raises:
        DataError: A package that it needs is not installed.
    """
    entry = FORMATS[name]
    if entry.extra is not None:
        check_extra(entry.extra, f"{name} files")
    return entry.build(files, options)
