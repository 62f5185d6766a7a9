"""A task costs what it holds, and finding the shards costs about a read of the file."""

import csv
import os
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from elastic.data import open_reader
from elastic.data.base import ReadTask
from elastic.data.formats import scan
from elastic.data.storage import MAX_OPEN_FILES, LocalFile, OpenFiles
from elastic.errors import DataError

# Of this thread: another may have been left by a test before, and read as well.
COUNTERS = Path("/proc/thread-self/io")
needs_counters = pytest.mark.skipif(
    not COUNTERS.exists(), reason="this system does not count the bytes that a thread reads"
)


def bytes_read():
    return int(COUNTERS.read_text().split("rchar: ")[1].split()[0])


def cost_of(reader, shard, start, end):
    before = bytes_read()
    records = list(reader.read_records(ReadTask(shard, start, end)))
    assert len(records) == end - start
    return bytes_read() - before


NUM_TRIES = 20
SLACK_BYTES = 4096
"""The counters' own text, and a few bytes to check where a shard begins."""


@pytest.fixture(scope="module")
def csv_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("cost") / "a.csv"
    line = "0.123,4.567,8.901,text,17\n"
    path.write_text(line * ((16 << 20) // len(line)))
    return path


@needs_counters
@pytest.mark.parametrize("params", [{"header": False}, {"format": "lines"}], ids=["csv", "lines"])
def test_a_task_of_text_reads_at_most_its_shard(csv_file, params):
    shards = open_reader(str(csv_file), 100, params, None).create_shards()
    assert len(shards) == 16
    worker = open_reader(str(csv_file), 100, params, None)
    shard = shards[9]
    cost_of(worker, shard, shard.start, shard.start + 1)  # the header is looked for once
    head = cost_of(worker, shard, shard.start, shard.start + 100)
    assert head <= scan.READ_BLOCK_BYTES + SLACK_BYTES
    tail = cost_of(worker, shard, shard.end - 100, shard.end)
    assert tail <= scan.SHARD_BYTES + 2 * scan.READ_BLOCK_BYTES + SLACK_BYTES


@needs_counters
@pytest.mark.parametrize("params", [{"header": False}, {"format": "lines"}], ids=["csv", "lines"])
def test_what_was_passed_once_is_found_again(csv_file, params):
    shards = open_reader(str(csv_file), 100, params, None).create_shards()
    worker = open_reader(str(csv_file), 100, params, None)
    shard = shards[9]
    cost_of(worker, shard, shard.start, shard.end)
    for start in (shard.end - 100, shard.start + 20_000, shard.start + 5_000):
        assert cost_of(worker, shard, start, start + 100) <= 2 * scan.READ_BLOCK_BYTES + SLACK_BYTES


@needs_counters
def test_tasks_in_order_read_little_twice(csv_file):
    shards = open_reader(str(csv_file), 10_000, {"format": "lines"}, None).create_shards()
    worker = open_reader(str(csv_file), 10_000, {"format": "lines"}, None)
    cost = sum(
        cost_of(worker, shard, start, min(start + 10_000, shard.end))
        for shard in shards
        for start in range(shard.start, shard.end, 10_000)
    )
    assert cost < 1.2 * csv_file.stat().st_size


@needs_counters
def test_a_task_of_large_records_reads_little_more_than_them(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(f"{'x' * 99_999}\n" * 200)
    shards = open_reader(str(path), 20, {}, None).create_shards()
    assert [shard.num_records for shard in shards] == [20] * 10
    worker = open_reader(str(path), 20, {}, None)
    cost = cost_of(worker, shards[5], shards[5].start, shards[5].end)
    # The first block only shows that no line ends in it.
    assert cost <= 20 * 100_000 + 3 * scan.READ_BLOCK_BYTES + SLACK_BYTES


@needs_counters
@pytest.mark.parametrize("suffix", ["npz", "npy"])
def test_a_task_of_arrays_reads_its_rows(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    x = np.arange(1 << 21, dtype=np.float32).reshape(-1, 256)
    np.save(path, x) if suffix == "npy" else np.savez(path, x=x, y=x[:, 0])
    reader = open_reader(str(path), 10, {}, None)
    (shard,) = reader.create_shards()
    cost_of(reader, shard, 0, 1)
    row_bytes = 1024 if suffix == "npy" else 1028
    assert cost_of(reader, shard, 5000, 5100) <= 100 * row_bytes + SLACK_BYTES


@pytest.mark.parametrize("folder", [None, "/dev/shm"], ids=["disk", "memory"])
def test_of_rows_that_are_not_at_hand_the_system_is_told_what_lies_around(
    tmp_path, folder, monkeypatch
):
    """Each alone would be a request to a disk; file systems that cannot say so are told as well."""
    if folder and not os.access(folder, os.W_OK):
        pytest.skip(f"{folder} is not there")
    content = np.random.default_rng(0).bytes(4 << 20)
    # Where a busy core holds up the reading, what is read ahead for one row may be there before the
    # next is asked for: then once more.
    for _ in range(NUM_TRIES):
        asked = told_of(content, folder or tmp_path, monkeypatch)
        if len(asked) >= 4:
            break
    assert len(asked) >= 4
    assert all(length >= 256 << 10 for _, length in asked)


def told_of(content, folder, monkeypatch):
    """What the system is told while rows of a file are read of which nothing is in memory."""
    asked = []
    with tempfile.NamedTemporaryFile(dir=folder) as written:
        written.write(content)
        written.flush()
        os.fsync(written.fileno())
        os.posix_fadvise(written.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        advise = os.posix_fadvise
        monkeypatch.setattr(
            os, "posix_fadvise", lambda fd, *args: asked.append(args[:2]) or advise(fd, *args)
        )
        file = LocalFile(written.name)
        size = 12_288
        offsets = np.random.default_rng(1).permutation(len(content) // size)[:100] * size
        buffer = bytearray(size * len(offsets))
        spans = [(place * size, offset) for place, offset in enumerate(offsets.tolist())]
        file.read_rows(memoryview(buffer), spans, size)
        monkeypatch.undo()
    assert bytes(buffer) == b"".join(content[offset : offset + size] for _, offset in spans)
    return asked


@needs_counters
def test_a_compressed_archive_is_decompressed_once(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.random.default_rng(0).random((1 << 12, 64)))
    reader = open_reader(str(path), 10, {}, None)
    (shard,) = reader.create_shards()
    assert cost_of(reader, shard, 0, 10) > path.stat().st_size // 2
    assert cost_of(reader, shard, 100, 110) <= SLACK_BYTES


def test_tiny_tasks_do_not_make_a_shard_each(csv_file):
    shards = open_reader(str(csv_file), 1, {"header": False}, None).create_shards()
    assert sum(shard.num_records for shard in shards) > 600_000
    assert len(shards) <= 16


def fastest(action, times=3):
    """CPU seconds, so that other processes of the machine count little."""
    taken = []
    for _ in range(times):
        start = time.process_time()
        action()
        taken.append(time.process_time() - start)
    return min(taken)


def test_finding_shards_is_near_raw_reading(csv_file):
    def read():
        with csv_file.open("rb", buffering=0) as file:
            while file.read(1 << 17):
                pass

    def parse():
        with csv_file.open(newline="") as file:
            for _ in csv.reader(file):
                pass

    lines = open_reader(str(csv_file), 1000, {"format": "lines"}, None)
    rows = open_reader(str(csv_file), 1000, {"header": False}, None)
    read_s, lines_s, rows_s = (
        fastest(read),
        fastest(lines.create_shards),
        fastest(rows.create_shards),
    )
    # From memory, where reading itself costs almost nothing; disks are slower than the scan.
    assert lines_s < 15 * read_s
    assert rows_s < 40 * read_s
    assert rows_s < fastest(parse, times=1) / 3


def test_few_files_stay_open_and_all_stay_readable(tmp_path):
    for index in range(3 * MAX_OPEN_FILES):
        (tmp_path / f"{index:03}.txt").write_text(f"{index}\n")

    def num_open():
        """Of these files: other threads open and close what they look at."""
        names = []
        for descriptor in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):
                names.append(str(descriptor.readlink()))
        return sum(name.startswith(str(tmp_path)) for name in names)

    reader = open_reader(str(tmp_path), 1, {}, None)
    shards = reader.create_shards()
    for _ in range(2):
        read = [next(iter(reader.read_records(ReadTask(shard, 0, 1)))) for shard in shards]
        assert read == [str(index) for index in range(3 * MAX_OPEN_FILES)]
    assert 0 < num_open() <= MAX_OPEN_FILES
    del reader
    assert num_open() == 0


def test_two_threads_share_a_reader(tmp_path):
    for index in range(8):
        (tmp_path / f"{index}.txt").write_text("".join(f"{index}:{n}\n" for n in range(500)))
    reader = open_reader(str(tmp_path), 10, {}, None)
    reader._files = OpenFiles(capacity=2)
    shards = reader.create_shards()
    wrong = []

    def read(seed):
        order = np.random.default_rng(seed)
        for _ in range(300):
            shard = shards[order.integers(len(shards))]
            start = int(order.integers(490))
            expected = [f"{shard.name[-5]}:{n}" for n in range(start, start + 10)]
            if list(reader.read_records(ReadTask(shard, start, start + 10))) != expected:
                wrong.append((shard, start))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("name", ["a.csv", "a.txt", "a.npy"])
def test_a_file_that_changes_is_noticed(tmp_path, name):
    path = tmp_path / name

    def fill(count):
        if name == "a.npy":
            np.save(path, np.arange(count))
        else:
            path.write_text("1,2\n" * count)

    fill(1000)
    reader = open_reader(str(path), 10, {}, None)
    (shard,) = reader.create_shards()
    task = ReadTask(shard, 900, 910)
    assert len(list(reader.read_records(task))) == 10
    size = path.stat().st_size
    fill(500)
    with pytest.raises(
        DataError, match=f"went from {size} to {path.stat().st_size} bytes while the job reads it"
    ):
        list(reader.read_records(task))
    fill(1000)
    os.utime(path, ns=(0, 10**18))
    with pytest.raises(DataError, match="was written to while the job reads it"):
        list(reader.read_records(task))
    path.unlink()
    with pytest.raises(DataError, match="cannot be read"):
        list(reader.read_records(task))


@pytest.mark.parametrize("name", ["a.csv", "a.txt", "a.npy"])
def test_a_file_truncated_in_the_middle_of_a_task(tmp_path, name):
    path = tmp_path / name
    if name == "a.npy":
        np.save(path, np.arange(4_000_000))
    else:
        path.write_text("1,2\n" * 1_000_000)
    reader = open_reader(str(path), 1_000_000, {}, None)
    (shard,) = reader.create_shards()
    records = reader.read_records(ReadTask(shard, 0, shard.num_records))
    next(records)
    os.truncate(path, 100_000)
    with pytest.raises(
        DataError, match=r"ends at byte 100000, but bytes \[\d+, \d+\) were there when"
    ):
        list(records)
