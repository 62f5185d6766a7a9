"""Remote files: a web server process, and fsspec's file systems of this machine."""

import gzip
import io
import os
import subprocess
import sys
from pathlib import Path

import fsspec
import numpy as np
import pytest
from PIL import Image
from support.formats import framed, go_recordio
from support.range_server import served

from elastic.data import open_reader, remote
from elastic.data.base import ReadTask
from elastic.errors import DataError

LINES = [f"line {n}" for n in range(3000)]
TEXT = "".join(f"{line}\n" for line in LINES).encode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def web(folder):
    with served(folder) as address:
        yield address


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(remote, "BLOCK_BYTES", 5000)
    monkeypatch.setattr(remote, "LOOK_AGAIN_S", 0.0)
    monkeypatch.setattr(remote, "_PAUSE_S", 0.01)


def write_all(folder):
    """One file of each format, and the number of its records."""
    (folder / "a.txt").write_bytes(TEXT)
    (folder / "a.csv").write_bytes(b"n,m\n" + b"".join(b"%d,%d\n" % (n, n) for n in range(3000)))
    (folder / "a.txt.gz").write_bytes(gzip.compress(TEXT))
    (folder / "a.tfrecord").write_bytes(b"".join(framed(line.encode()) for line in LINES))
    (folder / "a.recordio").write_bytes(go_recordio([line.encode() for line in LINES]))
    np.save(folder / "a.npy", np.arange(3000))
    np.savez(folder / "a.npz", x=np.arange(3000))
    np.savez_compressed(folder / "b.npz", x=np.arange(3000))
    return ["a.txt", "a.csv", "a.txt.gz", "a.tfrecord", "a.recordio", "a.npy", "a.npz", "b.npz"]


def test_every_format_reads_the_same_from_afar(folder, web, read_all):
    for name in write_all(folder):
        local = read_all(folder / name, records_per_task=100)
        for address in (f"{web}/{name}", f"file://{folder}/{name}"):
            found = read_all(address, records_per_task=100)
            assert len(found) == 3000
            assert list(map(str, found)) == list(map(str, local))


def test_a_task_fetches_little_more_than_its_records(folder, web, monkeypatch):
    (folder / "long.txt").write_bytes(TEXT * 200)
    reader = open_reader(f"{web}/long.txt", 100, {}, None)
    shards = reader.create_shards()
    assert len(shards) > 3
    worker = open_reader(f"{web}/long.txt", 100, {}, None)
    fetched = []
    fetch = remote.RemoteFile._fetch
    monkeypatch.setattr(
        remote.RemoteFile, "_fetch", lambda self, start: fetched.append(start) or fetch(self, start)
    )
    shard = shards[2]
    assert len(list(worker.read_records(ReadTask(shard, shard.start, shard.start + 10)))) == 10
    assert len(fetched) * remote.BLOCK_BYTES < 100_000


def test_a_question_to_the_server_is_no_suffix_and_no_glob(folder, web, read_all):
    (folder / "q.csv").write_bytes(b"1,2\n")
    assert read_all(f"{web}/q.csv?token=a.b&x=[1]") == [("1", "2")]


def test_what_fails_for_a_moment_is_tried_again(folder, web, read_all):
    (folder / "f.txt").write_bytes(TEXT)
    assert read_all(f"{web}/flaky/f.txt") == LINES


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_folders_and_globs(tmp_path, read_all, kind):
    root = "memory://bucket" if kind == "memory" else f"file://{tmp_path}"
    for name in ("b.txt", "a.txt", ".hidden.txt", "_manifest.txt", "deep/c.txt"):
        with fsspec.open(f"{root}/{name}", "w", auto_mkdir=True) as file:
            file.write(f"{name}\n")
    assert read_all(root) == ["a.txt", "b.txt"]
    assert read_all(f"{root}/**/[a-z].txt") == ["a.txt", "b.txt", "deep/c.txt"]
    assert read_all(f"{root}/*.txt") == ["a.txt", "b.txt"]
    assert read_all(f"{root}/_*.txt") == ["_manifest.txt"]
    assert read_all(f"{root}/b.txt,{root}/deep") == ["b.txt", "deep/c.txt"]
    for origin, message in (
        (f"{root}/*.csv", "no file matches"),
        (f"{root}/gone.txt", "does not exist: check the address"),
    ):
        with pytest.raises(DataError, match=message):
            read_all(origin)


def test_a_folder_of_a_web_server(folder, web, read_all):
    (folder / "listed").mkdir()
    for name in ("b.txt", "a.txt"):
        (folder / "listed" / name).write_text(f"{name}\n")
    assert read_all(f"{web}/listed/") == ["a.txt", "b.txt"]
    assert read_all(f"{web}/listed/*.txt") == ["a.txt", "b.txt"]


def write_photos(root, num=6):
    for index in range(num):
        path = root / ("cat" if index % 2 else "dog") / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 5, 3), index, np.uint8)).save(path)


