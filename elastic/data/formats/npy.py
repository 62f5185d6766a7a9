"""Where the rows of an array lie in a `.npy` file or in a member of an `.npz` archive."""

import ast
import io
import struct
import tokenize
import zipfile
import zlib
from dataclasses import dataclass
from math import prod
from typing import IO, Any, Final

import numpy as np

from elastic.data.storage.files import SourceFile
from elastic.errors import DataError

_MAX_HEADER_BYTES: Final = 1 << 16
_LOCAL_HEADER: Final = struct.Struct("<4s22xHH")
"""Of a zip member: signature, then the lengths of its name and of its extra field."""

ARCHIVE_ERRORS: Final = (
    zipfile.BadZipFile,
    zlib.error,
    ValueError,
    EOFError,
    KeyError,
    NotImplementedError,
    SyntaxError,
    TypeError,
    tokenize.TokenError,
    struct.error,
)
"""What `zipfile` and NumPy raise for bytes that are not what their headers promise."""


@dataclass(frozen=True, slots=True)
class ArrayLayout:
    """One array on disk.

    Attributes:
        key: Its name in the archive; empty for a `.npy` file.
        dtype: Without Python objects.
        shape: At least one dimension; the first counts records.
        offset: Where the first row begins in the file, or None where rows do not lie one after
            the other: compressed, or in Fortran order.
    """

    key: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int | None

    @property
    def row_bytes(self) -> int:
        return self.dtype.itemsize * prod(self.shape[1:])


def read_layouts(file: SourceFile, is_archive: bool) -> tuple[ArrayLayout, ...]:
    """Read the headers of all arrays of a file, not the arrays.

    Raises:
        DataError: The file is damaged, or an array has no rows that could be records.
    """
    try:
        layouts = _archive_layouts(file) if is_archive else (_file_layout(file),)
    except ARCHIVE_ERRORS as error:
        kind = "npz archive" if is_archive else "npy file"
        raise DataError(
            f"{file.name} is no readable {kind} ({error}): it is damaged or of another format; "
            "write it again with numpy"
        ) from error
    _check_lengths(file, layouts)
    return layouts


def load_array(file: SourceFile, layout: ArrayLayout) -> np.ndarray[Any, np.dtype[Any]]:
    """Read one whole array, decompressed, in C order.

    Raises:
        DataError: The archive is damaged.
    """
    try:
        if not layout.key:
            array = np.load(file.stream(), allow_pickle=False)
        else:
            with (
                zipfile.ZipFile(file.stream()) as archive,
                archive.open(f"{layout.key}.npy") as member,
            ):
                array = np.lib.format.read_array(member, allow_pickle=False)
    except (*ARCHIVE_ERRORS, OSError) as error:
        where = f"array {layout.key!r} of {file.name}" if layout.key else file.name
        raise DataError(f"{where} is damaged ({error}): write the file again") from error
    return np.ascontiguousarray(array)


def _archive_layouts(file: SourceFile) -> tuple[ArrayLayout, ...]:
    layouts = []
    try:
        with zipfile.ZipFile(file.stream()) as archive:
            for member in archive.infolist():
                if not member.filename.endswith(".npy"):
                    raise DataError(
                        f"{file.name} holds {member.filename!r}, which is not an array: write the "
                        "archive with numpy.savez"
                    )
                if member.flag_bits & 1:
                    raise DataError(f"{file.name} is encrypted: write it with numpy.savez")
                layouts.append(_member_layout(file, archive, member))
    except OSError as error:
        raise DataError(f"{file.name} cannot be read ({error}): check the file") from error
    if not layouts:
        raise DataError(f"{file.name} holds no arrays: fill it, or take it out of the data")
    return tuple(layouts)


def _member_layout(
    file: SourceFile, archive: zipfile.ZipFile, member: zipfile.ZipInfo
) -> ArrayLayout:
    key = member.filename.removesuffix(".npy")
    with archive.open(member) as stream:
        dtype, shape, is_fortran = _read_header(stream)
        header_bytes = stream.tell()
    _check_array(file.name, key, dtype, shape)
    expected = header_bytes + dtype.itemsize * prod(shape)
    if member.file_size != expected:
        raise zipfile.BadZipFile(f"{key!r} has {member.file_size} bytes instead of {expected}")
    if member.compress_type != zipfile.ZIP_STORED or is_fortran:
        return ArrayLayout(key, dtype, shape, None)
    local_header = file.read_at(member.header_offset, _LOCAL_HEADER.size)
    _, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(local_header)
    begin = member.header_offset + _LOCAL_HEADER.size + name_bytes + extra_bytes
    if begin + expected > file.size:
        raise zipfile.BadZipFile(f"{key!r} goes beyond the end of the file")
    return ArrayLayout(key, dtype, shape, begin + header_bytes)


def _file_layout(file: SourceFile) -> ArrayLayout:
    stream = io.BytesIO(file.read_at(0, _MAX_HEADER_BYTES))
    dtype, shape, is_fortran = _read_header(stream)
    _check_array(file.name, "", dtype, shape)
    expected = stream.tell() + dtype.itemsize * prod(shape)
    if file.size < expected:
        raise DataError(
            f"{file.name} has {file.size} bytes instead of {expected}: it is truncated; "
            "write it again"
        )
    if file.size > expected:
        # NumPy appends to an open file, and reads the first array alone.
        raise DataError(
            f"{file.name} goes on for {file.size - expected} bytes after its array, which would be "
            "left out: write one array to each file, or several of one length with numpy.savez"
        )
    return ArrayLayout("", dtype, shape, None if is_fortran else stream.tell())


def _read_header(stream: IO[bytes]) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    """Read a `.npy` header: dtype, shape, and whether columns come first."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, is_fortran, dtype = np.lib.format.read_array_header_2_0(stream)
    elif version == (3, 0):
        # NumPy reads this version, but only through private functions.
        (size_bytes,) = struct.unpack("<I", stream.read(4))
        if size_bytes > _MAX_HEADER_BYTES:
            raise ValueError(f"its header would have {size_bytes} bytes")
        header = ast.literal_eval(stream.read(size_bytes).decode("utf-8"))
        shape, is_fortran = header["shape"], header["fortran_order"]
        dtype = np.lib.format.descr_to_dtype(header["descr"])
    else:
        raise ValueError(f"its format has the version {version}")
    if any(size < 0 for size in shape):
        raise ValueError(f"its shape is {shape}")
    return dtype, shape, is_fortran and len(shape) > 1


def _check_array(name: str, key: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    where = f"array {key!r} of {name}" if key else f"the array of {name}"
    if dtype.hasobject:
        raise DataError(
            f"{where} holds Python objects, which only pickle can read, and pickle can run code: "
            "save it with a numeric or string dtype"
        )
    if not shape:
        raise DataError(f"{where} is a single value without rows: leave it out, or give it rows")


def _check_lengths(file: SourceFile, layouts: tuple[ArrayLayout, ...]) -> None:
    lengths = {layout.key: layout.shape[0] for layout in layouts}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{key}: {length}" for key, length in lengths.items())
        raise DataError(
            f"{file.name} has arrays of different lengths ({found}): the first dimension counts "
            "the records and must be the same for all"
        )
