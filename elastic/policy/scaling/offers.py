"""What each size of a job is worth to it, by what it and its like have shown.

Of jobs of the same program the next need not find out again what one has shown: a job is started
again and again, with other data or other settings that do not change how long a step takes. What
one was seen to do at a size the others would do there too.
"""

import bisect
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import fsum
from operator import truediv
from typing import Final, NamedTuple

from elastic.policy.cluster import (
    ElasticBatch,
    Gradients,
    Job,
    Placement,
    Shown,
    Speed,
    Telling,
)
from elastic.policy.scaling.speed import (
    FREE_TRIALS,
    OVERLAPS,
    Seen,
    SpeedModel,
    fit_all,
    measured,
    speeds_at,
)


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """The speeds of all jobs of one program, one for each size: the same object for the same."""

    speeds: tuple[Speed, ...]


@dataclass(frozen=True, slots=True)
class Alike:
    """What is known of programs that more than one job has or had, by their names.

    Attributes:
        pools: Of those that anybody has told speeds of.
        gradients: Of those of which anybody has measured gradients.
        noise_growths: Of those of which anybody has seen it: see `ElasticBatch`.
    """

    pools: Mapping[str, Pool] = field(default_factory=dict)
    gradients: Mapping[str, Gradients] = field(default_factory=dict)
    noise_growths: Mapping[str, float] = field(default_factory=dict)

    def pool_of(self, job: Job) -> Pool | None:
        """None where a job is of no program, or nobody has told speeds of it.

        None as well for one that chooses its batch, as long as no gradients are known: they decide
        what its sizes are worth.
        """
        if job.program is None:
            return None
        if job.telling.elastic_batch is not None and self.batch_of(job) is None:
            return None
        return self.pools.get(job.program)

    def batch_of(self, job: Job) -> ElasticBatch | None:
        """The batches of a job, by the gradients of its like until it has measured its own.

        How noise grows with the batch one sees a few times only, and all of its like together more
        often. None where it may not choose, or nothing is known to choose by.
        """
        batch, program = job.telling.elastic_batch, job.program
        if batch is None:
            return None
        if program is not None and program in self.noise_growths:
            batch = replace(batch, noise_growth=self.noise_growths[program])
        if batch.is_measured:
            return batch
        known = None if program is None else self.gradients.get(program)
        if known is None:
            return None
        return replace(batch, grad_sqr=known.sqr, grad_var=known.var / batch.min)


NOBODY: Final = Alike()

_POOLS: Final[dict[tuple[Speed, ...], Pool]] = {}
"""A pool is part of what is looked up for each of its jobs: compared by what it holds, that took
longer than a plan."""

_MOST_POOLS: Final = 1 << 14

_Size = tuple[int, int, int]
_Seen = tuple[list[float], list[float]]
"""Samples a second, and seconds of computing, as each job tells them."""


def alike_of(jobs: Iterable[Job], shown: Mapping[str, Shown]) -> Alike:
    """Gather what jobs of the same program tell.

    Args:
        jobs: All of the cluster.
        shown: By program, what others told that are over.
    """
    by_program: dict[str, list[Job]] = {}
    for job in jobs:
        if job.program is not None:
            by_program.setdefault(job.program, []).append(job)
    pools: dict[str, Pool] = {}
    gradients: dict[str, Gradients] = {}
    growths: dict[str, float] = {}
    for program, members in by_program.items():
        others = shown.get(program)
        # One that is the only one of its program has nothing to learn of others.
        if others is None and len(members) == 1:
            continue
        tellings = [*([others] if others else ()), *(job.telling for job in members)]
        if sizes := _gathered(tellings):
            pools[program] = _pool(sizes)
        if (least := _least_noisy(tellings)) is not None:
            gradients[program] = least
        if (growth := _noise_growth(tellings)) is not None:
            growths[program] = growth
    return Alike(pools, gradients, growths)


def shown_by(tellings: Iterable[Telling]) -> Shown:
    """What jobs of one program told, each size once."""
    told = tuple(tellings)
    return Shown(_speeds(_gathered(told)), _least_noisy(told), _noise_growth(told))


def _noise_growth(tellings: Iterable[Telling | Shown]) -> float | None:
    """In the mean of those that have seen it."""
    batches = (one if isinstance(one, Shown) else one.elastic_batch for one in tellings)
    found = [None if one is None else one.noise_growth for one in batches]
    growths = [each for each in found if each is not None]
    return _mean(growths) if growths else None


