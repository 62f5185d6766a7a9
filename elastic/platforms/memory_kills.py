"""How often the kernel has killed a process for memory, as the cgroup of this one counts it.

No import of ours: it is used by processes that must stay small.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

CGROUPS: Final = Path("/sys/fs/cgroup")


def own_counter(cgroups: Path = CGROUPS, own: Path = Path("/proc/self/cgroup")) -> Path | None:
    """The file that counts for the cgroup of this process; None where there is none."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return None
    return next((path for path in _candidates(cgroups, lines) if path.is_file()), None)


def _candidates(cgroups: Path, lines: list[str]) -> Iterator[Path]:
    """Of version 2, then of version 1.

    A container sees its own cgroup where a machine has its topmost, but may be told its path there.
    """
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield cgroups / path.lstrip("/") / "memory.events"
            yield cgroups / "memory.events"
        elif "memory" in controllers.split(","):
            yield cgroups / "memory" / path.lstrip("/") / "memory.oom_control"
            yield cgroups / "memory" / "memory.oom_control"


def count_kills(counter: Path | None) -> int:
    """Processes killed so far; 0 where nobody counts, as where the kernel is too old."""
    if counter is None:
        return 0
    try:
        text = counter.read_text()
    except OSError:
        return 0
    counts = dict(line.split(maxsplit=1) for line in text.splitlines() if " " in line)
    value = counts.get("oom_kill", "0").strip()
    return int(value) if value.isdecimal() else 0
