"""How a worker's C library handles the memory that every step allocates and frees again."""

from typing import Final

from elastic.platforms.allocator import set_options

# Numbers of <malloc.h>.
_M_TRIM_THRESHOLD: Final = -1
_M_TOP_PAD: Final = -2
_M_MMAP_THRESHOLD: Final = -3

KEPT_BYTES: Final = 512 << 20
"""Free memory at the heap's end, above which it goes back to the system."""

TOP_PAD_BYTES: Final = 64 << 20
MMAP_BYTES: Final = 32 << 20
"""Larger blocks are mapped and unmapped one by one; glibc allows no more."""


def keep_freed_memory() -> bool:
    """Let glibc keep what a step frees for the next one; False where that is not to be had.

    By itself it gives the end of the heap back whenever a few megabytes are free there, as after
    every backward pass, and the next step faults each page in anew: 1,000 to 2,700 faults, 2 to 6 %
    of a step of 170 ms. A user who has set one of glibc's variables is left with that.
    """
    return set_options(
        {
            _M_MMAP_THRESHOLD: MMAP_BYTES,
            _M_TRIM_THRESHOLD: KEPT_BYTES,
            _M_TOP_PAD: TOP_PAD_BYTES,
        }
    )
