"""What is known of formats before a file is opened: their names, and what users say to readers.

The module that reads a format is imported when `readers` makes its reader: a command line that only
lists files pays for none.
"""

import codecs
import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

import numpy as np

from elastic.data.base import Extra
from elastic.data.storage import CODECS, codec_of, without_codec, without_part
from elastic.errors import JobSpecError
from elastic.spec.values import file_name


@dataclass(frozen=True, slots=True)
class Format:
    """What is known of a format before a file of it is opened.

    Attributes:
        name: As in `--data_reader_params format=NAME`.
        suffixes: Lower case, with their dots. A file of none of all formats is read as lines.
        aliases: Other names that users write.
        params: The reader parameters it takes, besides `format`.
        is_stream: Whether its files are read forward, so that they may be compressed as a whole.
        extra: What it needs that may be missing.
    """

    name: str
    suffixes: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    params: tuple[str, ...] = ()
    is_stream: bool = False
    extra: Extra | None = None


_CSV: Final = ("header", "delimiter", "encoding", "compression", "types", "cache_mb")
_TFRECORD: Final = (".tfrecord", ".tfrecords", ".tfrec")

_ALL: Final = (
    Format("csv", (".csv",), params=_CSV, is_stream=True),
    Format("tsv", (".tsv",), params=_CSV, is_stream=True),
    Format(
        "lines",
        (".txt",),
        aliases=("text", "txt", "line"),
        params=("encoding", "compression"),
        is_stream=True,
    ),
    Format(
        "tfrecord",
        _TFRECORD,
        aliases=("tfrecords",),
        params=("compression",),
        is_stream=True,
    ),
    Format("recordio", (".recordio", ".rio"), aliases=("rio",)),
    Format("npz", (".npz",), params=("cache_mb",)),
    Format("npy", (".npy",), params=("cache_mb",)),
    Format(
        "parquet",
        (".parquet", ".pq"),
        aliases=("pq",),
        params=("columns", "cache_mb"),
        extra=Extra("parquet", ("pyarrow",)),
    ),
    Format(
        "images",
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


_DELIMITER_NAMES: Final = {
    "comma": ",",
    "tab": "\t",
    "\\t": "\t",
    "semicolon": ";",
    "pipe": "|",
    "space": " ",
}
_HEADER_VALUES: Final = {"true": True, "false": False, "auto": None}

_MAX_NUMBER_BYTES: Final = 8

_NOT_LINE_WISE: Final = ("utf-16", "utf-32", "utf-7", "iso2022", "hz")
"""Encodings in which the bytes of a line end or a quote also occur inside other characters."""


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """Checked reader parameters.

    Attributes:
        format: One of `FORMATS`, or None to go by the files' suffix.
        header: Whether a CSV file begins with column names; None looks at the file.
        delimiter: One ASCII character between CSV fields, or None for the format's own.
        encoding: How text is encoded; its line ends and quotes are those of ASCII.
        compression: One of `CODECS`, `none`, or None to look at each file.
        cache_mb: MiB of decompressed arrays, or of columns, that a process keeps.
        types: Of columns of CSV files, by name (`*` for all others): a dtype, or None for text.
        columns: Of Parquet files, the ones that are read; None reads all.
        size: Height and width that images are resized to, or None to keep their own.
        image_mode: `RGB` or `L` (grey).
        classes: What the labels of images stand for; None takes the names of the folders.
        processes: That decode images beside a worker; 0 leaves it to the worker.
    """

    format: str | None = None
    header: bool | None = None
    delimiter: str | None = None
    encoding: str = "utf-8"
    compression: str | None = None
    cache_mb: int = 512
    types: tuple[tuple[str, np.dtype[Any] | None], ...] = ()
    columns: tuple[str, ...] | None = None
    size: tuple[int, int] | None = None
    image_mode: str = "RGB"
    classes: tuple[str, ...] | None = None
    processes: int = 1


def parse_options(params: Mapping[str, Any]) -> ReaderOptions:
    """Check the parameters of a job.

    Raises:
        JobSpecError: A name is unknown, or a value has no meaning.
    """
    for name in params:
        if name not in PARAMS:
            raise JobSpecError(
                f"--data_reader_params {name} is unknown: {_nearest(str(name), PARAMS)}"
            )
    options = ReaderOptions(
        format=_format(params["format"]) if "format" in params else None,
        header=_header(params.get("header", "auto")),
        delimiter=_delimiter(params["delimiter"]) if "delimiter" in params else None,
        encoding=_encoding(params.get("encoding", "utf-8")),
        compression=_compression(params.get("compression", "auto")),
        cache_mb=_count("cache_mb", params.get("cache_mb", ReaderOptions().cache_mb), "MiB"),
        types=_types(params["types"]) if "types" in params else (),
        columns=_names("columns", params["columns"]) if "columns" in params else None,
        size=_size(params["size"]) if "size" in params else None,
        image_mode=_image_mode(params.get("mode", "RGB")),
        classes=_names("classes", params["classes"]) if "classes" in params else None,
        processes=_count("processes", params.get("processes", ReaderOptions().processes)),
    )
    if (options.delimiter or ",") >= "0" and _is_double_byte(options.encoding):
        # Their characters hold such bytes too, and a row is found by its bytes.
        raise JobSpecError(
            f"--data_reader_params delimiter={options.delimiter} cannot be told from a part of a "
            f"character in {options.encoding}: convert the files to UTF-8"
        )
    if options.format is not None:
        check_used(params, options.format)
    return options


def check_used(params: Mapping[str, Any], format_name: str) -> None:
    """Refuse parameters that another format has and this one has not.

    Raises:
        JobSpecError: There is one.
    """
    taken = ("format", *FORMATS[format_name].params)
    for name in params:
        if name not in taken:
            known = ", ".join(taken)
            raise JobSpecError(
                f"--data_reader_params {name} has no meaning for {format_name} files, which take "
                f"{known}: leave it out"
            )


def _nearest(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    listed = ", ".join(known)
    return f"did you mean {close[0]}? (known: {listed})" if close else f"use one of {listed}"


def _format(value: Any) -> str:
    found = find_format(str(value))
    if found is None:
        raise JobSpecError(
            f"--data_reader_params format={value} is unknown: {_nearest(str(value), FORMATS)}; "
            "other formats are read with a custom_data_reader"
        )
    return found.name


def _header(value: Any) -> bool | None:
    name = str(value).lower()
    if name not in _HEADER_VALUES:
        raise JobSpecError(f"--data_reader_params header={value} is not one of true, false, auto")
    return _HEADER_VALUES[name]


def _delimiter(value: Any) -> str:
    text = _DELIMITER_NAMES.get(str(value), str(value))
    if len(text) != 1 or not text.isascii() or text in '"\r\n\0':
        names = ", ".join(sorted(set(_DELIMITER_NAMES) - {"\\t"}))
        raise JobSpecError(
            f"--data_reader_params delimiter={value!r} is not one ASCII character: "
            f"give the character, or one of {names}"
        )
    return text


def _encoding(value: Any) -> str:
    try:
        name = codecs.lookup(str(value)).name
        is_line_wise = '\n"'.encode(name.removesuffix("-sig")) == b'\n"'
    except (LookupError, ValueError) as error:
        raise JobSpecError(
            f"--data_reader_params encoding={value} is no encoding that Python knows: "
            "give one like utf-8 or latin-1"
        ) from error
    if not is_line_wise or name.startswith(_NOT_LINE_WISE):
        raise JobSpecError(
            f"--data_reader_params encoding={value} cannot be split into lines by bytes: "
            "convert the files to UTF-8"
        )
    return name.removesuffix("-sig")


def _names(param: str, value: Any) -> tuple[str, ...]:
    names = tuple(str(name) for name in (value if isinstance(value, (list, tuple)) else [value]))
    if not names or "" in names or len(set(names)) < len(names):
        raise JobSpecError(
            f"--data_reader_params {param}={value} is no list of different names: write "
            f"{param}=[a,b]"
        )
    return names


def _types(value: Any) -> tuple[tuple[str, np.dtype[Any] | None], ...]:
    if not isinstance(value, Mapping):
        raise JobSpecError(
            f"--data_reader_params types={value} names no columns: write "
            "'types={label: int64, city: str}', or 'types={\"*\": float32}' for all"
        )
    return tuple((str(name), _type(str(name), kind)) for name, kind in value.items())


def _type(name: str, value: Any) -> np.dtype[Any] | None:
    if value == "str":
        return None
    try:
        kind = np.dtype(str(value))
    except TypeError:
        kind = np.dtype(object)
    if kind.kind not in "iuf" or kind.itemsize > _MAX_NUMBER_BYTES:
        raise JobSpecError(
            f"--data_reader_params types={{{name}: {value}}} is no type of a column: write str, or "
            "a number of NumPy's like int64 or float32"
        )
    return kind.newbyteorder("=")


def _size(value: Any) -> tuple[int, int]:
    parts = value if isinstance(value, (list, tuple)) else str(value).lower().split("x")
    try:
        height, width = (int(part) for part in (*parts, *parts)[:2])
    except (TypeError, ValueError, OverflowError):
        height = width = 0
    if min(height, width) < 1 or len(parts) > 2:
        raise JobSpecError(
            f"--data_reader_params size={value} is not the height and width of an image: write "
            "size=224x224, or size=224 for a square"
        )
    return height, width


def _image_mode(value: Any) -> str:
    name = str(value).upper()
    if name not in ("RGB", "L"):
        raise JobSpecError(f"--data_reader_params mode={value} is not RGB, or L for grey")
    return name


def _compression(value: Any) -> str | None:
    name = str(value).lower().removeprefix(".")
    known = ("auto", "none", *CODECS)
    codec = codec_of(f".{name}")
    if codec is not None:
        return codec.name
    if name not in known:
        raise JobSpecError(
            f"--data_reader_params compression={value} is unknown: {_nearest(name, known)}"
        )
    return None if name == "auto" else name


def _is_double_byte(encoding: str) -> bool:
    return len("\u4e2d".encode(encoding, "ignore")) == 2


def _count(param: str, value: Any, unit: str = "") -> int:
    try:
        count = int(value)
    except (TypeError, ValueError, OverflowError):
        count = -1
    if count < 0:
        raise JobSpecError(
            f"--data_reader_params {param}={value} is not a number of {unit or param}, 0 or more"
        )
    return count
