"""A process that writes cuts may be killed at any moment: a whole one is always there."""

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from elastic.checkpoints.contents import CutRows, read_manifest
from elastic.checkpoints.cuts import (
    Cut,
    clean_up,
    list_cuts,
    newest_cut,
    prune,
    read_cut,
    write_cut,
)
from elastic.frameworks.base import UpdaterState
from elastic.rows.base import Change, Table, TableForm

WRITER = """
import itertools, sys
from pathlib import Path
import numpy as np
from elastic.frameworks.base import UpdaterState
from elastic.checkpoints.cuts import Cut, clean_up, newest_cut, prune, write_cut

folder = Path(sys.argv[1])
clean_up(folder)
found = newest_cut([folder], None, lambda message: sys.exit(message))
first = found[1].version if found else 0
for version in itertools.count(first):
    # Each version twice, as the last one of a job is: before and after its evaluation.
    for _ in range(2):
        weights = np.full(20_000, version, np.float32)
        cut = Cut(version, {"weights": weights}, {}, UpdaterState(), None)
        prune(folder, 1, write_cut(folder, cut))
    print(version, flush=True)
"""
NUM_KILLS = 12


def _cut(version):
    return Cut(version, {"weights": np.full(3, version, np.float32)}, {}, UpdaterState(), None)


def test_a_killed_writer_leaves_a_whole_cut(tmp_path):
    rng = random.Random(0)
    for _ in range(NUM_KILLS):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        with writer:
            for _ in range(rng.randint(1, 5)):
                version = int(writer.stdout.readline())
            # Into the middle of the next one.
            time.sleep(rng.uniform(0.0, 0.005))
            os.kill(writer.pid, signal.SIGKILL)
        clean_up(tmp_path)
        assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
        damaged = []
        _, cut = newest_cut([tmp_path], None, damaged.append)
        assert damaged == []
        assert cut.version >= version
        assert (cut.parameters["weights"] == cut.version).all()


def test_a_cut_that_was_being_replaced_comes_back(tmp_path):
    path = write_cut(tmp_path, _cut(7))
    path.rename(tmp_path / f".{path.name}.replaced")
    (tmp_path / f".{path.name}.begun").mkdir()
    clean_up(tmp_path)
    assert list(tmp_path.iterdir()) == [path]
    assert read_cut(path).version == 7


def test_a_replaced_cut_goes_when_the_new_one_is_there(tmp_path):
    path = write_cut(tmp_path, _cut(7))
    (tmp_path / f".{path.name}.replaced").mkdir()
    (tmp_path / ".version-0000000003.removed").mkdir()
    clean_up(tmp_path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("keep", "kept"), [(0, [9, 3, 2, 1]), (1, [9, 3]), (2, [9, 3, 2])])
def test_pruning_counts_up_to_the_newest_only(keep, kept, tmp_path):
    paths = {version: write_cut(tmp_path, _cut(version)) for version in (1, 2, 9, 3)}
    prune(tmp_path, keep, newest=paths[3])
    assert [read_cut(path).version for path in list_cuts(tmp_path)] == kept


def _rows(ids, value):
    ids = np.array(ids, np.int64)
    return Change(ids, np.full((len(ids), 2), value, np.float32))


def test_the_newest_cut_is_that_of_the_highest_version_whatever_the_times(tmp_path):
    def cut(version):
        return Cut(version, {"w": np.zeros(3, np.float32)}, {}, UpdaterState(), None)

    newest, other = tmp_path / "one", tmp_path / "other"
    os.utime(write_cut(newest, cut(9)), (0, 0))
    write_cut(other, cut(3))
    _, found = newest_cut([newest, other], None, pytest.fail)
    assert found.version == 9


@pytest.mark.parametrize(
    ("whole", "kept"),
    [
        ([1], [5, 4]),
        ([1, 2], [5, 4, 1]),
        ([1, 3], [5, 4, 2]),
        ([1, 4], [5, 4, 3]),
        ([1, 5], [5, 4]),
    ],
    ids=["no-other", "older", "newest-of-the-others", "one-is-whole", "newest"],
)
def test_pruning_leaves_one_that_has_other_files_of_rows(whole, kept, tmp_path):
    """Of damage to those that the newest have in common it knows nothing."""
    form, newest = TableForm(Table("items", 2, "zeros")), None
    for version in range(1, 6):
        rows = CutRows(
            (form,),
            lambda _, version=version: [_rows(range(9), version)],
            before=None if version in whole else newest,
            changed=lambda _, version=version: [_rows([version], version)],
        )
        newest = write_cut(tmp_path, replace(_cut(version), rows=rows))
    prune(tmp_path, 2, newest)
    assert [read_manifest(path).version for path in list_cuts(tmp_path)] == kept
