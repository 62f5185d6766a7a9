"""How the master's C library handles the memory that its threads allocate and free again."""

from typing import Final

from elastic.platforms.allocator import set_options

_M_ARENA_MAX: Final = -8
"""Number of <malloc.h>."""


def share_one_heap() -> bool:
    """Have all threads allocate from one heap; False where that is not to be had.

    Updates, reads and cuts run in threads of a pool, now in this one and now in that. Of itself
    glibc gives each thread a heap, which keeps what its largest call has freed: with updates of
    48 MiB of rows that came to 300 MiB, which nobody else could use. The interpreter has one thread
    allocate at a time anyway. A user who has set one of glibc's variables is left with that.
    """
    return set_options({_M_ARENA_MAX: 1})
