"""What a process asks of the C library that allocates its memory."""

import ctypes
import os
from collections.abc import Mapping


def set_options(options: Mapping[int, int]) -> bool:
    """Have glibc follow these; False where that is not to be had.

    A user who has set one of glibc's variables is left with that.

    Args:
        options: Values by the numbers of <malloc.h>.
    """
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return all(mallopt(option, value) == 1 for option, value in options.items())
