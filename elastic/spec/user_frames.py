"""Which line of the user's own code an exception came from."""

import errno
import os
import re
import site
import sysconfig
import traceback
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final

from elastic.errors import ElasticError

_NOT_USER_CODE: Final = (
    str(Path(__file__).resolve().parent.parent) + "/",
    *(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    f"{site.getusersitepackages()}/",
    "<",
)
_GENERATED_FILE: Final = "__autograph_generated_file"
_FRAME: Final = re.compile(r'File "([^"]+)", line (\d+)')
_AUTOGRAPH_HEAD: Final = ": in user code:\n"
"""How TensorFlow begins the message of what the user's code raised while it was traced."""

_READ_ONLY: Final = os.strerror(errno.EROFS)
"""Libraries that write files have their own exceptions, and tell this in the same words."""


def where_raised(error: BaseException, default: str) -> str:
    """The innermost `file:line` of the user's code behind an exception.

    Args:
        default: The answer where no line of the user's was involved.
    """
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{error.filename}:{error.lineno or 1}"
    own = [
        f"{frame.filename}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if _is_user_file(frame.filename)
    ]
    return own[-1] if own else default


def describe(error: BaseException) -> str:
    """Type, message and the user's line, in one sentence; where it can write, if it could not."""
    where = where_raised(error, "")
    kind = type(error).__name__
    text = f"{kind}: {error}"
    if text.startswith(f"{kind}{_AUTOGRAPH_HEAD}"):
        # Its own kind of traceback comes first, then type and message as of any other.
        trace, found, message = text.partition(f"\n    {kind}: ")
        text = f"{kind}: {message.strip()}" if found else text
        where = where or _last_user_line(trace)
    return f"{text}{f' ({where})' if where else ''}{read_only_advice(error)}"


def read_only_advice(error: BaseException) -> str:
    """`: …` with what to do where nothing can be written, or nothing: a pod's root is such."""
    if _READ_ONLY not in str(error):
        return ""
    return ": write to /tmp, or what is to last below the mount_path of a --volume"


def _last_user_line(trace: str) -> str:
    own = [f"{name}:{line}" for name, line in _FRAME.findall(trace) if _is_user_file(name)]
    return own[-1] if own else ""


def user_traceback(error: BaseException) -> str | None:
    """The traceback behind an error from the first line of the user's code on.

    None where no line of the user's is behind it: the message is all there is to say then.
    """
    cause = error
    while isinstance(cause, ElasticError) and cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(cause, SyntaxError) and cause.filename is not None:
        # It is raised by who reads the user's file; all lines of that are Python's and ours.
        only = traceback.format_exception_only(cause)
        return "".join(["Traceback (most recent call last):\n", *only]).rstrip()
    start: TracebackType | None = cause.__traceback__
    while start is not None and not _is_user_file(start.tb_frame.f_code.co_filename):
        start = start.tb_next
    if start is None:
        return None
    return "".join(traceback.format_exception(type(cause), cause, start)).rstrip()


def stuck_in(frame: FrameType) -> str | None:
    """Which of the user's functions a thread is in, and on which line; None where in none."""
    own = [
        (each.f_code, line)
        for each, line in traceback.walk_stack(frame)
        if _is_user_file(each.f_code.co_filename)
    ]
    if not own:
        return None
    (innermost, line), (outermost, _) = own[0], own[-1]
    name = outermost.co_qualname
    what = f"the import of {outermost.co_filename}" if name == "<module>" else name
    return f"{what} ({innermost.co_filename}:{line})"


def _is_user_file(filename: str) -> bool:
    return not filename.startswith(_NOT_USER_CODE) and _GENERATED_FILE not in filename
