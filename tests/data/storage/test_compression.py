"""Compressed text and TFRecord files: the same records, read forward once."""

import bz2
import gzip
import lzma
import struct
import zlib

import numpy as np
import pytest
import zstandard
from support.formats import framed

from elastic.data import open_reader, storage
from elastic.data.base import ReadTask
from elastic.data.sources import as_content
from elastic.data.storage import DecompressedFile, LocalFile
from elastic.errors import DataError, JobSpecError

PACK = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
}


CONTENT = {
    "csv": b"a,b\n" + b"".join(b'%d,"x\n%d"\n' % (n, n) for n in range(300)),
    "tsv": b"a\tb\n" + b"".join(b"%d\t%d\n" % (n, n) for n in range(300)),
    "txt": b"".join(b"line %d\n" % n for n in range(300)),
    "tfrecord": b"".join(framed(b"r%d" % n) for n in range(300)),
}


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("suffix", CONTENT)
def test_the_same_records_as_uncompressed(tmp_path, read_all, suffix, packing):
    plain = tmp_path / f"a.{suffix}"
    plain.write_bytes(CONTENT[suffix])
    packed = tmp_path / f"b.{suffix}.{packing}"
    packed.write_bytes(PACK[packing](CONTENT[suffix]))
    records = read_all(packed)
    assert len(records) == 300
    assert records == read_all(plain)


@pytest.mark.parametrize(
    "pack", [gzip.compress, zlib.compress, bz2.compress], ids=["gzip", "zlib", "bz2"]
)
def test_compression_is_seen_without_a_suffix(tmp_path, read_all, pack):
    path = tmp_path / "train.tfrecord-00000-of-00001"
    path.write_bytes(pack(CONTENT["tfrecord"]))
    assert read_all(path)[:2] == [b"r0", b"r1"]


def test_a_length_that_looks_like_gzip_is_a_length(tmp_path, read_all):
    record = bytes(0x088B1F)
    path = tmp_path / "a.tfrecord"
    path.write_bytes(framed(record))
    assert path.read_bytes()[:3] == b"\x1f\x8b\x08"
    assert read_all(path) == [record]


def test_text_that_begins_like_zlib_is_text(tmp_path, read_all):
    path = tmp_path / "a.txt"
    path.write_bytes(b"x^2\nx\x01\n")
    assert read_all(path) == ["x^2", "x\x01"]


@pytest.mark.parametrize("size", [0, 4, 200_000])
@pytest.mark.parametrize("suffix", ["csv", "csv.zst"])
def test_zstd_may_begin_with_what_is_to_be_skipped(tmp_path, read_all, suffix, size):
    skipped = struct.pack("<II", 0x184D2A5E, size) + bytes(size)
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(skipped + PACK["zst"](b"1,2\n") + skipped + PACK["zst"](b"3,4\n") + skipped)
    assert read_all(path) == [("1", "2"), ("3", "4")]


@pytest.mark.parametrize("packing", PACK)
def test_several_streams_and_padding_are_one_content(tmp_path, read_all, packing):
    lines = [b"one\ntw", b"o\n", b"", b"three\n"]
    streams = [PACK[packing](part) for part in lines]
    padding = bytes(8) if packing in ("gz", "xz") else b""
    path = tmp_path / f"a.txt.{packing}"
    path.write_bytes(padding.join(streams) + padding)
    assert read_all(path) == ["one", "two", "three"]


@pytest.mark.parametrize("packing", PACK)
def test_any_position_reads_the_content(tmp_path, monkeypatch, packing):
    monkeypatch.setattr(storage, "HEAD_BYTES", 100)
    monkeypatch.setattr(storage, "POINT_BYTES", 5000)
    monkeypatch.setattr(storage, "MAX_POINTS", 5)
    monkeypatch.setattr(storage, "WINDOW_BYTES", 3000)
    monkeypatch.setattr(storage, "_READ_BYTES", 700)
    rng = np.random.default_rng(0)
    content = rng.integers(0, 30, 200_000, np.uint8).tobytes()
    path = tmp_path / f"a.{packing}"
    path.write_bytes(
        b"".join(PACK[packing](content[at : at + 60_000]) for at in range(0, 200_000, 60_000))
    )
    file = as_content(LocalFile(str(path)), None)
    for _ in range(100):
        offset, size = int(rng.integers(0, 201_000)), int(rng.integers(0, 9000))
        assert file.read_at(offset, size) == content[offset : offset + size]
    assert file.read_at(199_990, 100) == content[199_990:]
    assert len(file._points._points) <= 5


class CountingFile(LocalFile):
    """A file that counts the bytes that are read of it."""

    num_bytes = 0

    def read_at(self, offset, size_bytes):
        data = super().read_at(offset, size_bytes)
        self.num_bytes += len(data)
        return data