def _least_noisy(tellings: Iterable[Telling | Shown]) -> Gradients | None:
    """The gradients by which large batches are worth the least.

    Noise grows while a job trains, so that these are of the one that was nearest to its begin: the
    next one is at its own when it goes by them.
    """
    each = (one.gradients if isinstance(one, Shown) else _own_gradients(one) for one in tellings)
    known = [one for one in each if one is not None]
    return min(known, key=lambda one: (one.noise, one.sqr), default=None)


def _own_gradients(telling: Telling) -> Gradients | None:
    if telling.elastic_batch is None or telling.first_gradients is not None:
        return telling.first_gradients
    return telling.elastic_batch.gradients


def _gathered(tellings: Iterable[Telling | Shown]) -> dict[_Size, _Seen]:
    """What was seen, by size."""
    sizes: dict[_Size, _Seen] = {}
    for each in tellings:
        _note(sizes, each.speeds)
    return sizes


def _note(sizes: dict[_Size, _Seen], speeds: Iterable[Speed]) -> None:
    for each in speeds:
        if each.samples_per_s > 0 and each.replicas > 0:
            size = (each.replicas, max(1, each.nodes), each.global_batch_size or 0)
            rates, computing = sizes.setdefault(size, ([], []))
            rates.append(each.samples_per_s)
            if each.compute_s:
                computing.append(each.compute_s)


def _pool(sizes: Mapping[_Size, _Seen]) -> Pool:
    speeds = _speeds(sizes)
    found = _POOLS.get(speeds)
    if found is None:
        while len(_POOLS) >= _MOST_POOLS:
            del _POOLS[next(iter(_POOLS))]
        found = _POOLS[speeds] = Pool(speeds)
    return found


def _speeds(sizes: Mapping[_Size, _Seen]) -> tuple[Speed, ...]:
    return tuple(
        Speed(replicas, nodes, _mean(rates), batch or None, _mean(computing) if computing else None)
        for (replicas, nodes, batch), (rates, computing) in sorted(sizes.items())
    )


def _mean(values: list[float]) -> float:
    # The exact sum, so that nothing depends on the order in which jobs are listed.
    return fsum(values) / len(values)


# What each size of a job is worth: how fast it would be there, how much work it has left.
#
# Speeds are learned from the sizes it ran at (`speed`). How much work is left is known where the
# job tells it. Where it does not, it is guessed from what the job has had: most jobs are short, and
# one that has run long will run long.


EXPLORED: Final = 2
"""A job may grow to so many times the largest size it was seen at: beyond, its speed is a guess."""

FIRST_GUESS_S: Final = 4000.0
GUESS_FACTOR: Final = 4.0
"""Work of a job that does not tell it, in seconds of one replica: the first of 4,000, 16,000,
64,000, … that it has not had yet. Within one of these steps the oldest job comes first, so that
jobs do not take turns."""

BATCH_STEP: Final = 1.25
"""Ratio of neighbouring batches that are tried where the batch may be chosen."""

FINE_NODES: Final = 4
FINE_PARTS: Final = 4
"""On so many nodes sizes are tried in steps of this part of a node."""

TRIED_EFFICIENCY: Final = 0.6
"""What each sample of a batch has to be worth at the least, for the batch to be tried."""

BATCH_GAIN: Final = 0.02
"""By how much another batch has to be faster than the one in use."""


@dataclass(frozen=True, slots=True)
class Size:
    """One size of a job: samples a second there, and the batch for that, where it may be chosen."""

    replicas: int
    samples_per_s: float
    batch: int | None = None


class Sizes(NamedTuple):
    """Sizes of one job, as `Size` has each: a plan weighs very many, and few are ever chosen."""

    replicas: tuple[int, ...] = ()
    samples_per_s: tuple[float, ...] = ()
    batches: tuple[int | None, ...] = ()

    def at(self, place: int) -> Size:
        """One of them."""
        return Size(self.replicas[place], self.samples_per_s[place], self.batches[place])

    def up_to(self, replicas: int) -> "Sizes":
        """Those that are no larger, and the smallest be it larger or not."""
        end = max(1, bisect.bisect_right(self.replicas, replicas))
        return Sizes(self.replicas[:end], self.samples_per_s[:end], self.batches[:end])


