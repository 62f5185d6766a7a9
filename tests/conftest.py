"""What every test relies on."""

import signal
import subprocess
from pathlib import Path

import pytest
from hypothesis import settings
from support import seeds

pytest_plugins = ["support.time_by_cause"]

# How long an example takes is the machine's doing.
settings.register_profile("usual", deadline=None)
settings.load_profile("usual")
# `make soak` plays more schedules of the ledger than each run can.
settings.register_profile("soak", max_examples=1000)

# Before processes are started beside each other at midnight.
seeds.drawn_by()

# A shell starts what it runs in the background with SIGINT ignored, nohup with SIGHUP, and children
# inherit that: the tests that press Ctrl-C or close a terminal would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


PURE = {Path(__file__).with_name(name) for name in ("policy", "spec", "rpc", "telemetry")}
PURE_TIMEOUT_S = 60
"""For the examples of the usual profile."""
USUAL_EXAMPLES = 100


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Say which tests are of this run, and how long those of pure code may take.

    Nothing starts in these, so that one which takes long goes on for ever; those of soak play many
    cases, and are meant to.
    """
    for item in items:
        sampled = item.get_closest_marker("sampled")
        if sampled is not None and not seeds.is_drawn(item.nodeid, *sampled.args):
            item.add_marker("soak")
    timeout_s = PURE_TIMEOUT_S * settings.default.max_examples / USUAL_EXAMPLES
    for item in items:
        if not PURE.isdisjoint(item.path.parents) and item.get_closest_marker("soak") is None:
            item.add_marker(pytest.mark.timeout(timeout_s))


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 256 KiB."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", path], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a small file system can be mounted by root only: {mounted.stderr.strip()}")
    yield path
    subprocess.run(["umount", path], check=True)
