"""What lies in a folder beside the data is no record, and what is half written is no data."""

import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from elastic.data import open_reader
from elastic.data.base import ReadTask
from elastic.errors import DataError


def write_photos(root, num=6):
    for index in range(num):
        path = root / ("cat" if index % 2 else "dog") / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 5, 3), index, np.uint8)).save(path)


def test_an_image_beside_class_folders_is_an_error(tmp_path, read_all):
    write_photos(tmp_path)
    (tmp_path / "cat" / "1.png").rename(tmp_path / "preview.png")
    with pytest.raises(DataError, match=r"holds images \(preview.png\) beside folders of images"):
        read_all(tmp_path)


def test_a_text_beside_class_folders_is_an_error(tmp_path, read_all):
    write_photos(tmp_path)
    (tmp_path / "README.txt").write_text("Photos of pets.\n")
    with pytest.raises(DataError, match=r"folders of images, and beside them README\.txt"):
        read_all(tmp_path)
    assert read_all(tmp_path / "README.txt") == ["Photos of pets."]


def test_a_table_beside_folders_of_images_is_what_is_meant(tmp_path, read_all):
    write_photos(tmp_path)
    (tmp_path / "labels.csv").write_text("file,label\ncat/1.png,1\n")
    assert read_all(tmp_path) == [{"file": "cat/1.png", "label": "1"}]


def test_images_without_classes_may_have_other_folders_beside_them(tmp_path, read_all):
    write_photos(tmp_path)
    (tmp_path / "cat" / "notes").mkdir()
    assert len(read_all(tmp_path / "cat")) == 3


@pytest.mark.parametrize(
    "named", ["{}", "{}/", "{}/*.txt", "{}/a.txt", "file://{}", "file://{}/a.txt"]
)
def test_an_unfinished_conversion_is_refused_however_it_is_named(tmp_path, read_all, named):
    folder = tmp_path / "out"
    (folder / ".unfinished").mkdir(parents=True)
    (folder / "a.txt").write_text("a\n")
    with pytest.raises(DataError, match="is an unfinished conversion, which lacks records"):
        read_all(named.format(folder))
    (folder / ".unfinished").rmdir()
    assert read_all(named.format(folder)) == ["a"]


@pytest.mark.parametrize("named", ["{}", "{}/", "file://{}"])
def test_what_is_left_of_a_conversion_is_refused(tmp_path, read_all, named):
    manifest = {"format": "lines", "num_records": 2, "files": {"a.txt": 1, "b.txt": 1}}
    (tmp_path / "_manifest.json").write_text(json.dumps(manifest))
    (tmp_path / "a.txt").write_text("a\n")
    with pytest.raises(DataError, match=r"has no b\.txt, though its _manifest\.json names 2 files"):
        read_all(named.format(tmp_path))
    assert read_all(tmp_path / "a.txt") == ["a"]
    (tmp_path / "b.txt").write_text("b\n")
    # Of the user's own.
    (tmp_path / "c.txt").write_text("c\n")
    assert read_all(named.format(tmp_path)) == ["a", "b", "c"]


@pytest.mark.parametrize("text", ["", "[]", '{"files": ["b.txt"]}', '{"format": 1, "parts": []}'])
def test_other_manifests_say_nothing(tmp_path, read_all, text):
    (tmp_path / "_manifest.json").write_text(text)
    (tmp_path / "a.txt").write_text("a\n")
    assert read_all(tmp_path) == ["a"]


@pytest.mark.parametrize(
    "name", ["t.csv-00000-of-00001.gz", "t.csv.gz-00000-of-00001", "t.csv.gz", "t.CSV.GZ"]
)
def test_a_part_number_may_stand_on_either_side_of_the_compression(tmp_path, read_all, name):
    (tmp_path / name).write_bytes(gzip.compress(b"x\n1\n"))
    assert read_all(tmp_path / name) == [{"x": "1"}]


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (np.zeros((2, 3), np.float32), np.zeros((2, 3), np.uint8), r"has rows of uint8 \(3,\)"),
        (np.zeros((2, 3), np.float32), np.zeros((2, 4), np.float32), r"has rows of float32 \(4,\)"),
        (np.zeros(2), np.array(["a"]), "has rows of str"),
        (np.zeros(2, ">f4"), np.zeros(2, "<f4"), None),
        (np.array(["a"]), np.array(["longer"]), None),
    ],
)
@pytest.mark.parametrize("kind", ["npz", "npy"])
def test_arrays_must_be_of_one_type_in_all_files(tmp_path, read_all, kind, one, other, message):
    for name, array in (("a", one), ("b", other)):
        if kind == "npz":
            np.savez(tmp_path / f"{name}.npz", x=array)
        else:
            np.save(tmp_path / f"{name}.npy", array)
    if message is None:
        assert len(read_all(tmp_path)) == len(one) + len(other)
        return
    with pytest.raises(DataError, match=message):
        read_all(tmp_path)


@pytest.mark.parametrize("name", ["a.png", "a.tif"])
def test_an_image_of_16_bits_a_channel_is_refused(tmp_path, read_all, name):
    path = tmp_path / "photos" / name
    path.parent.mkdir()
    path.write_bytes({"a.png": wide_png, "a.tif": wide_tif}[name]())
    with pytest.raises(DataError, match="a channel"):
        read_all(path.parent)


def wide_png():
    """One pixel of three times 16 bits, which Pillow cannot write."""
    import struct
    import zlib

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", 1, 1, 16, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0" + struct.pack(">HHH", 0x1234, 0x5678, 0x9ABC))
    parts = [chunk(b"IHDR", header), chunk(b"IDAT", pixels), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def wide_tif():
    """One grey pixel of 16 bits."""
    import io

    out = io.BytesIO()
    Image.fromarray(np.array([[0x1234]], np.uint16)).save(out, "tiff")
    return out.getvalue()


@pytest.mark.parametrize("suffix", ["npz", "npy", "parquet", "csv", "txt"])
def test_a_file_rewritten_while_a_task_is_read_is_told_at_its_end(tmp_path, suffix):
    path = tmp_path / f"data.{suffix}"

    def write(first):
        values = np.arange(first, first + 10)
        if suffix == "npz":
            np.savez(path, x=values)
        elif suffix == "npy":
            np.save(path, values)
        elif suffix == "parquet":
            pq.write_table(pa.table({"x": values}), path)
        else:
            lines = [*(["x"] if suffix == "csv" else []), *map(str, values)]
            path.write_text("".join(f"{line}\n" for line in lines))

    write(100)
    reader = open_reader(str(path), 10, {}, None)
    (shard,) = reader.create_shards()
    records = iter(reader.read_records(ReadTask(shard, 0, 10)))
    next(records)
    write(200)
    with pytest.raises(DataError, match="while the job reads it"):
        list(records)
