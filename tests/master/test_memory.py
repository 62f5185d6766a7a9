"""What the master's process does with the memory that its threads have freed."""

import json
import os
import platform
import subprocess
import sys

import pytest

CALLS = """
import json, sys, threading
import numpy as np
from elastic.platforms.process import share_one_heap

PR_SET_THP_DISABLE = 41
import ctypes
assert ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0
is_shared = sys.argv[1] == "share" and share_one_heap()
NUM_THREADS = 6
turns = [threading.Event() for _ in range(NUM_THREADS + 1)]
over = threading.Event()

def call(turn):
    # One after the other, as calls of a pool that has a thread for each; none of them ends.
    turns[turn].wait()
    for _ in range(2):
        # What was mapped once and freed is allocated on the heap from then on.
        for array in [np.empty(24 << 20, np.uint8) for _ in range(2)]:
            array[::4096] = 1
        del array
    turns[turn + 1].set()
    over.wait()

threads = [threading.Thread(target=call, args=(each,)) for each in range(NUM_THREADS)]
for thread in threads:
    thread.start()
turns[0].set()
turns[-1].wait()
[anonymous] = [line for line in open("/proc/self/status") if line.startswith("RssAnon")]
over.set()
print(json.dumps([is_shared, int(anonymous.split()[1]) >> 10]))
"""

pytestmark = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="the settings are those of glibc"
)


def test_threads_use_the_memory_that_others_have_freed() -> None:
    was_shared, without = left_mib("leave")
    is_shared, with_it = left_mib("share")
    assert (was_shared, is_shared) == (False, True)
    assert without > 200, "glibc by itself keeps nothing here: the test shows nothing"
    assert with_it < 120


def test_the_users_own_settings_stay() -> None:
    assert not left_mib("share", MALLOC_ARENA_MAX="4")[0]


def left_mib(what: str, **variables: str) -> tuple[bool, int]:
    """Whether the setting was made, and what six threads leave that have taken 48 MiB each."""
    environment = {n: v for n, v in os.environ.items() if not n.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run(
        [sys.executable, "-c", CALLS, what],
        env=environment | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    is_shared, left = json.loads(done.stdout)
    return is_shared, left
