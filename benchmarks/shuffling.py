"""Records read in a shuffled order, against the same records read as they stand in the files.

Each source is measured twice: as a worker's loop gets it, minibatches made by `dataset_fn` and
stacked, and its records alone, of which nothing is made. Where it holds columns, minibatches are
made by `batch_fn`, too. A new format is one entry of `SOURCES`.
"""

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.columns import write_npz, write_numbers, write_vectors
from benchmarks.measure import Bar, Ratio, Series, take_turns
from benchmarks.reading import write_lines, write_tfrecord
from benchmarks.sizes import Size
from elastic.data import open_reader
from elastic.data.base import Chunks, DataReader, ReadTask
from elastic.frameworks import load_framework
from elastic.platforms.process import keep_freed_memory
from elastic.policy.tasks.epochs import OrderForm, RecordOrder, Shuffle, default_records_per_task
from elastic.policy.tasks.records import Picks, Places, RecordRange, Task, TaskKind
from elastic.spec.model_def import ModelDef
from elastic.worker.batches import BatchStream

BAR: Final = Bar(first=0.5, goal=0.8)
MINIBATCH: Final = 32

MAX_IN_BATCHES: Final = 1 << 16
"""Records of an epoch that are made batches, which takes longer than reading them. To end within a
window makes the shuffled epoch the slower one: it has read all of its chunks."""

Example = tuple[Any, Any]
Consume = Callable[["Source", DataReader, Sequence[Task]], int]


@dataclass(frozen=True, slots=True)
class Source:
    """Data of one format.

    Attributes:
        name: For the table.
        path: Below a folder; a folder of its own where it ends in `/`.
        write: Writes about so many bytes of records.
        feed: What a `dataset_fn` makes of a record: as little as gives tensors.
        params: Reader parameters.
        share: Of the size, so that the windows of an epoch are several.
        feed_columns: What a `batch_fn` makes of the columns of a minibatch; None where it has none.
    """

    name: str
    path: str
    write: Callable[[Path, int], None]
    feed: Callable[[Any], Example]
    params: dict[str, Any] = field(default_factory=dict)
    share: float = 1
    feed_columns: Callable[[Any], Example] | None = None


