"""Columnar files read as records, against reading their bytes and against what decodes them."""

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.measure import Bar, Ratio, Series, take_turns
from benchmarks.sizes import Size
from elastic.data import open_reader
from elastic.data.base import ReadTask

BAR: Final = Bar(first=0.6, goal=0.9)
RECORDS_PER_TASK: Final = 1024
BLOCK_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """Files of one kind.

    Attributes:
        name: For people.
        suffix: Of the file.
        write: Writes so many bytes of records to a path.
        has_bar: Whether its records are large enough for a bar: a dict of a few numbers costs far
            more than their bytes, in any reader that gives records one by one.
    """

    name: str
    suffix: str
    write: Callable[[Path, int], None]
    has_bar: bool = True


def write_npz(path: Path, num_bytes: int) -> None:
    images = _noise(num_bytes // 12_288, (64, 64, 3))
    np.savez(path, image=images, label=np.arange(len(images)))


def _write_blobs(path: Path, num_bytes: int) -> None:
    blobs = [row.tobytes() for row in _noise(num_bytes // 12_288, (12_288,))]
    _write_table(path, {"data": blobs, "label": range(len(blobs))})


def write_vectors(path: Path, num_bytes: int) -> None:
    import pyarrow as pa

    values = np.random.default_rng(0).random(num_bytes // 4, np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(values[: len(values) // 256 * 256]), 256)
    _write_table(path, {"vector": vectors, "label": range(len(vectors))})


def write_numbers(path: Path, num_bytes: int) -> None:
    columns = {
        f"x{index}": np.random.default_rng(index).random(num_bytes // 80) for index in range(10)
    }
    _write_table(path, columns)


def _write_table(path: Path, columns: dict[str, Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(columns)
    rows = max(1, table.num_rows * (8 << 20) // table.nbytes)
    pq.write_table(table, path, row_group_size=rows, use_dictionary=False)


def _noise(length: int, shape: tuple[int, ...]) -> Any:
    # Does not shrink when it is compressed: the bytes of the file are those of the records.
    return np.random.default_rng(0).integers(0, 256, (length, *shape), np.uint8)


SOURCES: Final = (
    Source("npz, images of 12 KB", ".npz", write_npz),
    Source("parquet, bytes of 12 KB", ".parquet", _write_blobs),
    Source("parquet, vectors of 256 float32", ".parquet", write_vectors),
    Source("parquet, 10 numbers", ".parquet", write_numbers, has_bar=False),
)


def run(size: Size) -> list[Ratio]:
    """Bytes of a file read as records a second, by those read as bytes, and as Arrow's tables."""
    with tempfile.TemporaryDirectory(prefix="elastic-bench-") as folder:
        return [ratio for source in SOURCES for ratio in _measure(size, Path(folder), source)]


def _measure(size: Size, folder: Path, source: Source) -> list[Ratio]:
    path = folder / f"{source.name.replace(' ', '-')}{source.suffix}"
    source.write(path, size.payload_mb * 10**6)
    is_decoded = source.suffix == ".parquet"
    measures = [partial(_records_gb_s, path), partial(_raw_gb_s, path)]
    measures += [partial(_tables_gb_s, path)] if is_decoded else []
    records, raw, *tables = take_turns(size.rounds, *measures)
    numerator = Series("records of tasks, in order", "GB/s", records)
    bar = BAR if source.has_bar else None
    by_bytes = Ratio(
        f"records of {source.name}, by bytes",
        numerator,
        Series(f"bytes of the file, {BLOCK_BYTES >> 20} MiB at a time", "GB/s", raw),
        None if is_decoded else bar,
    )
    by_tables = [
        Ratio(
            f"records of {source.name}, by Arrow",
            numerator,
            Series("row groups decoded by Arrow alone, one thread", "GB/s", values),
            bar,
        )
        for values in tables
    ]
    return [by_bytes, *by_tables]


def _records_gb_s(path: Path) -> float:
    """As a worker does: a fresh reader, task by task, each record taken once."""
    reader = open_reader(str(path), RECORDS_PER_TASK, {"cache_mb": 0}, None)
    (shard,) = reader.create_shards()
    count = 0
    start_s = time.perf_counter()
    for start in range(0, shard.end, RECORDS_PER_TASK):
        task = ReadTask(shard, start, min(start + RECORDS_PER_TASK, shard.end))
        count += sum(1 for _ in reader.read_records(task))
    taken_s = time.perf_counter() - start_s
    assert count == shard.end, "every record is read once"
    return path.stat().st_size / taken_s / 1e9


def _tables_gb_s(path: Path) -> float:
    import pyarrow.parquet as pq

    start_s = time.perf_counter()
    file = pq.ParquetFile(path, pre_buffer=False)
    for group in range(file.num_row_groups):
        file.read_row_group(group, use_threads=False)
    return path.stat().st_size / (time.perf_counter() - start_s) / 1e9


def _raw_gb_s(path: Path) -> float:
    start_s = time.perf_counter()
    descriptor = os.open(path, os.O_RDONLY)
    try:
        while os.read(descriptor, BLOCK_BYTES):
            pass
    finally:
        os.close(descriptor)
    return path.stat().st_size / (time.perf_counter() - start_s) / 1e9
