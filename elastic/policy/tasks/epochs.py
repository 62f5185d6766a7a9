"""Epochs: the order of their records, the sizes of their tasks, their updates, and how they end."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

MAX_EPOCHS: Final = 100
"""Remembered: the newest, which tell where training goes."""


def minibatches_of_epoch(num_records: int, minibatch_size: int, drop_last: bool) -> int:
    """Gradients of one epoch, of which only the last is of fewer records, or is left out."""
    num_whole, rest = divmod(num_records, minibatch_size)
    return num_whole + (rest > 0 and not drop_last)


def updates_of_job(
    num_minibatches: int, num_epochs: int, gradients_per_update: int, max_steps: int
) -> int:
    """Updates that a job makes of its gradients; the last group of an epoch may be a partial one.

    Args:
        num_minibatches: Of an epoch.
        num_epochs: Of the job.
        gradients_per_update: In a whole group; 1 where each is applied as it comes.
        max_steps: Updates after which training ends at the latest; 0 for no such end.
    """
    num_updates = num_epochs * -(-num_minibatches // gradients_per_update)
    return min(num_updates, max_steps) if max_steps else num_updates


@dataclass(frozen=True, slots=True)
class Ending:
    """Why training ended although records were left.

    Attributes:
        reason: One word for the job's status.
        message: What happened, for people.
    """

    reason: str
    message: str


def ending_at(max_steps: int, version: int) -> Ending | None:
    """What ends training after the update to `version`; None where it goes on.

    An update is applied whole, by one gradient or by many, so that this is exact in every mode.

    Args:
        max_steps: Updates of the job; 0 for as many as its epochs have.
        version: Updates applied so far.
    """
    if max_steps == 0 or version < max_steps:
        return None
    return Ending("MaxSteps", f"training ended after {version} updates: max_steps={max_steps}")


@dataclass(frozen=True, slots=True)
class EpochResult:
    """What one epoch came to.

    Attributes:
        epoch: Which one, from 0.
        version: Updates of the model at its end.
        records: Records that have counted in it.
        loss: Mean over these, each by the loss of its minibatch; NaN where there were none.
        seconds: What it took, without the time that a lost master cost.
        metrics: The user's metrics over these records, where the job wants them.
    """

    epoch: int
    version: int
    records: int
    loss: float
    seconds: float
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def logs(self) -> dict[str, float]:
        """What callbacks are told of the training records; no metric is called `loss`."""
        return {**self.metrics, "loss": self.loss}

    @property
    def samples_per_s(self) -> float:
        """Records that have counted per second; 0 where it took no time."""
        return self.records / self.seconds if self.seconds > 0 else 0.0


def remembered_epochs(
    history: Sequence[EpochResult], result: EpochResult
) -> tuple[EpochResult, ...]:
    """The history with one more."""
    return (*history, result)[-MAX_EPOCHS:]


# The order of an epoch: which record stands at which position.
#
# A pure function of the seed, the epoch and a few numbers that are part of every cut. Ledger,
# leases and reports name positions; whoever needs records asks here.
#
# Records that are cheap to read by themselves are shuffled over everything. Where reading needs
# chunks (row groups, blocks of text), chunks are shuffled, and then the records of many chunks
# together, which are a *window*:
#
#     records   0 1 2 | 3 4 5 | 6 7 8 | 9 …      chunks as they lie in the files
#     chunks    6 7 8   0 1 2 | 9 …   3 4 5      shuffled; windows of several
#     positions 1 7 0   8 6 2 | 4 …   9 3 5      records shuffled within each window


Numbers: TypeAlias = NDArray[np.int64]
Words: TypeAlias = NDArray[np.uint64]

ORDER_FORMAT: Final = 1
"""Of the permutation below: another one would give the rest of an epoch other records."""

ROUNDS: Final = 8
"""With 4, records that were neighbours came nearer to each other than in a random draw, and with 6
still in a few dozen records."""

MAX_TABLE: Final = 4096
"""Numbers of a permutation up to which all of them are looked up in one table."""

_SHIFT: Final = np.uint64(33)
_MULTIPLIERS: Final = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))
"""Of the finalizer of MurmurHash3, which mixes every bit of a number into every other."""

_AT_ONCE: Final = 1 << 13
"""Numbers whose steps stay within the cache of a core."""

_MAX_KEPT_HALF: Final = 15
"""Bits of a half for which what rounds make of it is kept: 2 MiB, for up to 2**30 records."""


class Shuffle(StrEnum):
    """What is put into another order in each epoch."""

    RECORDS = "records"
    TASKS = "tasks"
    """Ranges of records, each of which is read as it stands in the files."""
    NONE = "none"


def permute(places: Numbers, size: int, key: str) -> Numbers:
    """Put places `[0, size)` into an order of their own for each key.

    A Feistel network over the next even number of bits; what falls outside is sent through again
    until it falls inside. So nothing is stored, and no library's shuffle can change it. Key,
    rounds and multipliers are part of the format of cuts.

    Args:
        places: (n,) int64, each in [0, size).
        size: How many there are, >= 1.
        key: Of the order.

    Returns:
        (n,) int64, each in [0, size): a bijection of [0, size).
    """
    half = max(1, -(-(size - 1).bit_length() // 2))
    send: Callable[[Numbers], Numbers] = partial(_feistel, half=half, key=key)
    num_words = 1 << 2 * half
    if num_words <= min(MAX_TABLE, 4 * len(places)):
        # Calls would cost more than their few numbers, so all are sent through at once.
        send = send(np.arange(num_words)).__getitem__
    result = send(places)
    while (outside := np.flatnonzero(result >= size)).size:
        result[outside] = send(result[outside])
    return result


def _feistel(values: Numbers, half: int, key: str) -> Numbers:
    mixed = (_kept_mixed if half <= _MAX_KEPT_HALF else _mixed)(half, key)
    result = np.empty_like(values)
    for start in range(0, len(values), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        left, right = values[some] >> half, values[some] & ((1 << half) - 1)
        for number in range(ROUNDS):
            left ^= mixed(number, right)
            left, right = right, left
        left <<= half
        result[some] = left | right
    return result


def _mixed(half: int, key: str) -> Callable[[int, Numbers], Numbers]:
    """What each round makes of right halves."""
    keys = _round_keys(key)
    return lambda number, right: _through(right.astype(np.uint64) ^ keys[number], half)


@lru_cache(maxsize=8)
def _kept_mixed(half: int, key: str) -> Callable[[int, Numbers], Numbers]:
    """The same, looked up."""
    rights = np.arange(1 << half, dtype=np.uint64)
    tables = _through(rights ^ _round_keys(key)[:, np.newaxis], half)
    # In a mode that looks at no index twice; all are inside.
    return lambda number, right: tables[number].take(right, mode="clip")


def _through(values: Words, half: int) -> Numbers:
    """The lowest bits of MurmurHash3's finalizer; changes the values."""
    # Into memory that is there: new memory for each step would cost more than what is computed.
    shifted = np.empty_like(values)
    for multiplier in _MULTIPLIERS:
        values ^= np.right_shift(values, _SHIFT, out=shifted)
        values *= multiplier
    values ^= np.right_shift(values, _SHIFT, out=shifted)
    values &= np.uint64((1 << half) - 1)
    return values.view(np.int64)


