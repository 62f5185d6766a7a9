"""Ratios as tables for people and as JSON, with the machine they were measured on."""

import importlib.metadata
import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.measure import Bar, Ratio

HEADER: Final = ("ratio", "numerator", "denominator", "median [min, max]", "first", "goal", "met")
LIBRARIES: Final = ("numpy", "grpcio", "protobuf", "torch", "tensorflow-cpu", "keras")
RESULTS: Final = Path(__file__).parent / "RESULTS.md"
JSON_RESULTS: Final = Path(__file__).parent / "results.json"


def describe_machine() -> dict[str, str]:
    """What the figures depend on, beside the code."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "cpu": _cpu_model(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "load before": f"{os.getloadavg()[0]:.2f}",
        "python": platform.python_version(),
        **{name: version for name in LIBRARIES if (version := _version(name))},
    }


def rows(ratios: Sequence[Ratio]) -> list[tuple[str, ...]]:
    """The cells of a table, one row a ratio."""
    return [
        (
            ratio.name,
            f"{ratio.numerator.median:.4g} {ratio.numerator.unit}",
            f"{ratio.denominator.median:.4g} {ratio.denominator.unit}",
            f"{ratio.median:.2f} [{min(ratio.ratios):.2f}, {max(ratio.ratios):.2f}]",
            _bar_text(ratio.bar, "first"),
            _bar_text(ratio.bar, "goal"),
            ratio.verdict,
        )
        for ratio in ratios
    ]


def text_table(ratios: Sequence[Ratio]) -> str:
    """Columns for a terminal, and the notes below."""
    table = [HEADER, *rows(ratios)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
    return "\n".join([*lines, *_notes(ratios)])


def markdown_section(ratios: Sequence[Ratio], machine: Mapping[str, str], command: str) -> str:
    """A section for RESULTS.md."""
    sides = [f"- {r.name}: {r.numerator.what} ÷ {r.denominator.what}" for r in ratios]
    return "\n".join(
        [
            f"## {machine['date']}{', a quick look' if '--quick' in command else ''}",
            "",
            f"`{command}`, {_rounds(ratios)} rounds, on "
            + ", ".join(f"{key} {value}" for key, value in machine.items() if key != "date"),
            "",
            "| " + " | ".join(HEADER) + " |",
            "| " + " | ".join("---" for _ in HEADER) + " |",
            *("| " + " | ".join(row) + " |" for row in rows(ratios)),
            "",
            *sides,
            *_notes(ratios),
            "",
        ]
    )


def save(ratios: Sequence[Ratio], machine: Mapping[str, str], command: str) -> None:
    """Append a run to RESULTS.md and to results.json."""
    with RESULTS.open("a") as file:
        file.write("\n" + markdown_section(ratios, machine, command))
    runs: list[Any] = json.loads(JSON_RESULTS.read_text()) if JSON_RESULTS.exists() else []
    runs.append({"machine": machine, "command": command, "ratios": [asdict(r) for r in ratios]})
    JSON_RESULTS.write_text(json.dumps(runs, indent=1) + "\n")


def _notes(ratios: Sequence[Ratio]) -> list[str]:
    return [f"- {ratio.name}: {ratio.note}" for ratio in ratios if ratio.note]


def _rounds(ratios: Sequence[Ratio]) -> str:
    counts = sorted({len(ratio.ratios) for ratio in ratios})
    return " or ".join(map(str, counts))


def _bar_text(bar: Bar | None, name: str) -> str:
    if bar is None:
        return "-"
    value = bar.first if name == "first" else bar.goal
    return f"{'≤' if bar.is_ceiling else '≥'} {value:g}"


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
