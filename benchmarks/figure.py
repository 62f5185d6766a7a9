"""Draws `docs/kills.svg` from `docs/kills.json`: `python -m benchmarks.figure`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

from benchmarks.kills import RESULT

PICTURE: Final = RESULT.with_suffix(".svg")
WIDTH: Final = 960
LEFT: Final = 64
RIGHT: Final = 24
PANEL: Final = 150
"""Height of a plot."""
HEAD: Final = 64
"""Height above a plot: its title, and what was killed."""
FOOT: Final = 74
"""Height below it: the axis, and what came of the run."""
COLOURS: Final = ("#2b6cb0", "#68a0d8", "#b3d1ee")
KILL: Final = "#c53030"
INK: Final = "#2d3748"
PALE: Final = "#718096"
STEP_S: Final = 10


def draw(result: Mapping[str, Any]) -> str:
    """The whole picture."""
    runs = {name: result[name] for name in ("elastic", "torchrun")}
    seconds = max(len(next(iter(run["records_per_s"].values()))) for run in runs.values())
    most = max(map(_most, runs.values()))
    height = len(runs) * (HEAD + PANEL + FOOT)
    body = [
        part
        for index, (name, run) in enumerate(runs.items())
        for part in _panel(name, run, HEAD + index * (HEAD + PANEL + FOOT), seconds, most)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" font-family="Helvetica, Arial, sans-serif" '
            f'font-size="13" fill="{INK}">',
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            *body,
            "</svg>\n",
        ]
    )


def _most(run: Mapping[str, Any]) -> int:
    """The most records that all workers together had in a second."""
    return max(map(sum, zip(*run["records_per_s"].values(), strict=True)))


def _panel(name: str, run: Mapping[str, Any], top: int, seconds: int, most: int) -> Iterator[str]:
    """One run: its title, its plot with the kills, and what came of it."""
    bottom = top + PANEL
    per_s = (WIDTH - LEFT - RIGHT) / seconds
    per_record = PANEL / most
    titles = {
        "elastic": "elastic: three workers, and a master that restarts",
        "torchrun": "torchrun --max-restarts: three ranks, and an agent that a loop starts again",
    }
    yield _text(LEFT, top - 38, titles[name], size=15, weight="bold")
    yield _text(WIDTH - RIGHT, top - 38, "records a second, by worker", anchor="end", fill=PALE)
    yield from _axes(top, seconds, most, per_s, per_record)
    for second, parts in enumerate(zip(*run["records_per_s"].values(), strict=True)):
        at = float(bottom)
        for part, colour in zip(parts, COLOURS, strict=True):
            high = part * per_record
            at -= high
            if part:
                yield (
                    f'<rect x="{LEFT + second * per_s:.1f}" y="{at:.1f}" width="{per_s:.2f}" '
                    f'height="{high:.1f}" fill="{colour}"/>'
                )
    for kill in run["kills"]:
        x = LEFT + kill["at_s"] * per_s
        yield (
            f'<line x1="{x:.1f}" y1="{top - 16}" x2="{x:.1f}" y2="{bottom}" stroke="{KILL}" '
            'stroke-width="1.5" stroke-dasharray="4 3"/>'
        )
        what = f"{_named(kill['who'], name)} killed"
        yield _text(x + 4, top - 5, what, fill=KILL, size=12)
    for number, line in enumerate(_account(run)):
        yield _text(LEFT, bottom + 38 + 18 * number, line)


def _axes(top: int, seconds: int, most: int, per_s: float, per_record: float) -> Iterator[str]:
    bottom = top + PANEL
    for value in range(0, most + 1, 200):
        y = bottom - value * per_record
        yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#e2e8f0"/>'
        yield _text(LEFT - 8, y + 4, str(value), anchor="end", fill=PALE, size=12)
    for second in range(0, seconds + 1, STEP_S):
        x = LEFT + second * per_s
        yield _text(x, bottom + 17, f"{second} s", anchor="middle", fill=PALE, size=12)


def _named(who: Sequence[str], run: str) -> str:
    """Who was killed, in words."""
    if list(who) == ["master"]:
        return "master" if run == "elastic" else "agent"
    numbers = [name.rpartition("-")[2] for name in who]
    word = "worker" if run == "elastic" else "rank"
    return f"{word}{'s' * (len(numbers) > 1)} {', '.join(numbers)}"


def _account(run: Mapping[str, Any]) -> Iterator[str]:
    """What came of a run, in short lines."""
    idle_s = sum(not sum(parts) for parts in zip(*run["records_per_s"].values(), strict=True))
    yield (
        f"{run['records']:,} records in {run['seconds']:.0f} s, {idle_s} s of them without a step; "
        f"{run['computed_again']:,} records computed again"
    )
    if run["audit"]:
        yield f"its own audit: {run['audit']}"


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", fill: str = INK, size: int = 13,
    weight: str = "normal",
) -> str:  # fmt: skip
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" font-size="{size}" '
        f'font-weight="{weight}">{escape(text)}</text>'
    )


def main() -> None:
    PICTURE.write_text(draw(json.loads(RESULT.read_text())))


if __name__ == "__main__":
    main()