def _round_keys(key: str) -> Words:
    digest = hashlib.blake2b(key.encode(), digest_size=8 * ROUNDS).digest()
    return np.frombuffer(digest, "<u8").astype(np.uint64)


@dataclass(frozen=True, slots=True)
class OrderForm:
    """What an order is made of, besides seed and epoch; part of every cut.

    Attributes:
        shuffle: What is shuffled.
        chunk: Records that stay together where tasks are shuffled.
        mixed: Chunks of a window at least, where records are.
        is_forward: Whether chunks come as they stand, since their source is read forward only.
    """

    shuffle: Shuffle
    chunk: int = 1
    mixed: int = 1
    is_forward: bool = False

    def as_json(self) -> dict[str, Any]:
        """For a cut."""
        return {
            "format": ORDER_FORMAT,
            "shuffle": self.shuffle.value,
            "chunk": self.chunk,
            "mixed": self.mixed,
            "is_forward": self.is_forward,
        }


class RecordOrder:
    """Which of `num_records` records stands at which position of an epoch."""

    def __init__(
        self, num_records: int, seed: int, form: OrderForm, chunks: Sequence[int] = ()
    ) -> None:
        """Keep the numbers that the order is made of.

        Args:
            num_records: Of an epoch.
            seed: Of the job.
            form: The kind of order.
            chunks: Where records are shuffled in chunks: the first record of each, from 0 on; none
                where each record can be read by itself.
        """
        self.num_records = num_records
        self.form = form
        self._seed = seed
        self._chunks = chunks
        self._epoch: tuple[int, _Layout] | None = None

    @property
    def has_chunks(self) -> bool:
        """Whether the order depends on how the data lies in chunks."""
        return len(self._chunks) > 0

    def with_chunk(self, chunk: int) -> "RecordOrder":
        """The same with other tasks to shuffle, as a cut has them."""
        return RecordOrder(self.num_records, self._seed, replace(self.form, chunk=chunk))

    def records(self, epoch: int, start: int, end: int) -> Numbers:
        """The records at positions `[start, end)` of an epoch.

        Returns:
            (end - start,) int64: counted over all of the data, from 0 on.
        """
        positions = np.arange(start, end, dtype=np.int64)
        if self.form.shuffle is Shuffle.NONE:
            return positions
        layout = self._layout(epoch)
        if self.form.shuffle is Shuffle.RECORDS:
            positions = layout.mix(positions, self._key(epoch, "window"))
        return layout.records(positions)

    def _layout(self, epoch: int) -> "_Layout":
        # Two threads may ask for different ones.
        held = self._epoch
        if held is None or held[0] != epoch:
            held = self._epoch = epoch, self._lay_out(epoch)
        return held[1]

    def _lay_out(self, epoch: int) -> "_Layout":
        form = self.form
        # Data of one window has the same order in every format.
        chunks = self._chunks if len(self._chunks) >= 2 * form.mixed else (0,)
        if form.shuffle is Shuffle.TASKS:
            chunks = range(0, self.num_records, form.chunk)
        starts: Numbers = np.asarray(chunks, dtype=np.int64)
        ranked = np.arange(len(starts), dtype=np.int64)
        if not form.is_forward:
            ranked = permute(ranked, len(starts), self._key(epoch, "chunks"))
        sizes = np.diff(starts, append=self.num_records)[ranked]
        begins = np.concatenate(([0], np.cumsum(sizes)))
        # As many windows as there can be, and all alike: a short one at the end would be a chunk.
        num_windows = max(1, len(starts) // form.mixed)
        ends = np.arange(num_windows + 1) * len(starts) // num_windows
        return _Layout(starts[ranked], begins, begins[ends])

    def _key(self, epoch: int, what: str) -> str:
        return f"{self._seed}/{epoch}/{what}"


@dataclass(frozen=True, slots=True)
class _Layout:
    """One epoch.

    Attributes:
        starts: The first record of each chunk, in the order of the chunks.
        begins: The position at which each begins, and that of the end.
        windows: The position at which each window begins, and that of the end.
    """

    starts: Numbers
    begins: Numbers
    windows: Numbers

    def mix(self, positions: Numbers, key: str) -> Numbers:
        """Shuffle positions within their windows; they are consecutive."""
        if not len(positions):
            return positions
        first, last = np.searchsorted(self.windows, positions[[0, -1]], side="right") - 1
        offset, parts = int(positions[0]), []
        for number, (begin, end) in enumerate(
            pairwise(self.windows[first : last + 2].tolist()), int(first)
        ):
            inside = positions[max(begin - offset, 0) : end - offset] - begin
            parts.append(permute(inside, end - begin, f"{key}/{number}") + begin)
        return np.concatenate(parts)

    def records(self, positions: Numbers) -> Numbers:
        """The records at positions of the shuffled chunks."""
        ranks = np.searchsorted(self.begins, positions, side="right") - 1
        return self.starts[ranks] + positions - self.begins[ranks]


# How many records a task has: enough work for every worker, and an end that none waits for.


LEAST_RECORDS: Final = 1000
"""Of a task, where there are enough: what is done once for each is then small beside them."""

LEAST_MINIBATCHES: Final = 8
"""The same where minibatches are large: what is done once for a task is shared by their steps."""

_TASKS_PER_WORKER: Final = 8
"""In an epoch, at least: who is slower than others then gets fewer of them."""

MAX_RECORDS: Final = 1 << 16
"""A task names each of its records in one message."""


def default_records_per_task(
    num_records: int, minibatch_size: int, num_workers: int, window: int = 0
) -> int:
    """The records of a task where the user names no number.

    Args:
        num_records: Of an epoch.
        minibatch_size: Records of a gradient.
        num_workers: The most that there may be.
        window: Records that are read together, in whatever order; 0 where that is each by itself.
            Tasks of a few windows have them read by one worker and not by all.

    Returns:
        A multiple of the minibatch, >= 1 of them.
    """
    fair = num_records // (_TASKS_PER_WORKER * max(1, num_workers))
    least = max(LEAST_RECORDS, LEAST_MINIBATCHES * minibatch_size, 4 * window)
    return whole_minibatches(min(fair, least), minibatch_size)


def whole_minibatches(num_records: int, minibatch_size: int) -> int:
    """The multiple of the minibatch that is at most so many records, and at least one minibatch."""
    num_records = min(num_records, max(MAX_RECORDS, minibatch_size))
    return max(1, num_records // minibatch_size) * minibatch_size


def cut_tasks(
    num_records: int, records_per_task: int, minibatch_size: int, num_workers: int
) -> list[int]:
    """Where the tasks of an epoch begin.

    Args:
        num_records: Of an epoch.
        records_per_task: At most, a multiple of `minibatch_size`.
        minibatch_size: Records of a gradient.
        num_workers: The most that there may be, where tasks become smaller towards the end of an
            epoch: the last ones are single minibatches, so that no worker waits longer for another
            one's. With 1 they do not.
    """
    starts, at = [], 0
    while at < num_records:
        starts.append(at)
        size = records_per_task
        if num_workers > 1:
            share = -(-(num_records - at) // (2 * num_workers))
            size = min(size, whole_minibatches(share, minibatch_size))
        at += size
    return starts


def idle_workers(num_tasks: int, num_minibatches: int, num_workers: int) -> str | None:
    """Say that some workers can have no work, and what would give it to them; None if all can.

    Args:
        num_tasks: Of an epoch.
        num_minibatches: Of an epoch.
        num_workers: The most that there may be.
    """
    if num_tasks >= num_workers:
        return None
    idle = num_workers - num_tasks
    of_all = f"{idle} of {num_workers} workers can have no work"
    if num_minibatches < num_workers:
        what = f"an epoch has {_count(num_minibatches, 'minibatch', 'minibatches')}"
        return f"{what}, so {of_all}: lower --num_workers, or --minibatch_size"
    what = f"an epoch has {_count(num_tasks, 'task', 'tasks')}"
    return f"{what}, so {of_all}: leave --records_per_task out, or lower it"


def _count(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}"
