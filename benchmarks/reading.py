"""Records read through the built-in readers, against reading the bytes of the same file whole.

A new format is one entry of `SOURCES`.
"""

import random
import struct
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.measure import Bar, Ratio, Series, take_turns
from benchmarks.sizes import Size
from elastic.data import open_reader
from elastic.data.base import ReadTask
from elastic.data.formats.tfrecord import masked_crc32c

TEXT_BAR: Final = Bar(first=0.3, goal=0.5)
COLUMNAR_BAR: Final = Bar(first=0.6, goal=0.9)

RECORDS_PER_TASK: Final = 1000


@dataclass(frozen=True, slots=True)
class Source:
    """A file of one format.

    Attributes:
        name: For the table.
        suffix: Of the file.
        write: Writes it, of about so many bytes.
        bar: None where the figure is for information.
        params: Reader parameters.
        is_shuffled: Whether tasks are read in a random order, as by a job, or as they stand.
    """

    name: str
    suffix: str
    write: Callable[[Path, int], None]
    bar: Bar | None = None
    params: dict[str, Any] = field(default_factory=dict)
    is_shuffled: bool = False


def write_lines(path: Path, size_bytes: int) -> None:
    """Lines of 200 bytes: twenty numbers, separated by commas."""
    rng = random.Random(0)
    rows = [[f"{rng.uniform(100, 1000):.5f}" for _ in range(20)] for _ in range(1000)]
    block = "".join(f"{','.join(row)}\n" for row in rows).encode()
    path.write_bytes(block * max(1, size_bytes // len(block)))


def write_tfrecord(path: Path, size_bytes: int) -> None:
    """Records of 1 KiB."""
    record = random.Random(0).randbytes(1024)
    length = struct.pack("<Q", len(record))
    checksums = [struct.pack("<I", masked_crc32c(part)) for part in (length, record)]
    framed = length + checksums[0] + record + checksums[1]
    path.write_bytes(framed * (size_bytes // len(framed)))


SOURCES: Final = (
    Source("lines of 200 bytes", "txt", write_lines, TEXT_BAR),
    Source("lines of 200 bytes, tasks shuffled", "txt", write_lines, is_shuffled=True),
    Source("CSV of 20 columns", "csv", write_lines, params={"header": False}),
    Source("TFRecord of 1 KiB", "tfrecord", write_tfrecord),
    Source("TFRecord of 1 KiB, tasks shuffled", "tfrecord", write_tfrecord, is_shuffled=True),
)


def run(size: Size) -> list[Ratio]:
    """Every source, one after the other."""
    return [measure_reading(size, source) for source in SOURCES]


def measure_reading(size: Size, source: Source) -> Ratio:
    """One source, from the page cache."""
    with tempfile.TemporaryDirectory(prefix="elastic-reading-") as folder:
        path = Path(folder) / f"data.{source.suffix}"
        source.write(path, size.payload_mb * 1_000_000)
        tasks = _tasks(path, source)
        gigabytes = path.stat().st_size / 1e9

        def read() -> float:
            # Made anew: a reader learns where records are.
            reader = open_reader(str(path), RECORDS_PER_TASK, source.params, None)
            begin_s = time.perf_counter()
            for task in tasks:
                deque(reader.read_records(task), maxlen=0)
            return gigabytes / (time.perf_counter() - begin_s)

        def read_raw() -> float:
            begin_s = time.perf_counter()
            path.read_bytes()
            return gigabytes / (time.perf_counter() - begin_s)

        ours, raw = take_turns(size.rounds, read, read_raw)
    return Ratio(
        f"reading, {source.name}",
        Series(f"records of tasks of {RECORDS_PER_TASK}", "GB/s", ours),
        Series("Path.read_bytes", "GB/s", raw),
        source.bar,
    )


def _tasks(path: Path, source: Source) -> list[ReadTask]:
    reader = open_reader(str(path), RECORDS_PER_TASK, source.params, None)
    tasks = [
        ReadTask(shard, start, min(start + RECORDS_PER_TASK, shard.end))
        for shard in reader.create_shards()
        for start in range(shard.start, shard.end, RECORDS_PER_TASK)
    ]
    if source.is_shuffled:
        random.Random(0).shuffle(tasks)
    return tasks
