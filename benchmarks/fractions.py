"""The part of all cards that DRAGON gives out, whole and in parts, beside first and best fit.

It is the experiment of `benchmarks.shared_cards` on published nodes and pods, which are no part of
the project: without them there is nothing to measure.
"""

import os
import sys
from pathlib import Path
from statistics import fmean
from typing import Final

from benchmarks.measure import Bar, Ratio, Series
from benchmarks.shared_cards.columns import COLUMNS
from benchmarks.shared_cards.pods import PODS, Cards, made, read
from benchmarks.shared_cards.turnover import Turn, given_out, recorded, turns_of
from benchmarks.sizes import Size

TRACE: Final = "ELASTIC_TEST_CARDS"
"""Names the folder, where it is not `shared/traces/alibaba_gpu_2023` beside the project."""

FILLED_BAR: Final = Bar(first=0.99, goal=1.0)
TURNED_OVER_BAR: Final = Bar(first=1.0, goal=1.0)


def run(size: Size) -> list[Ratio]:
    """Have pods come and go, with other ones in each round."""
    cards = _cards(size)
    if cards is None:
        print(f"fractions is left out: {TRACE} names no published pods", file=sys.stderr)
        return []
    rounds = [turns_of(cards, size.card_turns, seed) for seed in range(size.card_rounds)]
    found = {name: [_parts(name, cards, turns) for turns in rounds] for name in COLUMNS}
    filled = {name: [100 * each[0] for each in parts] for name, parts in found.items()}
    later = {name: [100 * _settled(each) for each in parts] for name, parts in found.items()}
    once = {name: [100 * _parts(name, cards, recorded(cards))[0]] for name in COLUMNS}
    return [
        *_ratios("as recorded", once, None),
        *_ratios("filled", filled, FILLED_BAR),
        *_ratios("turned over", later, TURNED_OVER_BAR),
    ]


def _parts(name: str, cards: Cards, turns: list[Turn]) -> list[float]:
    return given_out(COLUMNS[name](cards.nodes), cards, turns)


def _settled(parts: list[float]) -> float:
    """The mean of the later half."""
    return fmean(parts[len(parts) // 2 :])


def _ratios(what: str, found: dict[str, list[float]], bar: Bar | None) -> list[Ratio]:
    series = {name: Series(name, "% of cards", tuple(parts)) for name, parts in found.items()}
    return [
        Ratio(f"fractions, {what}, dragon by {other}", series["dragon"], series[other], of)
        for other, of in (("first fit", bar), ("best fit", None))
    ]


def _cards(size: Size) -> Cards | None:
    if size.card_nodes is not None:
        return made(size.card_nodes, 0)
    places = [Path(os.environ[TRACE])] if TRACE in os.environ else []
    places += [each / "shared" / "traces" / "alibaba_gpu_2023" for each in Path(__file__).parents]
    folder = next((each for each in places if (each / PODS).is_file()), None)
    return None if folder is None else read(folder)