def _write_images(folder: Path, size_bytes: int) -> None:
    from PIL import Image

    folder.mkdir()
    rng = np.random.default_rng(0)
    # Of what decodes to so many bytes, a tenth is enough to measure.
    for number in range(max(64, size_bytes // 10 // 12_288)):
        pixels = rng.integers(0, 256, (8, 8, 3), np.uint8).repeat(8, 0).repeat(8, 1)
        Image.fromarray(pixels).save(folder / f"{number:06}.jpg")


def _joined(columns: Any) -> Example:
    features = np.column_stack(list(columns.values())).astype(np.float32)
    return features, np.zeros(len(features))


def _bytes_of(record: bytes) -> Example:
    return np.frombuffer(bytearray(record), np.uint8), 0


SOURCES: Final = (
    Source(
        "npz, images of 12 KB", "a.npz", write_npz, lambda row: (row["image"], row["label"]),
        share=2, feed_columns=lambda columns: (columns["image"], columns["label"]),
    ),
    Source(
        "Parquet, vectors of 256 float32", "a.parquet", write_vectors,
        lambda row: (row["vector"], row["label"]), share=4,
        feed_columns=lambda columns: (columns["vector"], columns["label"]),
    ),
    Source(
        "Parquet, 10 numbers", "b.parquet", write_numbers,
        lambda row: (np.array(tuple(row.values())), 0), feed_columns=_joined,
    ),
    Source(
        "CSV of 20 columns", "a.csv", write_lines, lambda row: (np.array(row, np.float32), 0),
        {"header": False}, share=0.5, feed_columns=_joined,
    ),
    Source(
        "lines of 200 bytes", "a.txt", write_lines, lambda line: _bytes_of(line.encode()),
        share=0.5,
    ),
    Source("TFRecord of 1 KiB", "a.tfrecord", write_tfrecord, _bytes_of),
    Source(
        "images, JPEG of 64 x 64", "images/", _write_images, lambda row: (row["image"], 0)
    ),
)  # fmt: skip


def run(size: Size) -> list[Ratio]:
    """Every source, one after the other, from the page cache."""
    keep_freed_memory()
    import torch

    # Two that stack a minibatch would wait for each other longer than it takes one.
    torch.set_num_threads(1)
    return [ratio for source in SOURCES for ratio in measure(size, source)]


def measure(size: Size, source: Source) -> list[Ratio]:
    """One source, as a worker's loop gets it, also by columns, and its records alone."""
    few = size.rounds // 2 + 1
    ways: list[tuple[str, Consume, int]] = [("minibatches", _to_batches, few)]
    if source.feed_columns is not None:
        ways.append(("minibatches by columns", _to_column_batches, few))
    ways.append(("records alone", _alone, size.rounds))
    with tempfile.TemporaryDirectory(prefix="elastic-shuffling-") as folder:
        path = f"{folder}/{source.path}"
        source.write(Path(path), int(source.share * size.payload_mb * 10**6))
        opened = partial(open_reader, path, 1000, source.params, None)
        shuffled = _tasks(opened().create_chunks(), Shuffle.RECORDS)
        in_order = _tasks(Chunks(opened().create_shards()), Shuffle.NONE)
        return [
            _ratio(f"shuffled {what}, {source.name}", *take_turns(rounds, *(
                partial(_records_per_cpu_s, opened, tasks, partial(consume, source))
                for tasks in (shuffled, in_order)
            )))
            for what, consume, rounds in ways
        ]  # fmt: skip


def _ratio(name: str, ours: tuple[float, ...], theirs: tuple[float, ...]) -> Ratio:
    return Ratio(
        name,
        Series("an epoch with --shuffle records", "records/CPU s", ours),
        Series("with --shuffle none", "records/CPU s", theirs),
        BAR,
    )


def _tasks(chunks: Chunks, shuffle: Shuffle) -> list[Task]:
    """Those of an epoch of one worker, as the master hands them out."""
    places = Places(chunks.shards)
    form = OrderForm(shuffle, mixed=chunks.mixed or 1)
    firsts = () if chunks.mixed is None else places.firsts
    order = RecordOrder(places.num_records, 0, form, firsts)
    window = places.num_records * (chunks.mixed or 0) // len(places.shards)
    step = default_records_per_task(places.num_records, MINIBATCH, 1, window)
    tasks: list[Task] = []
    for start in range(0, places.num_records, step):
        end = min(start + step, places.num_records)
        picks = places.pick(order.records(0, start, end))
        records = RecordRange(0, start, end)
        tasks.append(
            Task(len(tasks), 0, TaskKind.TRAINING, 0, records, picks.shards[0], picks=picks)
        )
    return tasks


def _records_per_cpu_s(
    opened: Callable[[], DataReader],
    tasks: Sequence[Task],
    consume: Callable[[DataReader, Sequence[Task]], int],
) -> float:
    # A reader of its own for each epoch: what an earlier one has left is no more than a part of
    # data that is larger than what a process keeps.
    reader = opened()
    shard = tasks[0].shard
    # Headers are read, and libraries imported.
    list(reader.read_records(ReadTask(shard, shard.start, shard.start + 1)))
    # Of the processor: what else the machine does counts little.
    begun_s = time.process_time()
    count = consume(reader, tasks)
    return count / (time.process_time() - begun_s)


def _alone(_source: Source, reader: DataReader, tasks: Sequence[Task]) -> int:
    """A minibatch is kept until the next one is there, as by a step."""
    count, minibatch = 0, [None] * MINIBATCH
    for task in tasks:
        for record in reader.read_picks(_picks(task)):
            minibatch[count % MINIBATCH] = record
            count += 1
    return count


def _to_batches(source: Source, reader: DataReader, tasks: Sequence[Task]) -> int:
    """As a worker does: its thread reads, calls `dataset_fn` and stacks; a step takes no time."""

    def dataset_fn(dataset: Iterable[Any], _mode: str) -> Iterator[Example]:
        return map(source.feed, dataset)

    return _count(reader, tasks, dataset_fn=dataset_fn)


def _to_column_batches(source: Source, reader: DataReader, tasks: Sequence[Task]) -> int:
    """The same where the thread cuts minibatches out of columns and calls `batch_fn`."""
    feed = source.feed_columns
    assert feed is not None, "only what has columns is measured by them"

    def batch_fn(columns: dict[str, Any], _mode: str) -> Example:
        return feed(columns)

    return _count(reader, tasks, batch_fn=batch_fn)


def _count(reader: DataReader, tasks: Sequence[Task], **functions: Callable[..., Any]) -> int:
    # Batches need nothing else of a model.
    model_def = ModelDef(
        "", "torch", model=list, loss=list, optimizer=list, **{"dataset_fn": None} | functions
    )
    readers = {TaskKind.TRAINING: reader}
    stream = BatchStream(load_framework("torch"), model_def, MINIBATCH, readers)
    count = 0
    for task in tasks:
        if count >= MAX_IN_BATCHES:
            break
        with closing(stream.open(task)) as batches:
            for loaded in batches:
                count += loaded.result().num_examples
                batches.read_ahead()
    return count


def _picks(task: Task) -> Picks:
    assert task.picks is not None, "a task of training brings its records"
    return task.picks
