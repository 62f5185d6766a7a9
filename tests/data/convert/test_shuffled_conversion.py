"""`--shuffle`: every record once, mixed, and in an order that the seed alone decides."""

import gzip
from collections import Counter
from itertools import chain

import numpy as np
import pytest
from PIL import Image
from support.converting import convert
from support.format_table import FORMATS, IDS, make_rows

from elastic.data import open_reader
from elastic.data.base import ReadTask
from elastic.data.convert import Plan
from elastic.errors import DataError, JobSpecError

NUM_RECORDS = 6000
NUM_CLASSES = 6


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    """Many windows: 1,500 chunks in windows of 64."""
    monkeypatch.setattr("elastic.data.picking.CHUNK_BYTES", 32)
    monkeypatch.setattr("elastic.data.picking.WINDOW_BYTES", 64 * 32)


@pytest.fixture
def classes(tmp_path):
    """Two files, sorted by class."""
    rows = [f"{number},{number * NUM_CLASSES // NUM_RECORDS}" for number in range(NUM_RECORDS)]
    for name, part in (("a", rows[:2500]), ("b", rows[2500:])):
        (tmp_path / f"{name}.csv").write_text("i,label\n" + "\n".join(part) + "\n")
    return tmp_path


def plan_of(folder, out, **settings):
    defaults = {
        "records_per_file": 1000, "shuffle_seed": 0, "types": {"*": "int64"}, "format": "npz",
    }  # fmt: skip
    sources = (str(folder / "a.csv"), str(folder / "b.csv"))
    return Plan(sources, str(folder / out), **{**defaults, **settings})


def flat(lists):
    return list(chain.from_iterable(lists))


def arrays(folder, manifest):
    files = [np.load(folder / name) for name in manifest["files"]]
    return [file["i"].tolist() for file in files], [file["label"] for file in files]


def test_every_record_once_and_sorted_classes_mix(classes):
    manifest = convert(plan_of(classes, "out"))
    assert list(manifest["files"].values()) == [1000] * 6
    numbers, labels = arrays(classes / "out", manifest)
    written = flat(numbers)
    assert sorted(written) == list(range(NUM_RECORDS))
    # Of a random draw there would be one record that follows the one before it in the file.
    assert np.count_nonzero(np.diff(written) == 1) < 100
    for part in labels:
        counts = np.bincount(part, minlength=NUM_CLASSES)
        assert counts.min() > 1000 / NUM_CLASSES / 2
    minibatches = np.concatenate(labels)[: 187 * 32].reshape(-1, 32)
    assert min(len(set(minibatch)) for minibatch in minibatches.tolist()) >= 3


def test_the_order_is_that_of_the_seed(classes):
    """By several processes as by one, and also where the first run was interrupted."""
    first = arrays(classes / "out", convert(plan_of(classes, "out")))[0]
    again = arrays(classes / "again", convert(plan_of(classes, "again"), num_processes=2))[0]
    assert convert(plan_of(classes, "resumed"), stop_after=5) is None
    resumed = arrays(classes / "resumed", convert(plan_of(classes, "resumed")))[0]
    assert first == again == resumed
    other = arrays(classes / "other", convert(plan_of(classes, "other", shuffle_seed=1)))[0]
    assert sorted(flat(other)) == sorted(flat(first))
    assert other != first


def test_an_unfinished_conversion_is_gone_on_with_in_its_order_only(classes):
    assert convert(plan_of(classes, "out"), stop_after=5) is None
    for settings in ({"shuffle_seed": 1}, {"shuffle_seed": None}):
        with pytest.raises(DataError, match="unfinished conversion of other sources or with other"):
            convert(plan_of(classes, "out", **settings))


@pytest.mark.parametrize("case", FORMATS, ids=IDS)
def test_every_format_can_be_shuffled_or_says_why_not(tmp_path, case):
    path = tmp_path / f"in.{case.suffix}"
    path.write_bytes(case.write(make_rows(300)))
    reader = open_reader(str(path), 1000, case.params, None)
    chunks = reader.create_chunks()
    records = [
        record
        for shard in reader.create_shards()
        for record in reader.read_records(ReadTask(shard, shard.start, shard.end))
    ]
    kind = {bytes: "tfrecord", str: "lines"}.get(type(records[0]), "npz")
    plan = Plan(
        (str(path),), str(tmp_path / "out"), kind, 100, reader_params=case.params, shuffle_seed=0
    )
    if chunks.is_forward:
        with pytest.raises(DataError, match="compressed, so it can only be read forward, and --sh"):
            convert(plan)
        return
    convert(plan)
    out = open_reader(str(tmp_path / "out"), 1000, {}, None)
    written = [
        record
        for shard in out.create_shards()
        for record in out.read_records(ReadTask(shard, shard.start, shard.end))
    ]
    assert Counter(map(values, written)) == Counter(map(values, records))
    assert list(map(values, written)) != list(map(values, records))


def values(record):
    """The same for a record and for what it was written as, of whatever types and names."""
    if isinstance(record, dict):
        record = tuple(record.values())
    fields = record if isinstance(record, tuple) else (record,)
    return str(
        [value if isinstance(value, bytes) else np.asarray(value).tolist() for value in fields]
    )


def test_sources_of_several_formats_are_mixed(tmp_path):
    (tmp_path / "photos").mkdir()
    for number in range(100):
        Image.new("RGB", (2, 2), (number, 0, 0)).save(tmp_path / "photos" / f"{number:03}.png")
    images = np.zeros((100, 2, 2, 3), np.uint8)
    images[..., 0] = np.arange(100, 200)[:, None, None]
    np.savez(tmp_path / "a.npz", image=images, path=np.array(["none"] * 100))
    sources = (f"{tmp_path}/photos", str(tmp_path / "a.npz"))
    manifest = convert(Plan(sources, str(tmp_path / "out"), shuffle_seed=3, records_per_file=50))
    files = [np.load(tmp_path / "out" / name) for name in manifest["files"]]
    numbers = [file["image"][:, 0, 0, 0].tolist() for file in files]
    assert sorted(flat(numbers)) == list(range(200))
    assert all(10 < sum(number < 100 for number in part) < 40 for part in numbers)


def test_what_comes_as_a_stream_is_refused(classes):
    (classes / "a.csv.gz").write_bytes(gzip.compress((classes / "a.csv").read_bytes()))
    plan = Plan((str(classes / "a.csv.gz"),), str(classes / "out"), shuffle_seed=0)
    with pytest.raises(DataError, match="decompress it, or convert it without --shuffle, and then"):
        convert(plan)
    plan = Plan(("x",), str(classes / "out"), model_def="net.Model", shuffle_seed=0)
    with pytest.raises(JobSpecError, match="--shuffle has no meaning with --model_def"):
        convert(plan)
    assert not (classes / "out").exists()
