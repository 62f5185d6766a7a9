"""What of the machine a process may use: its cores, and which of the GPUs."""

import math
import os
import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Final

DEVICES: Final = Path("/dev")
GPU_DEVICE: Final = re.compile(r"nvidia\d+")
NO_GPU: Final = "-1"
CGROUPS: Final = Path("/sys/fs/cgroup")
OWN_CGROUPS: Final = Path("/proc/self/cgroup")
NO_LIMIT: Final = ("max", "-1")


def usable_cores(cgroups: Path = CGROUPS, own_cgroups: Path = OWN_CGROUPS) -> int:
    """Those that it is bound to (taskset, a cpuset), and at most what its container may take.

    `os.cpu_count` tells those of the machine: who computes with 64 threads on the 2 cores of a
    container takes several times as long as with 2.

    Args:
        cgroups: Where the system's control groups are mounted.
        own_cgroups: Says which are this process's.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    bound = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return max(1, min([bound, *map(math.ceil, _quotas(cgroups, own_cgroups))]))


def own_gpus(
    index: int, num_workers: int, visible: str | None, devices: Path = DEVICES
) -> str | None:
    """The GPUs of one worker of several on this machine, as `CUDA_VISIBLE_DEVICES` names them.

    Each has as many as there are for each, and takes the first of its own; where there are more
    workers than GPUs, some share one.

    Args:
        index: Of the worker.
        num_workers: How many there are at most.
        visible: What the variable says now; None where it is not set.
        devices: Where the system has its devices.

    Returns:
        None where there is nothing to choose from, so that the variable stays as it is.
    """
    every = _names_of(devices) if visible is None else _told(visible)
    if len(every) < 2 or num_workers < 2:
        return None
    each = max(1, len(every) // num_workers)
    first = index * each % len(every)
    return ",".join(every[first : first + each])


def _names_of(devices: Path) -> list[str]:
    """Those that this container has, counted as CUDA counts them."""
    try:
        found = [each for each in devices.iterdir() if GPU_DEVICE.fullmatch(each.name)]
    except OSError:
        return []
    return [str(number) for number in range(len(found))]


def _told(visible: str) -> list[str]:
    """As CUDA reads it: up to the first that there cannot be."""
    names = [each.strip() for each in visible.split(",")]
    return list(takewhile(lambda name: name not in ("", NO_GPU), names))


def _quotas(cgroups: Path, own_cgroups: Path) -> list[float]:
    """The cores that each control group around this process may take, where it has such a limit."""
    try:
        lines = own_cgroups.read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, own = line.split(":", 2)
        if not controllers:
            found += list(_of_version_2(cgroups, own))
        elif "cpu" in controllers.split(","):
            found += list(_of_version_1(cgroups / controllers, own))
    return found


def _of_version_2(mounted: Path, own: str) -> Iterator[float]:
    for group in _around(mounted, own):
        quota, *period = _words(group / "cpu.max")
        if period:
            yield from _cores(quota, period[0])


def _of_version_1(mounted: Path, own: str) -> Iterator[float]:
    for group in _around(mounted, own):
        quota, period = (_words(group / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
        yield from _cores(quota[0], period[0])


def _around(mounted: Path, own: str) -> list[Path]:
    """A group and those that it is part of.

    In a container its own may be the root of what is mounted, and named as outside of it.
    """
    path = PurePosixPath(own.lstrip("/"))
    return [mounted / each for each in (path, *path.parents)]


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split() or [""]
    except OSError:
        return [""]


def _cores(quota: str, period: str) -> Iterator[float]:
    if quota in NO_LIMIT or not quota.isdigit() or not period.isdigit() or not int(period):
        return
    yield int(quota) / int(period)
