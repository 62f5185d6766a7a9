"""The elastic that runs here, as a wheel: pods run the same code that checked and sent the job.

Written from the package's files, so that it works from a checkout and from an installation alike
and needs neither a build tool nor a network.
"""

import base64
import hashlib
import io
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

import elastic
from elastic.errors import PlatformError
from elastic.spec.packages import DISTRIBUTION, install_this

_FILE_NAME: Final = DISTRIBUTION.replace("-", "_")
# The earliest moment a zip file can name; a fixed one makes equal files of equal code.
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_WHEEL: Final = """\
Wheel-Version: 1.0
Generator: elastic
Root-Is-Purelib: true
Tag: py3-none-any
"""


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel and what must be there before it can be used.

    Attributes:
        requirements: Lines of a requirements file, sorted.
    """

    name: str
    content: bytes
    requirements: tuple[str, ...]


def wheel_of_this_elastic(extras: Sequence[str] = ()) -> Wheel:
    """Pack the package that is running.

    Args:
        extras: What is to be there as well.

    Raises:
        PlatformError: It is not installed, so nobody knows what it needs.
    """
    try:
        distribution = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError as error:
        raise PlatformError(
            f"elastic runs from {Path(elastic.__file__).parent} without being installed, so what "
            f"it needs in an image is unknown: {install_this()}"
        ) from error
    requirements = tuple(
        sorted(line for line in distribution.requires or () if "extra ==" not in line)
    )
    prefix = f"{_FILE_NAME}-{distribution.version}"
    info = f"{prefix}.dist-info"
    files = dict(_package_files())
    files[f"{info}/METADATA"] = _metadata(distribution, requirements).encode()
    files[f"{info}/WHEEL"] = _WHEEL.encode()
    files[f"{info}/entry_points.txt"] = (distribution.read_text("entry_points.txt") or "").encode()
    return Wheel(
        f"{prefix}-py3-none-any.whl", _zip(files, f"{info}/RECORD"), (*requirements, *extras)
    )


def _package_files() -> Iterator[tuple[str, bytes]]:
    root = Path(elastic.__file__).parent
    # An installed elastic holds the model zoo, a checkout does not; pods need it in neither.
    left_out = {"__pycache__", "model_zoo"}
    for path in root.rglob("*"):
        if path.is_file() and left_out.isdisjoint(path.relative_to(root).parts):
            yield path.relative_to(root.parent).as_posix(), path.read_bytes()


def _metadata(distribution: metadata.Distribution, requirements: tuple[str, ...]) -> str:
    # Without the README, which would make another image of every edit to it.
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {DISTRIBUTION}",
        f"Version: {distribution.version}",
        f"Requires-Python: {distribution.metadata['Requires-Python']}",
        *(f"Requires-Dist: {line}" for line in requirements),
    ]
    return "\n".join(lines) + "\n"


def _zip(files: dict[str, bytes], record_path: str) -> bytes:
    record = [
        f"{path},sha256={_digest(content)},{len(content)}"
        for path, content in sorted(files.items())
    ]
    record.append(f"{record_path},,")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in [*sorted(files.items()), (record_path, "\n".join(record).encode())]:
            entry = zipfile.ZipInfo(path, _EPOCH)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return buffer.getvalue()


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
