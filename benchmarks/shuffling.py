"""Records read in a shuffled order, against the same records read as they stand in the files.

A new format is one entry of `SOURCES`.
"""

import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.columns import write_npz, write_numbers, write_vectors
from benchmarks.measure import Bar, Ratio, Series, take_turns
from benchmarks.reading import write_lines, write_tfrecord
from benchmarks.sizes import Size
from elastic.data import open_reader
from elastic.data.base import Chunks, ReadTask
from elastic.policy.order import OrderForm, RecordOrder, Shuffle
from elastic.policy.records import Picks, Places
from elastic.policy.task_sizes import default_records_per_task
from elastic.worker.memory import keep_freed_memory

BAR: Final = Bar(first=0.5, goal=0.8)
MINIBATCH: Final = 32


@dataclass(frozen=True, slots=True)
class Source:
    """Data of one format.

    Attributes:
        name: For the table.
        path: Below a folder; a folder of its own where it ends in `/`.
        write: Writes about so many bytes of records.
        params: Reader parameters.
    """

    name: str
    path: str
    write: Callable[[Path, int], None]
    params: dict[str, Any] = field(default_factory=dict)


def _write_images(folder: Path, size_bytes: int) -> None:
    from PIL import Image

    folder.mkdir()
    rng = np.random.default_rng(0)
    # Of what decodes to so many bytes, a tenth is enough to measure.
    for number in range(max(64, size_bytes // 10 // 12_288)):
        pixels = rng.integers(0, 256, (8, 8, 3), np.uint8).repeat(8, 0).repeat(8, 1)
        Image.fromarray(pixels).save(folder / f"{number:06}.jpg")


SOURCES: Final = (
    Source("npz, images of 12 KB", "a.npz", write_npz),
    Source("Parquet, vectors of 256 float32", "a.parquet", write_vectors),
    Source("Parquet, 10 numbers", "b.parquet", write_numbers),
    Source("CSV of 20 columns", "a.csv", write_lines, {"header": False}),
    Source("lines of 200 bytes", "a.txt", write_lines),
    Source("TFRecord of 1 KiB", "a.tfrecord", write_tfrecord),
    Source("images, JPEG of 64 x 64", "images/", _write_images),
)


def run(size: Size) -> list[Ratio]:
    """Every source, one after the other, from the page cache."""
    keep_freed_memory()
    return [_measure(size, source) for source in SOURCES]


def _measure(size: Size, source: Source) -> Ratio:
    with tempfile.TemporaryDirectory(prefix="elastic-shuffling-") as folder:
        path = f"{folder}/{source.path}"
        source.write(Path(path), size.payload_mb * 10**6)
        chunks = open_reader(path, 1000, source.params, None).create_chunks()
        shuffled, in_order = _picks_of(chunks), _tasks_of(path, source)
        ways = (open_reader(path, 1000, source.params, None) for _ in range(2))
        by_picks, by_ranges = ways

        def read_shuffled() -> float:
            return _records_per_s(map(by_picks.read_picks, shuffled))

        def read_in_order() -> float:
            return _records_per_s(map(by_ranges.read_records, in_order))

        ours, theirs = take_turns(size.rounds, read_shuffled, read_in_order)
    return Ratio(
        f"shuffled records, {source.name}",
        Series("an epoch with --shuffle records", "records/s", ours),
        Series("with --shuffle none", "records/s", theirs),
        BAR,
    )


def _picks_of(chunks: Chunks) -> list[Picks]:
    """The tasks of an epoch of one worker, as the master hands them out."""
    places = Places(chunks.shards)
    form = OrderForm(Shuffle.RECORDS, mixed=chunks.mixed or 1)
    firsts = () if chunks.mixed is None else places.firsts
    order = RecordOrder(places.num_records, 0, form, firsts)
    window = places.num_records * (chunks.mixed or 0) // len(places.shards)
    step = default_records_per_task(places.num_records, MINIBATCH, 1, window)
    starts = range(0, places.num_records, step)
    spans = [(start, min(start + step, places.num_records)) for start in starts]
    return [places.pick(order.records(0, *span)) for span in spans]


def _tasks_of(path: str, source: Source) -> list[ReadTask]:
    shards = open_reader(path, 1000, source.params, None).create_shards()
    return [
        ReadTask(shard, start, min(start + 1000, shard.end))
        for shard in shards
        for start in range(shard.start, shard.end, 1000)
    ]


def _records_per_s(tasks: Iterable[Iterable[Any]]) -> float:
    """A minibatch is kept until the next one is there, as by a step."""
    count, minibatch = 0, [None] * MINIBATCH
    begun_s = time.perf_counter()
    for records in tasks:
        for record in records:
            minibatch[count % MINIBATCH] = record
            count += 1
    return count / (time.perf_counter() - begun_s)
