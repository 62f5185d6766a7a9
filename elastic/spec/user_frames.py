"""Which line of the user's own code an exception came from."""

import sysconfig
import traceback
from pathlib import Path
from types import TracebackType
from typing import Final

_NOT_USER_CODE: Final = (
    str(Path(__file__).resolve().parent.parent) + "/",
    *(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    "<",
)
_GENERATED_FILE: Final = "__autograph_generated_file"


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
    """Type, message and the user's line, in one sentence."""
    where = where_raised(error, "")
    return f"{type(error).__name__}: {error}{f' ({where})' if where else ''}"


def user_traceback(error: BaseException) -> str:
    """The traceback of an error's cause from the first line of the user's code on.

    Where the error has no cause or none of the user's lines is in it, all there is.
    """
    cause = error.__cause__ or error
    start: TracebackType | None = cause.__traceback__
    while start is not None and not _is_user_file(start.tb_frame.f_code.co_filename):
        start = start.tb_next
    return "".join(
        traceback.format_exception(type(cause), cause, start or cause.__traceback__)
    ).rstrip()


def _is_user_file(filename: str) -> bool:
    return not filename.startswith(_NOT_USER_CODE) and _GENERATED_FILE not in filename