class Offer(NamedTuple):
    """A job as the policy weighs it.

    Attributes:
        job: Whose.
        model: None where it was never seen to run, or tells no speed.
        elastic: Of its batches, where it may choose and something is known to choose by.
        sizes: That it can have, smallest first; empty without a model.
        remaining_samples: Known or guessed.
        work_s: The same in seconds of one replica, at the size that makes the most of each.
    """

    job: Job
    model: SpeedModel | None
    elastic: ElasticBatch | None
    sizes: Sizes
    remaining_samples: float
    work_s: float

    @property
    def is_seen(self) -> bool:
        """Whether it tells any speed."""
        return self.model is not None

    def speed_at(self, replicas: int, nodes: int) -> Size:
        """Speed at any size, on so many nodes."""
        assert self.model is not None
        return size_at(self.model, self.elastic, replicas, nodes)


class _Weighed(NamedTuple):
    """What the speeds of a job come to: for as long as it tells the same and has the same size.

    Attributes:
        least: Seconds of one replica for a sample, at the size that makes the most of each.
    """

    model: SpeedModel
    sizes: Sizes
    least: float


def offers_of(
    jobs: Sequence[Job], per_node: Sequence[int], now_s: float, alike: Alike = NOBODY
) -> list[Offer]:
    """Weigh jobs.

    Args:
        jobs: To be weighed.
        per_node: How many replicas of each an empty node holds, at least 1.
        now_s: The time.
        alike: What others of the same programs have shown.
    """
    told = [_told(job, most, alike) for job, most in zip(jobs, per_node, strict=True)]
    weighed = zip(jobs, told, _weighed(told), strict=True)
    return [_offer(job, each.elastic, found, now_s) for job, each, found in weighed]


def _offer(job: Job, elastic: ElasticBatch | None, weighed: _Weighed | None, now_s: float) -> Offer:
    if weighed is None:
        return Offer(job, None, elastic, Sizes(), 0.0, 0.0)
    least = weighed.least
    if job.telling.remaining_samples is not None:
        remaining = max(0.0, job.telling.remaining_samples)
        work_s = remaining * least
    else:
        # By way of samples two jobs of the same guess would differ by rounding, and take turns.
        work_s = _guess(_had_s(job, least, now_s))
        remaining = work_s / least
    return Offer(job, weighed.model, elastic, weighed.sizes, remaining, work_s)


class _Told(NamedTuple):
    """All that the speeds of a job are learned from, and the sizes that it can have."""

    seen: Seen
    elastic: ElasticBatch | None
    sizes: tuple[int, int, int]
    per_node: int
    pool: Pool | None


def _told(job: Job, per_node: int, alike: Alike) -> _Told:
    telling, workers = job.telling, job.workers
    low, high = workers.min, workers.max
    return _Told(
        Seen(telling.speeds, telling.global_batch_size, telling.max_local_batch),
        alike.batch_of(job),
        (low, min(high, max(low, workers.placed)), high),
        per_node,
        alike.pool_of(job),
    )


@dataclass(slots=True)
class _Entry:
    """What was looked up, and is the same for the same.

    Attributes:
        weighed: None as well where nobody has told a speed.
        is_known: Whether it was learned.
    """

    weighed: _Weighed | None = None
    is_known: bool = False


_WEIGHED: Final[dict[_Told, _Entry]] = {}
"""What a function of its key alone came to, since most jobs are the same at the next plan."""

_MOST_WEIGHED: Final = 1 << 16


def _weighed(told: Sequence[_Told]) -> list[_Weighed | None]:
    """All that nobody has asked for before are learned together, which is much quicker."""
    # Each is looked up once: that costs as much as to weigh it.
    found = [_WEIGHED.setdefault(each, _Entry()) for each in told]
    new = {
        id(entry): (each, entry)
        for each, entry in zip(told, found, strict=True)
        if not entry.is_known
    }
    learned = _learned([each for each, _ in new.values()])
    for (_, entry), weighed in zip(new.values(), learned, strict=True):
        entry.weighed, entry.is_known = weighed, True
    while len(_WEIGHED) > _MOST_WEIGHED:
        # The oldest: those of jobs that still run come back at once.
        del _WEIGHED[next(iter(_WEIGHED))]
    return [entry.weighed for entry in found]


def _learned(told: Sequence[_Told]) -> list[_Weighed | None]:
    """Of different ones."""
    learned: list[_Weighed | None] = [None] * len(told)
    for overlaps, is_elastic in ((OVERLAPS, False), (FREE_TRIALS, True)):
        places = [at for at, each in enumerate(told) if (each.elastic is not None) is is_elastic]
        alike = [told[at] for at in places]
        for at, weighed in zip(places, _weigh(alike, _models(alike, overlaps)), strict=True):
            learned[at] = weighed
    return learned


