"""The compressions that a whole file may have."""

import bz2
import lzma
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from elastic.data.extras import Extra


class Decompressor(Protocol):
    """What decompresses one stream, as `bz2.BZ2Decompressor` does."""

    @property
    def eof(self) -> bool:
        """Whether the stream has ended."""

    @property
    def unused_data(self) -> bytes:
        """What followed the stream in the bytes given so far."""

    def decompress(self, data: bytes, /) -> bytes:
        """The content that these further bytes hold."""


@dataclass(frozen=True, slots=True)
class Codec:
    """One compression.

    Attributes:
        name: As in `--data_reader_params compression=NAME`.
        start: Makes what decompresses a stream.
        errors: What that raises for bytes which are no such stream.
        suffixes: Of files that are compressed so, lower case.
        magic: How such a file begins; None where that could be a text.
        extra: What it needs that may be missing.
    """

    name: str
    start: Callable[[], Decompressor]
    errors: Callable[[], tuple[type[Exception], ...]]
    suffixes: tuple[str, ...] = ()
    magic: re.Pattern[bytes] | None = None
    extra: Extra | None = None


def _zstd() -> Decompressor:
    import zstandard

    return zstandard.ZstdDecompressor().decompressobj()


def _zstd_errors() -> tuple[type[Exception], ...]:
    import zstandard

    return (zstandard.ZstdError,)


_ALL: Final = (
    Codec(
        "gzip",
        lambda: zlib.decompressobj(31),
        lambda: (zlib.error,),
        (".gz", ".gzip"),
        re.compile(rb"\x1f\x8b\x08"),
    ),
    Codec("zlib", zlib.decompressobj, lambda: (zlib.error,)),
    Codec(
        "bz2",
        bz2.BZ2Decompressor,
        lambda: (OSError,),
        (".bz2",),
        re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),
    ),
    Codec(
        "xz",
        lzma.LZMADecompressor,
        lambda: (lzma.LZMAError,),
        (".xz",),
        re.compile(rb"\xfd7zXZ\0"),
    ),
    Codec(
        "zstd",
        _zstd,
        _zstd_errors,
        (".zst", ".zstd"),
        # A skippable frame may come first, as pzstd writes it.
        re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
        Extra("zstd", ("zstandard",)),
    ),
)

CODECS: Final = {codec.name: codec for codec in _ALL}

_PART: Final = re.compile(r"-\d+-of-\d+$")
"""How sharded writers end a name, as in `train.csv-00000-of-00010`."""

_BY_SUFFIX: Final = {suffix: codec for codec in _ALL for suffix in codec.suffixes}


def codec_of(name: str) -> Codec | None:
    """The compression that a file's last suffix stands for, the number of a part left aside."""
    return _BY_SUFFIX.get(_suffix(without_part(name)))


def without_codec(name: str) -> str:
    """A file's name as it was before the file was compressed."""
    if codec_of(name) is None:
        return name
    name = without_part(name)
    return name[: -len(_suffix(name))]


def without_part(name: str) -> str:
    """A file's name without the number of a part."""
    return _PART.sub("", name)


def _suffix(name: str) -> str:
    return name[name.rfind(".") :].lower() if "." in name else ""