@pytest.mark.parametrize("is_web", [False, True], ids=["file", "web"])
def test_a_folder_of_images(folder, web, tmp_path, read_all, is_web):
    root = (folder if is_web else tmp_path) / "photos"
    write_photos(root)
    address = f"{web}/photos/" if is_web else f"file://{root}"
    here, afar = read_all(root), read_all(address)
    assert len(here) == 6
    for mine, theirs in zip(here, afar, strict=True):
        assert mine["label"] == theirs["label"]
        assert theirs["path"] == mine["path"].replace(str(root), address.rstrip("/"))
        np.testing.assert_array_equal(mine["image"], theirs["image"])
    (shard,) = open_reader(address, 2, {}, None).create_shards()
    beside = open_reader(address, 2, {"processes": 2}, None, beside=True)
    for mine, theirs in zip(here, beside.read_records(ReadTask(shard, 0, 6)), strict=True):
        np.testing.assert_array_equal(mine["image"], theirs["image"])
    gone = Path(here[0]["path"])
    gone.unlink()
    late = open_reader(address, 2, {}, None, beside=True)
    with pytest.raises(DataError, match="has got or lost images since they were counted"):
        next(late.read_records(ReadTask(shard, 0, 1)))


def test_folders_of_images_without_classes_and_in_an_object_store(read_all):
    fs = fsspec.filesystem("memory")
    for name in ("b.png", "a.png", ".hidden.png"):
        buffer = io.BytesIO()
        Image.fromarray(np.full((2, 2, 3), ord(name[0]), np.uint8)).save(buffer, "png")
        fs.pipe(f"/gallery/{name}", buffer.getvalue())
    records = read_all("memory://gallery")
    assert [record["path"] for record in records] == [
        "memory://gallery/a.png", "memory://gallery/b.png"
    ]  # fmt: skip
    assert [record["image"].max() for record in records] == [ord("a"), ord("b")]
    assert "label" not in records[0]
    fs.pipe("/classes/cat/a.png", buffer.getvalue())
    with pytest.raises(DataError, match="memory://classes/ has the classes cat but memory://galle"):
        read_all("memory://gallery,memory://classes")


def rewrite_local(path):
    path.write_bytes(TEXT[::-1])
    os.utime(path, ns=(0, 10**18))


def test_a_file_that_changes_is_noticed(folder, web):
    path = folder / "changing.txt"
    path.write_bytes(TEXT)
    for address in (f"{web}/changing.txt", f"file://{path}"):
        path.write_bytes(TEXT)
        os.utime(path, ns=(0, 10**17))
        reader = open_reader(address, 10, {}, None)
        (shard,) = reader.create_shards()
        assert next(reader.read_records(ReadTask(shard, 10, 20))) == "line 10"
        rewrite_local(path)
        with pytest.raises(DataError, match=r"changing\.txt was written to while the job reads it"):
            list(reader.read_records(ReadTask(shard, 10, 20)))


def test_a_change_is_seen_after_a_while_only(folder, web, monkeypatch):
    monkeypatch.setattr(remote, "LOOK_AGAIN_S", 1000.0)
    path = folder / "slow.txt"
    path.write_bytes(TEXT)
    reader = open_reader(f"{web}/slow.txt", 10, {}, None)
    (shard,) = reader.create_shards()
    rewrite_local(path)
    assert list(reader.read_records(ReadTask(shard, 10, 12))) == ["line 10", "line 11"]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("{web}/gone.csv", "{web}/gone.csv does not exist: check the address"),
        ("{web}/secret/a.csv", "{web}/secret/a.csv may not be read (403"),
        ("http://127.0.0.1:1/a.csv", "http://127.0.0.1:1/a.csv cannot be read (Cannot connect"),
        ("gs://bucket/a.csv", "gs://bucket/a.csv cannot be read (Please install gcsfs"),
        ("{web}/empty.csv", "{web}/empty.csv holds no records"),
    ],
)
def test_what_cannot_be_read_is_said(folder, web, read_all, address, message):
    (folder / "empty.csv").touch()
    with pytest.raises(DataError) as caught:
        read_all(address.format(web=web))
    assert str(caught.value).startswith(message.format(web=web))


def test_a_server_without_ranges(folder, read_all):
    (folder / "whole.txt").write_bytes(TEXT)
    whole = pytest.raises(DataError, match="sends the whole file when it is asked for a part")
    with served(folder, "--no_ranges") as address, whole:
        read_all(f"{address}/whole.txt")


def test_a_missing_package_names_the_extra(tmp_path):
    # In a process of its own, which finds no fsspec.
    code = (
        "import sys; sys.modules['fsspec'] = None\n"
        "from elastic.data import open_reader\n"
        "open_reader('s3://bucket/a.csv', 1, {}, None).create_shards()\n"
    )
    root = Path(remote.__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=root,
    )
    assert (
        "are read with the package fsspec, which is not installed here: pip install" in done.stderr
    )
    assert "pip install fsspec aiohttp s3fs gcsfs 'python-dateutil<3'" in done.stderr
