"""A file that has changed is an error of the records, not of the call that asks for them.

What a worker reads, it reports with the task; what fails before that would cost the worker, and the
next one knows nothing of the file as it was.
"""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elastic.data import open_reader
from elastic.data.base import ReadTask
from elastic.errors import DataError


def write_npz(path, length):
    np.savez(path, x=np.arange(length))


def write_npy(path, length):
    np.save(path, np.arange(length))


def write_parquet(path, length):
    pq.write_table(pa.table({"x": range(length)}), path)


def write_lines(path, length):
    path.write_text("".join(f"{n}\n" for n in range(length)))


def write_csv(path, length):
    path.write_text("x\n" + "".join(f"{n}\n" for n in range(length)))


@pytest.mark.parametrize("write", [write_npz, write_npy, write_parquet, write_lines, write_csv])
def test_a_changed_file_is_told_by_its_first_record(tmp_path, write):
    suffix = {"lines": "txt"}.get(kind := write.__name__.removeprefix("write_"), kind)
    path = tmp_path / f"data.{suffix}"
    write(path, 10)
    reader = open_reader(str(path), 5, {}, None)
    (shard,) = reader.create_shards()
    write(path, 1000)
    records = iter(reader.read_records(ReadTask(shard, 0, 5)))
    with pytest.raises(DataError, match="while the job reads it"):
        next(records)
