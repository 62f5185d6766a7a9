"""A writer of predictions that is killed before and after each of its file operations."""

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from elastic.data.predictions import (
    BEGUN,
    MANIFEST,
    OWNER,
    Part,
    PredictionFolder,
    Predictions,
    SystemFiles,
    columns,
    encode,
    part_name,
    range_of,
    write_whole,
)
from elastic.errors import JobSpecError, ModelDefError
from elastic.policy.tasks.records import RecordRange

CONTENT = b"shard,index,prediction\n" + b"data.npz,0,0.5\n" * 20_000
NAME = part_name(RecordRange(0, 0, 10), "csv")
OLD = b"shard,index,prediction\n"
OTHER = part_name(RecordRange(0, 10, 20), "csv")
PARTS = [Part(NAME, "data.npz", 0, 10, 10), Part(OTHER, "data.npz", 10, 20, 10)]


class DyingFiles(SystemFiles):
    """Kills this process before or after one of its operations, or in the middle of a write."""

    def __init__(self, moment):
        self._moment = moment
        self._number = 0

    def _pass(self):
        if self._number == self._moment:
            os.kill(os.getpid(), signal.SIGKILL)
        self._number += 1

    def write(self, path, data):
        self._pass()
        with path.open("wb") as file:
            file.write(data[: len(data) // 2])
            file.flush()
            self._pass()
            file.write(data[len(data) // 2 :])
        self._pass()

    def _do(self, work):
        self._pass()
        work()
        self._pass()

    def sync(self, path):
        self._do(lambda: super(DyingFiles, self).sync(path))

    def rename(self, path, target):
        self._do(lambda: super(DyingFiles, self).rename(path, target))

    def remove(self, path):
        self._do(lambda: super(DyingFiles, self).remove(path))


def die_at_every_moment(tmp_path, prepare, work):
    """Have one of the functions below do its work in a process that dies, at one moment after the
    other, each in a folder of its own; gives the folders, of which the last saw nobody die."""
    program = (
        "import os, signal, sys; from pathlib import Path\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import test_prediction_files as module\n"
        "prepare, work = (getattr(module, name) for name in sys.argv[2:])\n"
        "for moment in range(300):\n"
        "    folder = Path(sys.argv[1]) / str(moment)\n"
        "    prepare(folder)\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        work(module.DyingFiles(moment), folder)\n"
        "        os._exit(0)\n"
        "    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\n"
        "    if code == 0:\n"
        "        break\n"
        "    assert code == -signal.SIGKILL, code\n"
    )
    arguments = [str(tmp_path), prepare.__name__, work.__name__]
    subprocess.run([sys.executable, "-c", program, *arguments], check=True)
    folders = sorted(tmp_path.iterdir(), key=lambda path: int(path.name))
    assert 8 < len(folders) < 300
    return folders


def write_part(files, folder):
    write_whole(files, Path(folder) / NAME, CONTENT, "worker-0-1")


def finish_folder(files, path):
    PredictionFolder(Path(path), files).finish({"job_name": "job", "run_id": "old"}, PARTS)


def overwrite_folder(files, path):
    PredictionFolder(Path(path), files).claim("job", "new", resume=False, overwrite=True)


def claim_new(files, path):
    PredictionFolder(Path(path), files).claim("job", "new", resume=False, overwrite=False)


def resume_folder(files, path):
    PredictionFolder(Path(path), files).claim("job", "new", resume=True, overwrite=False)


def empty_folder(path):
    path.mkdir()


def folder_with_part(path):
    path.mkdir()
    (path / NAME).write_bytes(OLD)


def folder_of_job(path):
    path.mkdir()
    folder = PredictionFolder(path, SystemFiles())
    folder.claim("job", "old", resume=False, overwrite=False)
    for part in PARTS:
        (path / part.file).write_bytes(OLD)
    return folder


def whole_folder_of_job(path):
    finish_folder(SystemFiles(), folder_of_job(path).path)


@pytest.mark.parametrize("prepare", [empty_folder, folder_with_part])
def test_a_file_is_whole_or_as_it_was_whenever_its_writer_is_killed(tmp_path, prepare):
    met = set()
    for folder in die_at_every_moment(tmp_path, prepare, write_part):
        seen = {path.name: path.read_bytes() for path in folder.iterdir()}
        # Whoever reads the folder looks for names of this form alone.
        found = {name: content for name, content in seen.items() if range_of(name) is not None}
        assert found in ({NAME: CONTENT}, {NAME: OLD} if prepare is folder_with_part else {})
        met.add((found == {NAME: CONTENT}, len(seen) - len(found)))
        # The next attempt is of another launch, and the master cleans up after both.
        write_whole(SystemFiles(), folder / NAME, CONTENT, "worker-1-1")
        PredictionFolder(folder, SystemFiles()).remove_others([NAME])
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == {NAME: CONTENT}
    # Nothing yet, half a file under another name, and a whole one: each was met.
    assert met >= {(False, 0), (False, 1), (True, 0)}


def test_a_manifest_appears_whole_and_last(tmp_path):
    for path in die_at_every_moment(tmp_path, folder_of_job, finish_folder):
        if (path / MANIFEST).exists():
            assert (path / MANIFEST).read_text().endswith("]\n}\n")
        # The next life of the master goes on in it, and comes to the same end.
        PredictionFolder(path, SystemFiles()).claim("job", "old", resume=False, overwrite=False)
        finish_folder(SystemFiles(), path)
        names = {entry.name for entry in path.iterdir() if not entry.name.endswith(BEGUN)}
        assert names == {NAME, OTHER, MANIFEST}


@pytest.mark.parametrize("work", [overwrite_folder, resume_folder])
@pytest.mark.parametrize("prepare", [whole_folder_of_job, folder_of_job])
def test_no_manifest_vouches_for_files_that_are_being_replaced(tmp_path, work, prepare):
    for path in die_at_every_moment(tmp_path, prepare, work):
        parts = [p for p in PARTS if (path / p.file).exists()]
        assert len(parts) == 2 or not (path / MANIFEST).exists()
        # A restarted master makes the folder its own all the same.
        work(SystemFiles(), path)
        assert not (path / MANIFEST).exists()
        assert (path / OWNER).exists()
        kept = [p for p in PARTS if (path / p.file).exists()]
        assert kept == (parts if work is resume_folder else [])


def test_a_master_that_dies_in_a_new_folder_is_not_in_its_own_way(tmp_path):
    for path in die_at_every_moment(tmp_path, empty_folder, claim_new):
        claim_new(SystemFiles(), path)
        assert (path / OWNER).exists()


def test_another_jobs_folder_is_refused_and_named(tmp_path):
    whole_folder_of_job(tmp_path / "out")
    folder = PredictionFolder(tmp_path / "out", SystemFiles())
    for resume in (False, True):
        with pytest.raises(JobSpecError, match="of the job job") as raised:
            folder.claim("other", "new", resume=resume, overwrite=False)
        assert "--resume" not in str(raised.value)
    assert (folder.path / MANIFEST).exists()


def parts_of(*outputs):
    starts = np.cumsum([0, *map(len, outputs)])
    return [
        Predictions("s", np.arange(start, start + len(output)), output)
        for start, output in zip(starts, outputs, strict=False)
    ]


@pytest.mark.parametrize(
    ("outputs", "kind"),
    [
        ([np.array([1, 2]), np.array([1.7, 2.9])], "double"),
        ([np.array([1.7]), np.array([2])], "double"),
        (
            [np.ones((1, 2, 2), int), np.full((1, 2, 2), 1.5)],
            "list<element: list<element: double>>",
        ),
        ([np.array([1, 2]), np.array([2**63 + 1], np.uint64)], "uint64"),
        ([np.ones(1, np.float32), np.ones(1)], "double"),
        ([np.array(["a"]), np.array(["longer"])], "string"),
    ],
)
def test_minibatches_of_several_types_are_one_column(outputs, kind):
    table = pq.read_table(io.BytesIO(encode(parts_of(*outputs), "parquet")))
    assert str(table.schema.field("prediction").type) == kind
    expected = [value for output in outputs for value in output.tolist()]
    assert table.column("prediction").to_pylist() == expected


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (
            [np.array([0.5]), np.array([2**53 + 1])],
            r"gives float64, int64 .* \(9007199254740993 is",
        ),
        ([np.array([1]), np.array(["a"])], r"gives int64, <U1 for the column 'prediction' in min"),
        (
            [np.array([1]), np.array(["2020"], "M8[D]")],
            r"gives int64, datetime64\[D\] for the colum",
        ),
    ],
)
def test_minibatches_of_types_that_no_column_has_are_an_error(outputs, message):
    with pytest.raises(ModelDefError, match=message):
        encode(parts_of(*outputs), "parquet")


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("kind", [object, str])
def test_text_that_cannot_be_encoded_is_named(form, kind):
    outputs = [np.array(["a"], kind), np.array(["b", "\ud800"], kind)]
    with pytest.raises(
        ModelDefError, match=r"gives '\\ud800' for record 2 in the column 'predicti"
    ):
        encode(parts_of(*outputs), form)


@pytest.mark.parametrize(
    ("outputs", "name"),
    [
        ({"a": np.zeros((3, 2)), "a_0": np.zeros(3)}, "a_0"),
        ({"b_c": np.zeros(3), "b": {"c": np.zeros(3)}}, "b_c"),
    ],
)
def test_two_outputs_of_one_name_are_an_error(outputs, name):
    with pytest.raises(ModelDefError, match=f"two outputs .* would be the column '{name}'"):
        columns(Predictions("s", np.arange(3), outputs))
