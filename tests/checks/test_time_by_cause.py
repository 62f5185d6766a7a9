"""The table of `make test`: what tests were doing is what it says they were."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.time_by_cause import CAUSES, REPORT_VARIABLE, table

TESTS = Path(__file__).parents[1]
SAMPLE = """
import subprocess, sys, time
import pytest

def test_waits():
    time.sleep(1.5)

def test_computes():
    until_s = time.monotonic() + 1.5
    while time.monotonic() < until_s:
        pass

def test_has_a_process_compute():
    subprocess.run([sys.executable, "-S", "-c", '''
import time
until_s = time.monotonic() + 1.5
while time.monotonic() < until_s:
    pass
'''])

def test_starts():
    subprocess.run([sys.executable, "-c", "import slow"])

@pytest.mark.cluster
def test_waits_for_pods():
    time.sleep(1.5)
"""
SLOW = """
import time
for module in ["json", "email", "http", "xml", "wave", "zipfile", "csv", "cmd", "pdb", "bdb"]:
    __import__(module)
    time.sleep(0.2)
"""


WITHOUT_FILES = """
import resource, time

def test_computes_and_can_open_nothing():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        until_s = time.monotonic() + 1.5
        while time.monotonic() < until_s:
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

def test_waits():
    time.sleep(1.5)
"""


def _causes(tmp_path, sample, *options):
    """Run a sample of tests; the seconds by cause of each."""
    (tmp_path / "test_sample.py").write_text(sample)
    path = tmp_path / "report.json"
    paths = os.pathsep.join(map(str, [TESTS, tmp_path]))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "support.time_by_cause", *options, str(tmp_path),
         "-o", "markers=cluster", "--rootdir", str(tmp_path)],
        env=os.environ | {"PYTHONPATH": paths, REPORT_VARIABLE: str(path)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    tests = json.loads(path.read_text())["tests"]
    return {name.partition("::")[2]: causes for name, causes in tests.items()}


def _main_causes(tests):
    return {name: max(causes, key=causes.get) for name, causes in tests.items()}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("options", [[], ["-n", "2"]], ids=["one", "two"])
def test_the_cause_is_what_the_processes_of_a_test_do(tmp_path, options):
    (tmp_path / "slow.py").write_text(SLOW)
    tests = _causes(tmp_path, SAMPLE, *options)
    assert _main_causes(tests) == {
        "test_waits": "waiting",
        "test_computes": "computing",
        "test_has_a_process_compute": "computing",
        "test_starts": "starting",
        "test_waits_for_pods": "pods",
    }
    for name, causes in tests.items():
        assert set(causes) == set(CAUSES)
        assert sum(causes.values()) > 1.3, name


def test_a_test_that_leaves_its_process_no_files_is_told_of_and_so_is_the_next(tmp_path):
    tests = _causes(tmp_path, WITHOUT_FILES, "-W", "error")
    assert _main_causes(tests) == {
        "test_computes_and_can_open_nothing": "computing",
        "test_waits": "waiting",
    }


def test_the_table_adds_up_by_folder_and_names_the_longest():
    def of(**seconds):
        return dict.fromkeys(CAUSES, 0.0) | seconds

    lines = list(table({
        "tests/a/test_x.py::one": of(starting=2.0, waiting=1.0),
        "tests/a/test_y.py::two": of(computing=4.0),
        "tests/b/test_z.py::three": of(pods=8.0),
    }))  # fmt: skip
    assert [line.split() for line in lines] == [
        ["tests", "starting", "computing", "pods", "waiting", "seconds"],
        ["tests/b", "1", "0", "0", "8", "0", "8"],
        ["tests/a", "2", "2", "4", "0", "1", "7"],
        ["all", "3", "2", "4", "8", "1", "15"],
        ["8.0", "s", "tests/b/test_z.py::three"],
        ["4.0", "s", "tests/a/test_y.py::two"],
        ["3.0", "s", "tests/a/test_x.py::one"],
    ]
