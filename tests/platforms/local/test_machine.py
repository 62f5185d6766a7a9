"""The cores that a process may use, by affinity and limits, and the GPUs of each worker."""

import os
import subprocess
import sys

import pytest

from elastic.platforms.local.processes import own_gpus, usable_cores

ALL = len(os.sched_getaffinity(0))


def cores(tmp_path, own, **files):
    """With these control groups: their own file, and the files of others by path."""
    (tmp_path / "own").write_text(own)
    for name, text in files.items():
        path = tmp_path / "groups" / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return usable_cores(tmp_path / "groups", tmp_path / "own")


def test_without_any_limit_they_are_those_it_is_bound_to(tmp_path):
    assert usable_cores(tmp_path, tmp_path / "nothing") == ALL
    assert cores(tmp_path, "0::/\n", cpu_dot_max="max 100000\n") == ALL


def test_a_process_that_is_bound_to_one_core_has_one():
    program = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
        "from elastic.platforms.local.processes import usable_cores; print(usable_cores())"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert ended.stdout.strip() == b"1"


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("100000 100000", 1),
        ("20000 100000", 1),
        (f"{ALL}00000 100000", ALL),
        ("9900000 100000", ALL),
    ],
)
def test_a_limit_of_its_container_counts(tmp_path, limit, expected):
    assert cores(tmp_path, "0::/\n", cpu_dot_max=limit) == expected


def test_the_narrowest_of_the_groups_around_it_counts(tmp_path):
    own = "0::/outer/inner\n"
    assert cores(tmp_path, own, outer__inner__cpu_dot_max="max 100000") == ALL
    assert cores(tmp_path, own, outer__cpu_dot_max="50000 50000") == 1


def test_control_groups_of_the_first_version(tmp_path):
    own = "4:memory:/elsewhere\n2:cpu,cpuacct:/docker/0123\n0::/\n"
    files = {"cpu,cpuacct__cpu_dot_cfs_period_us": "100000\n"}
    assert cores(tmp_path, own, **files) == ALL
    assert cores(tmp_path, own, **files, **{"cpu,cpuacct__cpu_dot_cfs_quota_us": "-1\n"}) == ALL
    assert cores(tmp_path, own, **files, **{"cpu,cpuacct__cpu_dot_cfs_quota_us": "90000\n"}) == 1


@pytest.mark.parametrize("text", ["", "nonsense", "1 0", "-5 100000", "1 nonsense"])
def test_what_cannot_be_read_is_no_limit(tmp_path, text):
    assert cores(tmp_path, "0::/\n", cpu_dot_max=text) == ALL


def gpus_of_all(tmp_path, num_gpus, num_workers, visible=None):
    """With so many devices, and others that are no GPUs."""
    for name in ("nvidiactl", "nvidia-uvm", "null", *(f"nvidia{i}" for i in range(num_gpus))):
        (tmp_path / name).touch()
    return [own_gpus(index, num_workers, visible, tmp_path) for index in range(num_workers)]


@pytest.mark.parametrize(
    ("num_gpus", "num_workers", "expected"),
    [
        (0, 2, [None, None]),
        (1, 2, [None, None]),
        (2, 1, [None]),
        (2, 2, ["0", "1"]),
        (2, 3, ["0", "1", "0"]),
        (4, 2, ["0,1", "2,3"]),
        (8, 3, ["0,1", "2,3", "4,5"]),
        (12, 12, [str(number) for number in range(12)]),
    ],
)
def test_each_worker_has_gpus_of_its_own(tmp_path, num_gpus, num_workers, expected):
    assert gpus_of_all(tmp_path, num_gpus, num_workers) == expected


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("6, 3", ["6", "3"]),
        ("GPU-8f3e,GPU-11aa", ["GPU-8f3e", "GPU-11aa"]),
        ("5", [None, None]),
        ("5,-1,6", [None, None]),
        ("-1", [None, None]),
        ("", [None, None]),
    ],
)
def test_they_are_of_those_that_the_user_names(tmp_path, visible, expected):
    assert gpus_of_all(tmp_path, 8, 2, visible) == expected


def test_without_devices_there_are_none(tmp_path):
    assert own_gpus(0, 2, None, tmp_path / "nothing") is None
