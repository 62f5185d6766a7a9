"""A command that is run warm is like one that begins cold."""

import os
import subprocess
import sys

import pytest
from support import warm

SCRIPT = """\
import json, os, sys
from pathlib import Path

told = {
    "name": __name__,
    "arguments": sys.argv,
    "beside": sys.path[0],
    "folder": os.getcwd(),
    "environment": dict(os.environ),
    "shown": sorted(Path("/proc/self/environ").read_text().strip("\\0").split("\\0")),
    "input": sys.stdin.read(),
}
print(json.dumps(told, sort_keys=True), flush=True)
print("told", file=sys.stderr)
os.system("echo from a child; echo and its error >&2")
if "--raise" in sys.argv:
    raise KeyError("broken")
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path


@pytest.mark.parametrize(
    "arguments", [["script.py", "0"], ["-m", "script", "3"], ["-c", SCRIPT, "4"]]
)
def test_it_has_all_that_it_would_have_and_says_the_same(arguments, folder):
    # Python sets this one for itself where the locale is none.
    environment = {"PATH": os.environ["PATH"], "MINE": "a b", "LC_CTYPE": "C.UTF-8"}
    cold = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    told = warm.run(arguments, folder, environment)
    assert told.stdout == cold.stdout
    assert told.stderr == cold.stderr
    assert told.returncode == cold.returncode == int(arguments[-1])


def test_one_that_raises_ends_with_its_traceback(folder):
    told = warm.run(["script.py", "--raise"], folder, dict(os.environ))
    assert told.returncode == 1
    assert told.stderr.splitlines()[-1] == "KeyError: 'broken'"
