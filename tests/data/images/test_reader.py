"""Folders of images: labels, order, decoding, and what cannot be read."""

import os
import re
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from elastic.data import open_reader
from elastic.data.base import ReadTask
from elastic.data.image_folders import class_names, list_images
from elastic.errors import DataError, JobSpecError
from elastic.policy.tasks.records import Shard


def draw(path, pixels=None, **options):
    """An image of one grey, or of some pixels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.full((2, 3, 3), 7) if pixels is None else pixels
    Image.fromarray(np.asarray(pixels, np.uint8)).save(path, **options)
    return path


@pytest.fixture
def classes(tmp_path):
    """Two classes of ten images; the value of the pixels tells which."""
    root = tmp_path / "pets"
    for label, name in enumerate(("cat", "dog")):
        for index in range(10):
            draw(root / name / f"{index}.png", np.full((4, 6, 3), 10 * label + index))
    return root


def test_labels_are_the_sorted_names_of_the_folders(classes, read_all):
    records = read_all(classes)
    assert len(records) == 20
    for record in records:
        assert list(record) == ["image", "label", "path"]
        assert record["image"].dtype == np.uint8
        assert record["image"].shape == (4, 6, 3)
        assert record["image"].max() // 10 == record["label"]
        name = class_names(str(classes))[record["label"]]
        assert record["path"] == f"{classes}/{name}/{record['image'].max() % 10}.png"
    assert {int(record["image"].max()) for record in records} == set(range(20))
    assert records[0]["label"].dtype == np.int64


def test_neighbours_are_of_different_classes_in_an_order_that_stays(classes, read_all):
    labels = [int(record["label"]) for record in read_all(classes)]
    assert labels == [int(record["label"]) for record in read_all(classes)]
    assert labels not in (sorted(labels), sorted(labels, reverse=True))
    assert sum(one != other for one, other in pairwise(labels)) >= 5


def test_a_folder_without_classes_is_sorted_and_has_no_labels(tmp_path, read_all):
    for index in (2, 0, 1):
        draw(tmp_path / f"{index}.png", np.full((1, 1, 3), index))
    records = read_all(tmp_path)
    assert [record["path"][-5:] for record in records] == ["0.png", "1.png", "2.png"]
    assert list(records[0]) == ["image", "path"]
    image = records[0]["image"]
    image += 1  # what is read belongs to who reads it
    assert read_all(f"{tmp_path}/")[0]["image"].max() == 0


def test_sizes_and_modes(tmp_path, read_all):
    draw(tmp_path / "a.png", np.stack([np.full((8, 4), value) for value in (255, 0, 0)], -1))
    (record,) = read_all(tmp_path, size="3x5")
    assert record["image"].shape == (3, 5, 3)
    assert record["image"].tolist() == [[[255, 0, 0]] * 5] * 3
    (record,) = read_all(tmp_path, size=2, mode="l")
    assert record["image"].tolist() == [[[76]] * 2] * 2
    assert read_all(tmp_path, size=[6, 7])[0]["image"].shape == (6, 7, 3)


@pytest.mark.parametrize(
    ("name", "mode", "options"),
    [
        ("a.JPG", "RGB", {}),
        ("a.jpeg", "L", {}),
        ("a.jpg", "CMYK", {}),
        ("a.png", "RGBA", {}),
        ("a.png", "P", {}),
        ("a.png", "1", {}),
        ("a.png", "LA", {}),
        ("a.gif", "P", {}),
        ("a.bmp", "RGB", {}),
        ("a.webp", "RGB", {"lossless": True}),
        ("a.tiff", "RGB", {}),
        ("a.ppm", "RGB", {}),
        ("a.pgm", "L", {}),
    ],
)
@pytest.mark.parametrize("size", [None, "4x4"])
def test_kinds_of_images(tmp_path, read_all, name, mode, options, size):
    Image.new("RGB", (16, 24), "white").convert(mode).save(tmp_path / name, **options)
    params = {} if size is None else {"size": size}
    (record,) = read_all(tmp_path, **params)
    assert record["image"].shape == ((24, 16, 3) if size is None else (4, 4, 3))
    assert record["image"].min() >= 250


def png(classes):
    return (classes / "cat" / "3.png").read_bytes()


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        pytest.param("3.png", lambda b: b[: len(b) // 2], id="truncated"),
        pytest.param("3.png", lambda b: b[:-20] + b"\xff" * 8 + b[-12:], id="corrupt"),
        pytest.param("3.png", lambda b: b"hello", id="other"),
        pytest.param("3.png", lambda b: b"", id="empty"),
    ],
)
def test_a_damaged_image_is_an_error_of_its_record_alone(classes, name, damage):
    path = classes / "cat" / name
    path.write_bytes(damage(png(classes)))
    reader = open_reader(str(classes), 2, {}, None)
    (shard,) = reader.create_shards()
    failed = []
    for index in range(20):
        try:
            list(reader.read_records(ReadTask(shard, index, index + 1)))
        except DataError as error:
            failed.append(str(error))
    (message,) = failed
    assert message.startswith(f"{path} cannot be read as an image (")
    assert message.endswith("write it again, or remove it")


def test_a_truncated_jpeg(tmp_path, read_all):
    path = draw(tmp_path / "a.jpg", np.random.default_rng(0).integers(0, 255, (64, 64, 3)))
    path.write_bytes(path.read_bytes()[:-400])
    with pytest.raises(DataError, match=r"a\.jpg cannot be read as an image \(image file is trunc"):
        read_all(tmp_path)


def test_images_of_sixteen_bits_are_refused(tmp_path, read_all):
    Image.fromarray(np.zeros((2, 2), np.uint16)).save(tmp_path / "a.png")
    with pytest.raises(DataError, match=r"a\.png .*it has more than 8 bits a channel"):
        read_all(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(lambda p: (p / "ant").mkdir(), "P/ant holds no images: fill", id="no-images"),
        pytest.param(
            lambda p: draw(p / "cat" / "deep" / "a.png"), None, id="deeper-folders-are-not-read"
        ),
        pytest.param(lambda p: (p / "cat" / "notes.txt").touch(), None, id="other-files"),
        pytest.param(lambda p: (p / ".git").mkdir(), None, id="hidden-folders"),
    ],
)
def test_what_else_is_in_the_folders(classes, read_all, change, message):
    change(classes)
    if message is None:
        assert len(read_all(classes)) == 20
        return
    with pytest.raises(DataError, match=f"^{re.escape(message.replace('P', str(classes)))}"):
        read_all(classes)


def test_named_classes_keep_their_labels_where_a_folder_lacks_some(classes, read_all):
    assert {r["label"] for r in read_all(classes, classes=["ant", "cat", "dog"])} == {1, 2}
    with pytest.raises(DataError, match="has the folder 'cat', which is none of the classes dog:"):
        read_all(classes, classes=["dog"])


def test_files_are_no_folder_of_images(classes, read_all):
    with pytest.raises(DataError, match=r"0\.png is not a folder of images: name the folder"):
        read_all(classes / "cat" / "0.png", format="images")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"size": "big"}, "size=big is not the height and width of an image: write size=224x224"),
        ({"size": "0x3"}, "size=0x3 is not the height"),
        ({"size": "1x2x3"}, "size=1x2x3 is not the height"),
        ({"mode": "HSV"}, "mode=HSV is not RGB, or L for grey"),
        ({"classes": []}, "classes=[] is no list of different names: write classes=[a,b]"),
        ({"header": True}, "header has no meaning for images files, which take format, size"),
    ],
)
def test_parameters_that_are_refused(classes, read_all, params, message):
    with pytest.raises(JobSpecError, match=re.escape(message)):
        read_all(classes, **params)


def test_images_that_come_go_or_change_are_noticed(classes):
    reader = open_reader(str(classes), 2, {}, None)
    (shard,) = reader.create_shards()
    task = ReadTask(shard, 0, 20)
    assert len(list(reader.read_records(task))) == 20
    (classes / "cat" / "notes.txt").touch()
    assert len(list(reader.read_records(task))) == 20
    new = draw(classes / "cat" / "new.png")
    for _ in range(2):
        with pytest.raises(DataError, match="has got or lost images while the job reads it"):
            list(reader.read_records(task))
    late_worker = open_reader(str(classes), 2, {}, None)
    with pytest.raises(DataError, match="has got or lost images since they were counted"):
        list(late_worker.read_records(task))
    # A shard of the user's own has no fingerprint.
    with pytest.raises(DataError, match="has got or lost images since they were counted"):
        list(late_worker.read_records(ReadTask(Shard(shard.name, 0, 22), 20, 22)))
    new.unlink()
    assert len(list(reader.read_records(task))) == 20
    os.utime(draw(classes / "dog" / "3.png"), ns=(0, 10**18))
    with pytest.raises(DataError, match=r"dog/3\.png .* while the job reads it"):
        list(reader.read_records(task))


def test_many_files_are_listed_fast(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for index in range(10_000):
            os.close(os.open(tmp_path / name / f"{index}.jpg", os.O_CREAT | os.O_WRONLY))
    start = time.process_time()
    (shard,) = open_reader(str(tmp_path), 10, {}, None).create_shards()
    # Opening them all, or asking for the state of each, would take several times as long.
    assert time.process_time() - start < 0.5
    assert shard.num_records == 20_000
    assert set(list_images(str(tmp_path), None).files) == {
        f"{name}/{index}.jpg" for name in "ab" for index in range(10_000)
    }


def test_the_extra_is_named_where_it_is_missing(classes, monkeypatch, read_all):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DataError, match=re.escape("pip install Pillow;")):
        read_all(classes)


def test_paths_begin_as_the_user_wrote_them(classes, read_all, monkeypatch):
    monkeypatch.chdir(classes.parent)
    assert all(Path(record["path"]).parts[0] == "pets" for record in read_all("pets"))
