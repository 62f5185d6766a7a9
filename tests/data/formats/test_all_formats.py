"""For every format: the same rows come back, and what is wrong is told with its place."""

import os
import re

import numpy as np
import pytest
from support.format_table import FORMATS, IDS, make_rows

from elastic.data import open_reader
from elastic.data.base import ReadTask
from elastic.data.formats.registry import FORMATS as KNOWN
from elastic.data.formats.registry import format_of
from elastic.errors import DataError

ROWS = make_rows(200)
every_format = pytest.mark.parametrize("case", FORMATS, ids=IDS)


def write(case, folder, rows=ROWS, name="a"):
    path = folder / f"{name}.{case.suffix}"
    path.write_bytes(case.write(rows))
    return path


def test_the_table_has_every_format():
    assert {format_of(f"a.{case.suffix}") for case in FORMATS} == set(KNOWN) - {"images"}


@every_format
def test_any_split_into_tasks_reads_the_same(tmp_path, case):
    path = str(write(case, tmp_path))
    shards = open_reader(path, 30, case.params, None).create_shards()
    worker = open_reader(path, 30, case.params, None)
    whole = [
        str(record)
        for shard in shards
        for record in worker.read_records(ReadTask(shard, shard.start, shard.end))
    ]
    assert len(whole) == len(ROWS)
    for shard in reversed(shards):
        for start in reversed(range(shard.start, shard.end, 17)):
            end = min(start + 17, shard.end)
            records = worker.read_records(ReadTask(shard, start, end))
            assert list(map(str, records)) == whole[start:end]


@every_format
def test_a_truncated_file(tmp_path, read_all, case):
    path = write(case, tmp_path)
    # Of a table as text the last field is gone.
    path.write_bytes(path.read_bytes()[:-3])
    if case.name == "lines":
        assert len(read_all(path)) == len(ROWS)  # a shorter line is a line
        return
    with pytest.raises(DataError, match=re.escape(str(path))) as caught:
        read_all(path, **case.params)
    if format_of(path.name) not in ("npz", "npy", "parquet"):
        assert re.search(r"(byte|line) \d+", str(caught.value))


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.name) for case in FORMATS if case.is_checked]
)
def test_damage_in_the_middle_of_a_file(tmp_path, read_all, case):
    path = write(case, tmp_path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x55
    path.write_bytes(content)
    with pytest.raises(DataError, match=re.escape(str(path))):
        read_all(path, **case.params)


@every_format
def test_an_empty_file(tmp_path, read_all, case):
    path = tmp_path / f"a.{case.suffix}"
    path.touch()
    with pytest.raises(DataError, match=rf"{re.escape(str(path))} holds no records"):
        read_all(path, **case.params)


@every_format
def test_a_file_of_no_rows(tmp_path, read_all, case):
    path = write(case, tmp_path, rows=[])
    params = {"header": True} | case.params if case.suffix in ("csv", "tsv", "csv.gz") else {}
    with pytest.raises(DataError, match=rf"{re.escape(str(path))} holds no records"):
        read_all(path, **params)


@every_format
def test_a_folder_of_several_formats(tmp_path, read_all, case):
    write(case, tmp_path)
    other = tmp_path / ("b.npy" if format_of(f"a.{case.suffix}") != "npy" else "b.txt")
    np.save(tmp_path / "b.npy", np.arange(3)) if other.suffix == ".npy" else other.write_text("a\n")
    with pytest.raises(DataError, match=f"{re.escape(str(tmp_path))} mixes formats"):
        read_all(tmp_path, **case.params)


@every_format
@pytest.mark.parametrize("num_rows", [199, 205])
def test_a_file_that_changes_while_it_is_read(tmp_path, case, num_rows):
    path = write(case, tmp_path)
    reader = open_reader(str(path), 30, case.params, None)
    (shard,) = reader.create_shards()
    assert len(list(reader.read_records(ReadTask(shard, 0, 30)))) == 30
    write(case, tmp_path, make_rows(num_rows, seed=1))
    with pytest.raises(DataError, match=r"a\..* (was written to|went from) .*while the job reads"):
        list(reader.read_records(ReadTask(shard, 30, 60)))


@every_format
def test_a_worker_that_finds_another_file_than_was_counted(tmp_path, case):
    path = write(case, tmp_path)
    (shard,) = open_reader(str(path), 30, case.params, None).create_shards()
    write(case, tmp_path, make_rows(100, seed=1))
    worker = open_reader(str(path), 30, case.params, None)
    with pytest.raises(DataError, match=re.escape(str(path))):
        list(worker.read_records(ReadTask(shard, 150, 200)))


@every_format
def test_a_worker_that_finds_as_many_other_records(tmp_path, case):
    path = write(case, tmp_path)
    (shard,) = open_reader(str(path), 30, case.params, None).create_shards()
    num_bytes = path.stat().st_size
    write(case, tmp_path, make_rows(200, seed=1))
    worker = open_reader(str(path), 30, case.params, None)
    had = f"has (other contents|{path.stat().st_size} bytes and not {num_bytes})"
    with pytest.raises(DataError, match=f"a\\..* is not the file .* were counted, it {had}"):
        next(iter(worker.read_records(ReadTask(shard, 0, 30))))


@every_format
def test_a_worker_that_has_a_copy_of_its_own(tmp_path, case):
    path = write(case, tmp_path)
    (shard,) = open_reader(str(path), 30, case.params, None).create_shards()
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)
    os.utime(path, (0, 0))
    worker = open_reader(str(path), 30, case.params, None)
    assert len(list(worker.read_records(ReadTask(shard, 150, 200)))) == 50
