"""How jobs share room: what the work of each is worth, and the sizes that are worth most together.

A second in which `n` jobs are not done adds `n` seconds to the sum of their completion times. Where
they make the most of the room, the work done in that second takes just as much off what is to come:

    most over all sizes of  (sum over jobs of worth of a sample x samples a second)  =  n

The job with the most work left is alone when all others are done, so that the equation for one job
says what its samples are worth, that for two what those of the next are, and so on. The sizes are
those for which the sum is greatest; a price for room finds them, which each job pays for what it
takes. So the first to end gets the most, but no more than it makes better use of than others.

Source:
    The equation is that of dynamic programming (Hamilton, Jacobi, Bellman) for this problem. For
    jobs of one kind, whose speed grows as a power of their size, its solution is that of Berg,
    Vesilo, Harchol-Balter, "heSRPT: Optimal Parallel Scheduling of Jobs With Known Sizes", 2019.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from elastic.policy.scaling.offers import Sizes

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]

KEEP: Final = 0.02
"""By how much another size has to be better than the one that a job has, beside what it costs."""

SETTLED_S: Final = 300.0
"""A change has to pay for itself in as long as a job has kept its size, at the least in this."""

LEAST_S: Final = 1.0
"""A job that is about to end has so much work left at the least."""

WEIGHED_APART: Final = 256
"""Of more jobs each so many are weighed with those next to them."""

_PRICES: Final = 200
_LOWEST: Final = 1e-4
"""Prices that are tried, down to this part of the highest."""

_PRECISE: Final = 1e-4
_FILLED: Final = 64
"""What the price leaves over goes to so many jobs at most."""

_ROUNDING: Final = 1e-9


class Sharer(NamedTuple):
    """A job that shares room with others.

    Attributes:
        sizes: That it can have.
        share: The part of the cluster that one replica takes.
        beside: That what else it needs to start takes.
        placed: Replicas that it has.
        remaining_samples: Known or guessed.
        rescale_s: What a change costs it.
        settled_s: In how long a change has to pay for itself; infinite for a job that starts.
        may_wait: Whether it may be left with nothing.
    """

    sizes: Sizes
    share: float
    beside: float
    placed: int
    remaining_samples: float
    rescale_s: float
    settled_s: float
    may_wait: bool


class Target(NamedTuple):
    """What a job is to have.

    Attributes:
        place: Of its sizes; None for nothing.
        value: What that is worth: seconds, of all jobs together, for each second.
        worth_s: The same for one of its samples.
        price: What each of its replicas costs, in seconds for each second.
    """

    place: int | None
    value: float
    worth_s: float
    price: float

    def value_of(self, sharer: Sharer, samples_per_s: float, *, stays: bool) -> float:
        """What any size is worth, where the job is already or to which it comes."""
        if stays:
            return self.worth_s * samples_per_s * (1 + KEEP)
        seconds = max(LEAST_S, sharer.remaining_samples / samples_per_s)
        cost_s = sharer.rescale_s * max(1.0, seconds / sharer.settled_s)
        return self.worth_s * samples_per_s * (seconds / (seconds + cost_s))


def targets_of(
    sharers: Sequence[Sharer], room: float, worths_s: Sequence[float] | None = None
) -> list[Target]:
    """Share room.

    Args:
        sharers: The jobs, those with the least work left first.
        room: The part of the cluster that they have together.
        worths_s: What a sample of each is worth, where that is known: see `Target`.
    """
    if not sharers:
        return []
    room = max(room, _ROUNDING)
    table = _Table.of(sharers)
    worths = _worths(table, room) if worths_s is None else np.array(worths_s)
    values = worths[:, np.newaxis] * table.useful
    places, price = _best(values, table, room)
    of_places = np.where(places < 0, 0.0, values[np.arange(len(places)), places])
    return [
        Target(None if place < 0 else place, value, worth, price * sharer.share)
        for place, value, worth, sharer in zip(
            places.tolist(), of_places.tolist(), worths.tolist(), sharers, strict=True
        )
    ]


class _Table(NamedTuple):
    """Jobs in rows, their sizes in columns; all is 0 where a job has no more sizes.

    Attributes:
        shares: (jobs, sizes), the part of the cluster that a size takes.
        rates: (jobs, sizes), samples a second.
        useful: (jobs, sizes), those that come of it: see `Target.value_of`.
        may_wait: (jobs,).
    """

    shares: Floats
    rates: Floats
    useful: Floats
    may_wait: Flags

    @classmethod
    def of(cls, sharers: Sequence[Sharer]) -> "_Table":
        """Lay them out."""
        lengths = np.array([len(each.sizes.replicas) for each in sharers])
        there = np.arange(int(lengths.max())) < lengths[:, np.newaxis]
        replicas = np.zeros(there.shape)
        replicas[there] = _flat([each.sizes.replicas for each in sharers])
        rates = np.zeros(there.shape)
        rates[there] = _flat([each.sizes.samples_per_s for each in sharers])
        share, beside, placed, remaining, rescale_s, settled_s = (
            np.array(column, dtype=float)[:, np.newaxis]
            for column in zip(*(each[1:7] for each in sharers), strict=True)
        )
        seconds = np.maximum(LEAST_S, remaining / np.where(there, rates, np.inf))
        cost_s = rescale_s * np.maximum(1.0, seconds / settled_s)
        useful = rates * (seconds / (seconds + cost_s))
        np.multiply(rates, 1 + KEEP, out=useful, where=replicas == placed)
        may_wait = np.array([each.may_wait for each in sharers])
        shares = np.where(there, replicas * share + beside, 0.0)
        return cls(shares, rates, useful, may_wait)


def _flat(rows: Sequence[Sequence[float]]) -> Floats:
    return np.fromiter(chain.from_iterable(rows), np.float64)


def _worths(table: _Table, room: float) -> Floats:
    """(jobs,), of a sample: by the module's equation, from the last job to the first."""
    jobs = len(table.shares)
    stride = -(-jobs // WEIGHED_APART)
    # With all of the room shared out, no price is above what all jobs gain by it.
    prices = np.concatenate(([0.0], np.geomspace(_LOWEST, 1.05, _PRICES))) * (jobs / room)
    # By the duality of linear programming, the most there is to gain is the least, over all
    # prices, of what the room costs and what jobs gain at that price beyond what they pay.
    most = prices * room
    worths = np.empty(jobs)
    for last in range(jobs, 0, -stride):
        first = max(0, last - stride)
        some = slice(first, last)
        one = (first + last) // 2
        at = table.rates[one] > 0
        shares, rates = table.shares[one, at], table.rates[one, at]
        paid = np.multiply.outer(prices, shares)
        gain = (jobs - first - most) / (last - first)
        needed = ((gain[:, np.newaxis] + paid) / rates).min(axis=1)
        best = int(needed.argmax())
        worths[some] = _needed(table.shares[some], table.rates[some], gain[best], prices[best])
        gained = (needed[best] * rates - paid).max(axis=1)
        if table.may_wait[one]:
            np.maximum(gained, 0.0, out=gained)
        most += (last - first) * gained
    return worths


def _needed(shares: Floats, rates: Floats, gain: float, price: float) -> Floats:
    """(jobs,), worths at which jobs gain so much beyond what they pay."""
    costs = np.full(rates.shape, np.inf)
    np.divide(gain + price * shares, rates, out=costs, where=rates > 0)
    least: Floats = costs.min(axis=1)
    return least


def _best(values: Floats, table: _Table, room: float) -> tuple[Places, float]:
    """(jobs,), the sizes that are worth most together and fit, -1 for none; the room's price.

    Args:
        values: (jobs, sizes), what each is worth a second.
        table: The jobs.
        room: To be shared.
    """
    there = table.rates > 0
    first = np.where(table.may_wait, 0.0, -np.inf)[:, np.newaxis]
    values = np.hstack((first, np.where(there, values, -np.inf)))
    shares = np.hstack((np.zeros_like(first), table.shares))
    rows, room = np.arange(len(values)), room * (1 + _ROUNDING)

    def at(price: float) -> Places:
        return np.asarray((values - price * shares).argmax(axis=1))

    def takes(places: Places) -> float:
        return float(shares[rows, places].sum())

    low, high, places = 0.0, 0.0, at(0.0)
    # Those that may not wait have their least, be there room for it or not.
    room = max(room, float(shares[~table.may_wait, 1].sum()))
    if takes(places) > room:
        high = len(values) / room
        while takes(places := at(high)) > room:
            low, high = high, 2 * high
        while high - low > _PRECISE * high:
            middle = (low + high) / 2
            tried = at(middle)
            if takes(tried) > room:
                low = middle
            else:
                high, places = middle, tried
    return _filled(values, shares, places, room - takes(places)) - 1, high


def _filled(values: Floats, shares: Floats, places: Places, left: float) -> Places:
    """(jobs,), the places of larger sizes where what is left has room for them."""

    def use(some: Places) -> Floats:
        """(jobs, sizes), what each further share of the room is worth, 0 where there is none."""
        rows, now = np.arange(len(some))[:, np.newaxis], places[some][:, np.newaxis]
        of_values, of_shares = values[some], shares[some]
        more = of_shares - of_shares[rows, now]
        gained = np.where(np.isfinite(of_values), of_values - of_values[rows, now], 0.0)
        fits = (more > 0) & (more <= left) & (gained > 0)
        return np.divide(gained, more, out=np.zeros_like(more), where=fits)

    best = use(np.arange(len(places))).max(axis=1)
    some = np.argsort(-best, kind="stable")[:_FILLED]
    while True:
        found = use(some)
        at, place = divmod(int(found.argmax()), found.shape[1])
        if found[at, place] <= 0:
            return places
        job = some[at]
        left -= float(shares[job, place] - shares[job, places[job]])
        places[job] = place