def big_text(path, packing):
    rng = np.random.default_rng(0)
    line = rng.integers(97, 123, (60_000, 200), np.uint8)
    line[:, -1] = 10
    path.write_bytes(PACK[packing](line.tobytes()))


@pytest.mark.parametrize("packing", ["gz", "zst"])
def test_tasks_in_order_decompress_the_file_once(tmp_path, packing):
    path = tmp_path / f"a.txt.{packing}"
    big_text(path, packing)
    reader = open_reader(str(path), 1000, {}, None)
    shards = reader.create_shards()
    assert len(shards) > 8
    worker = open_reader(str(path), 1000, {}, None)
    stored = CountingFile(str(path))
    worker._files._open_file = lambda name: as_content(stored, None)
    tasks = [
        ReadTask(shard, start, min(start + 1000, shard.end))
        for shard in shards
        for start in range(shard.start, shard.end, 1000)
    ]
    for task in tasks:
        assert len(list(worker.read_records(task))) == task.end - task.start
    assert stored.num_bytes < 1.1 * stored.size


def test_tasks_of_gzip_in_any_order_begin_at_a_point(tmp_path):
    path = tmp_path / "a.txt.gz"
    big_text(path, "gz")
    shards = open_reader(str(path), 1000, {}, None).create_shards()
    worker = open_reader(str(path), 1000, {}, None)
    stored = CountingFile(str(path))
    worker._files._open_file = lambda name: as_content(stored, None)
    list(worker.read_records(ReadTask(shards[-1], shards[-1].start, shards[-1].end)))
    before = stored.num_bytes
    shard = shards[-4]
    assert len(list(worker.read_records(ReadTask(shard, shard.start, shard.start + 1000)))) == 1000
    assert stored.num_bytes - before < stored.size / 2


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("suffix", CONTENT)
def test_truncation_and_damage_are_told(tmp_path, read_all, suffix, packing):
    content = np.random.default_rng(1).integers(97, 123, 300_000, np.uint8).tobytes()
    content = b"\n".join(content[at : at + 50] for at in range(0, len(content), 50))
    if suffix == "tfrecord":
        content = b"".join(framed(line) for line in content.split(b"\n"))
    packed = PACK[packing](content)
    path = tmp_path / f"cut.{suffix}.{packing}"
    path.write_bytes(packed[:-20])
    params = {"header": False} if suffix in ("csv", "tsv") else {}
    with pytest.raises(DataError, match=rf"cut\..* ends at byte {len(packed) - 20} amid its"):
        read_all(path, **params)
    if packing == "zst":
        return  # written without a checksum here, so most damage is for the format to see
    middle = len(packed) // 2
    path = tmp_path / f"bad.{suffix}.{packing}"
    path.write_bytes(packed[:middle] + bytes(40) + packed[middle + 40 :])
    with pytest.raises(
        DataError, match=r"bad\..* (is damaged: its .* data|so the file is damaged)"
    ):
        read_all(path, **params)


@pytest.mark.parametrize(
    ("name", "content", "params", "message"),
    [
        pytest.param(
            "a.csv.gz", b"1,2\n", {}, "does not begin as gzip data: it is damaged or not", id="name"
        ),
        pytest.param(
            "a.npz.gz", gzip.compress(b"x"), {}, "npz files are read by position", id="npz"
        ),
        pytest.param("a.txt.gz", gzip.compress(b""), {}, "holds no records", id="empty"),
        pytest.param(
            "a.txt", b"plain\n", {"compression": "gzip"}, "is damaged: its gzip data", id="forced"
        ),
    ],
)
def test_what_is_no_compressed_file(tmp_path, read_all, name, content, params, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_all(tmp_path / name, **params)


def test_compression_can_be_said(tmp_path, read_all):
    path = tmp_path / "a.txt"
    path.write_bytes(zlib.compress(b"a\nb\n"))
    assert read_all(path, compression="zlib") == ["a", "b"]
    path = tmp_path / "b.txt.gz"
    path.write_bytes(b"a\nb\n")
    assert read_all(path, compression="none") == ["a", "b"]
    with pytest.raises(JobSpecError, match="compression=gzp is unknown: did you mean gzip"):
        read_all(path, compression="gzp")


def test_two_threads_need_not_wait_for_each_other(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(bytes(1 << 20)))
    file = as_content(LocalFile(str(path)), None)
    assert isinstance(file, DecompressedFile)
    file.read_at(1 << 19, 10)
    cursor, file._cursor = file._cursor, None  # as while another thread reads
    assert file.read_at(1 << 19, 10) == bytes(10)
    assert file._cursor is not cursor
