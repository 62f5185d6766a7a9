"""Rows in files, of which there may be more than memory."""

import resource
import subprocess
import sys

import pytest
from support.row_store_contract import DIM, FORMS, make, numbers, rows_of

from elastic.errors import TrainingError
from elastic.rows import memory
from elastic.rows.memory import MemoryRows

LARGE = """
import sys
from pathlib import Path
import numpy as np
from elastic.rows.base import Table
from elastic.rows.memory import MemoryRows
from elastic.rows.base import Change, TableForm

WIDTH, NUM_PARTS, PART_ROWS = 256, 100, 1000

def parts():
    for part in range(NUM_PARTS):
        ids = np.arange(part * PART_ROWS, (part + 1) * PART_ROWS)
        yield Change(ids, np.repeat(ids.astype(np.float32), WIDTH).reshape(-1, WIDTH))

def own_mib():
    [line] = [line for line in open("/proc/self/status") if line.startswith("RssAnon")]
    return int(line.split()[1]) >> 10

before = own_mib()
store = MemoryRows(Path(sys.argv[1]))
store.open([TableForm(Table("large", WIDTH, "zeros"))])
store.load(3, {"large": parts()})
for begin in range(0, 100_000, 10_000):
    some = np.sort(np.random.default_rng(begin).choice(110_000, 5_000, replace=False))
    rows = store.read("large", some, 3)
    assert (rows.is_there == (some < 100_000)).all()
    assert (rows.values == np.where(rows.is_there, some, 0)[:, None]).all()
print(own_mib() - before)
"""


@pytest.fixture
def store(tmp_path):
    store = MemoryRows(tmp_path)
    store.open(FORMS)
    return store


def test_rows_in_files_take_memory_for_their_ids_alone(tmp_path):
    """100 MB of them."""
    done = subprocess.run(
        [sys.executable, "-c", LARGE, tmp_path], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 40


def test_files_leave_nothing_behind(store, tmp_path):
    make(store, deep=rows_of([1], 1))
    assert not list(tmp_path.iterdir())


def test_files_are_mapped_anew_as_they_grow(store, monkeypatch):
    monkeypatch.setattr(memory, "FILE_ROOM", 40 * DIM)
    for version, first in enumerate(range(0, 200, 7), 1):
        make(store, deep=rows_of(range(first, first + 10), version))
    assert numbers(store, [0, 6, 7, 199, 205, 206]) == [1, 1, 2, 29, 29, None]


def test_a_full_disk_is_told(store):
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limit[1]))
    try:
        with pytest.raises(TrainingError, match=r"cannot be kept in files in .*make room there"):
            store.load(1, {"deep": [rows_of(range(10_000), 1)]})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)


def test_what_is_loaded_may_have_an_id_twice(store):
    store.load(1, {"deep": [rows_of([1, 2], 1), rows_of([2, 3], 2)]})
    assert numbers(store, [1, 2, 3]) == [1, 2, 2]
