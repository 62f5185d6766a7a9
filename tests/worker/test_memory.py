"""What a worker's process does with the memory that a step has freed."""

import json
import os
import platform
import subprocess
import sys

import pytest

STEPS = """
import ctypes, json, resource, sys
import numpy as np
from elastic.platforms.process import keep_freed_memory

PR_SET_THP_DISABLE = 41  # else a machine's huge pages leave few faults to count
assert ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0
is_kept = sys.argv[1] == "keep" and keep_freed_memory()

def step():
    for array in [np.empty(24 << 20, np.uint8) for _ in range(4)]:
        array[::4096] = 1

for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
faults = (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 10
print(json.dumps([is_kept, faults]))
"""

pytestmark = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="the settings are those of glibc"
)


def test_a_step_uses_the_pages_of_the_one_before() -> None:
    was_kept, without = faults_a_step("leave")
    is_kept, with_it = faults_a_step("keep")
    assert (was_kept, is_kept) == (False, True)
    assert without > 1000, "glibc by itself gives nothing back here: the test shows nothing"
    assert with_it < without / 100


@pytest.mark.parametrize(
    "variable", ["MALLOC_TRIM_THRESHOLD_=1000000", "GLIBC_TUNABLES=glibc.malloc.top_pad=4096"]
)
def test_the_users_own_settings_stay(variable: str) -> None:
    name, value = variable.split("=", 1)
    assert not faults_a_step("keep", **{name: value})[0]


def faults_a_step(what: str, **variables: str) -> tuple[bool, float]:
    """Whether the settings were made, and the page faults of a step that touches 96 MB."""
    environment = {n: v for n, v in os.environ.items() if not n.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run(
        [sys.executable, "-c", STEPS, what],
        env=environment | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    is_kept, faults = json.loads(done.stdout)
    return is_kept, faults