def _models(told: Sequence[_Told], overlaps: tuple[float, ...]) -> list[SpeedModel | None]:
    """Of each: of what all of its program have shown, where it has one."""
    shown: list[Seen] = []
    places: list[int] = []
    # Of those of no program none is looked up: to compare all that they have seen takes longer.
    of_programs: dict[object, int] = {}
    for each in told:
        own, place = each.seen, len(shown)
        if each.pool is None:
            shown.append(own)
        else:
            key = (each.pool, own.batch, own.max_local_batch)
            place = of_programs.setdefault(key, place)
            if place == len(shown):
                shown.append(Seen(each.pool.speeds, own.batch, own.max_local_batch))
        places.append(place)
    models = fit_all(shown, overlaps)
    return [_of_one(each, models[place]) for each, place in zip(told, places, strict=True)]


def _of_one(told: _Told, model: SpeedModel | None) -> SpeedModel | None:
    """Of one job, where the model is of all of its program."""
    if model is None or told.pool is None:
        return model
    own = measured(told.seen)
    return model if own is None else model.of_one(own)


def _weigh(told: Sequence[_Told], models: Sequence[SpeedModel | None]) -> list[_Weighed | None]:
    """Those that choose their batch one by one, all others at once."""
    sizes = [
        None if model is None else _sizes(*each.sizes, each.per_node, model.largest_seen)
        for each, model in zip(told, models, strict=True)
    ]
    plain = [
        (model, *at)
        for each, model, at in zip(told, models, sizes, strict=True)
        if model is not None and at is not None and each.elastic is None
    ]
    speeds = iter(speeds_at(*zip(*plain, strict=True)) if plain else ())
    weighed: list[_Weighed | None] = []
    for each, model, at in zip(told, models, sizes, strict=True):
        if model is None or at is None:
            weighed.append(None)
            continue
        replicas = at[0]
        if each.elastic is None:
            rates, batches = next(speeds), (None,) * len(replicas)
        else:
            best = (best_at(model, each.elastic, *size) for size in zip(*at, strict=True))
            rates, batches = zip(*best, strict=True)
        least = min(map(truediv, replicas, rates))
        weighed.append(_Weighed(model, Sizes(replicas, rates, batches), least))
    return weighed


@lru_cache(maxsize=4096)
def _sizes(
    low: int, now: int, high: int, per_node: int, largest_seen: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes within a few nodes, and those that fill more: others cross nodes for little.

    Returns:
        The sizes, and how many nodes each needs.
    """
    explored = -(-EXPLORED * largest_seen // per_node) * per_node
    top = max(low, min(high, explored))
    sizes = {low, now}
    small = min(per_node, top)
    sizes.update(range(low, small + 1, max(1, small // 8)))
    fine = min(FINE_NODES * per_node, top)
    sizes.update(range(small, fine + 1, max(1, per_node // FINE_PARTS)))
    nodes = 1
    while nodes * per_node <= top:
        sizes.add(nodes * per_node)
        # Whole nodes one by one, later in steps of about a tenth: beyond, sizes are nearly alike.
        nodes += max(1, nodes // 10)
    sizes.add(top)
    able = tuple(sorted(size for size in sizes if low <= size <= high))
    return able, tuple(-(-size // per_node) for size in able)


def size_at(model: SpeedModel, elastic: ElasticBatch | None, replicas: int, nodes: int) -> Size:
    """The speed at a size, with the batch that trains fastest there where it may be chosen."""
    return Size(replicas, *best_at(model, elastic, replicas, nodes))


def best_at(
    model: SpeedModel, elastic: ElasticBatch | None, replicas: int, nodes: int
) -> tuple[float, int | None]:
    """Samples a second at a size, and the batch for that: None where it may not be chosen."""
    if elastic is None:
        return model.samples_per_s(replicas, nodes), None
    best, chosen = 0.0, elastic.min
    batches = batches_of(elastic, replicas)
    if model.local_batches_seen < 2:
        # One batch says nothing of what a larger one saves, so one is tried that wastes little.
        useful = [batch for batch in batches if efficiency(elastic, batch) >= TRIED_EFFICIENCY]
        batches = useful[-1:] or batches[:1]
    for batch in batches:
        rate = model.samples_per_s(replicas, nodes, batch) * efficiency(elastic, batch)
        if rate > best:
            best, chosen = rate, batch
    return best, chosen


def batches_of(elastic: ElasticBatch, replicas: int) -> Sequence[int]:
    """Global batches to try: each replica has a sample, and `min` to `max` hold."""
    step = elastic.step
    low = max(elastic.min, replicas * step)
    if low >= elastic.max:
        return (elastic.max,)
    count = 1 + math.ceil(math.log(elastic.max / low) / math.log(BATCH_STEP))
    ratio = (elastic.max / low) ** (1 / (count - 1))
    return tuple(dict.fromkeys(step * round(low * ratio**i / step) for i in range(count)))


def efficiency(elastic: ElasticBatch, batch: int) -> float:
    """How much a sample of a batch advances training against one of the smallest batch, at most 1.

    Training with larger batches comes to where gradients differ more, so that noise measured at a
    small batch says too little of a large one: it is taken to have grown as it was seen to.

    Source:
        Johnson et al., "AdaScale SGD", ICML 2020; Qiao et al., "Pollux", OSDI 2021; of noise that
        depends on the batch, McCandlish et al., "An Empirical Model of Large-Batch Training", 2018.
    """
    scale, sqr, var = batch / elastic.min, elastic.grad_sqr, elastic.grad_var
    if elastic.noise_growth is not None and elastic.noise_growth > 0:
        var *= (batch / (elastic.measured_at or elastic.min)) ** min(1.0, elastic.noise_growth)
    total = var + sqr
    if total <= 0:
        return 1.0 / scale
    return total / (var / scale + sqr) / scale


def is_in_parts(job: Job) -> bool:
    """Whether a job has parts of GPUs: how much of which card is left is not weighed."""
    if job.workers.share is not None or (job.ps is not None and job.ps.share is not None):
        return True
    return bool(job.others) and any(group.share is not None for group in job.others)


def not_weighed(job: Job, alike: Alike = NOBODY) -> str | None:
    """Why a job gets a size without being weighed, for people; None if it is weighed."""
    if is_in_parts(job):
        return "has parts of GPUs: gets its smallest size"
    if any(each.samples_per_s > 0 and each.replicas > 0 for each in job.telling.speeds):
        return None
    if alike.pool_of(job) is not None:
        return None
    if job.workers.placed:
        return "tells no speed: keeps the size that it has"
    return "tells no speed: starts with what was asked for, within an equal share"


def may_be_stopped(job: Job) -> bool:
    """Whether a job may lose all that it has.

    One that tells nothing of its work is never stopped: stopped, it would seem to be new.
    """
    telling = job.telling
    is_told = telling.remaining_samples is not None or telling.trained_samples is not None
    return job.is_stoppable and is_told


def may_be_moved(job: Job) -> bool:
    """Whether workers that run may come to other nodes, which stops them for a moment."""
    return job.is_movable and may_be_stopped(job)


def _had_s(job: Job, least: float, now_s: float) -> float:
    """Seconds of one replica that a job has had: of its samples where it tells them.

    Else what its smallest size has done since it came, if it runs. That depends on nothing that a
    plan changes: a job that seemed to have had less after it was changed would come to its turn
    again, and be changed back.
    """
    if job.telling.trained_samples is not None:
        return job.telling.trained_samples * least
    return job.workers.min * max(0.0, now_s - job.submitted_s) if job.workers.placed else 0.0


def _guess(had_s: float) -> float:
    guess = FIRST_GUESS_S
    while guess <= had_s:
        guess *= GUESS_FACTOR
    return guess


def better_batch(offer: Offer, size: Size, placement: Placement) -> int | None:
    """The batch to change to at a size; None where the one in use does about as well."""
    if size.batch is None or offer.elastic is None or offer.model is None:
        return None
    in_use = offer.job.telling.global_batch_size
    if in_use is None or in_use == size.batch:
        return None if in_use == size.batch else size.batch
    nodes = max(1, len(placement))
    rate = offer.model.samples_per_s(size.replicas, nodes, in_use)
    gained = size.samples_per_s / (rate * efficiency(offer.elastic, in_use))
    return size.batch if gained > 1 + BATCH_GAIN else None


# Who comes first.


AGE_S: Final = 24 * 3600.0
"""A job that is so old is served as if it had half the work left."""


def rank(offer: Offer, share: float, now_s: float) -> tuple[float, float, str]:
    """For sorting: who has the least work left comes first, the older it is the sooner.

    Args:
        offer: The job.
        share: The part of the cluster that one replica takes.
        now_s: The time.
    """
    job = offer.job
    age_s = max(0.0, now_s - job.submitted_s)
    return (offer.work_s * share / (1 + age_s / AGE_S), job.submitted_s, job.key)
