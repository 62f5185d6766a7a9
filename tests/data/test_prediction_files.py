"""A writer of predictions that is killed before and after each of its file operations."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from elastic.data.predictions.files import BEGUN, SystemFiles, write_whole
from elastic.data.predictions.folder import MANIFEST, OWNER, Part, PredictionFolder
from elastic.data.predictions.parts import part_name, range_of
from elastic.errors import JobSpecError
from elastic.policy.records import RecordRange

CONTENT = b"shard,index,prediction\n" + b"data.npz,0,0.5\n" * 20_000
NAME = part_name(RecordRange(0, 0, 10), "csv")
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


def die_at(moment, work, *arguments):
    """Run one of the functions below in a process that dies then; whether it did."""
    program = (
        "import sys; from pathlib import Path\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import test_prediction_files as module\n"
        f"getattr(module, {work!r})(module.DyingFiles({moment}), *sys.argv[1:])\n"
    )
    done = subprocess.run([sys.executable, "-c", program, *map(str, arguments)], check=False)
    assert done.returncode in (0, -signal.SIGKILL)
    return done.returncode != 0


def write_part(files, folder):
    write_whole(files, Path(folder) / NAME, CONTENT, "worker-0-1")


def finish_folder(files, path):
    PredictionFolder(Path(path), files).finish({"job_name": "job", "run_id": "old"}, PARTS)


def overwrite_folder(files, path):
    PredictionFolder(Path(path), files).claim("job", "new", resume=False, overwrite=True)


def resume_folder(files, path):
    PredictionFolder(Path(path), files).claim("job", "new", resume=True, overwrite=False)


@pytest.mark.parametrize("is_there", [False, True], ids=["new", "replaced"])
def test_a_file_is_whole_or_as_it_was_whenever_its_writer_is_killed(tmp_path, is_there):
    before = b"shard,index,prediction\n"
    moments = set()
    for moment in range(100):
        folder = tmp_path / str(moment)
        folder.mkdir()
        if is_there:
            (folder / NAME).write_bytes(before)
        died = die_at(moment, "write_part", folder)
        seen = {path.name: path.read_bytes() for path in folder.iterdir()}
        # Whoever reads the folder looks for names of this form alone.
        found = {name: content for name, content in seen.items() if range_of(name) is not None}
        allowed = [{NAME: CONTENT}, {NAME: before} if is_there else {}]
        assert found in allowed, moment
        moments.add((found == {NAME: CONTENT}, len(seen) - len(found)))
        # The next attempt is of another launch, and the master cleans up after both.
        write_whole(SystemFiles(), folder / NAME, CONTENT, "worker-1-1")
        PredictionFolder(folder, SystemFiles()).remove_others([NAME])
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == {NAME: CONTENT}
        if not died:
            break
    assert not died
    # Nothing yet, half a file under another name, and a whole one: each was met.
    assert moments >= {(False, 0), (False, 1), (True, 0)}


def folder_of_job(path, *, is_whole):
    path.mkdir()
    folder = PredictionFolder(path, SystemFiles())
    folder.claim("job", "old", resume=False, overwrite=False)
    for part in PARTS:
        (path / part.file).write_text("old")
    if is_whole:
        folder.finish({"job_name": "job", "run_id": "old"}, PARTS)
    return folder


def test_a_manifest_appears_whole_and_last(tmp_path):
    for moment in range(100):
        folder = folder_of_job(tmp_path / str(moment), is_whole=False)
        died = die_at(moment, "finish_folder", folder.path)
        if (folder.path / MANIFEST).exists():
            assert (folder.path / MANIFEST).read_text().endswith("]\n}\n")
        # The next life of the master goes on in it, and comes to the same end.
        folder.claim("job", "old", resume=False, overwrite=False)
        finish_folder(SystemFiles(), folder.path)
        names = {entry.name for entry in folder.path.iterdir() if not entry.name.endswith(BEGUN)}
        assert names == {NAME, OTHER, MANIFEST}
        if not died:
            break
    assert not died
    assert moment > 8


@pytest.mark.parametrize("work", ["overwrite_folder", "resume_folder"])
@pytest.mark.parametrize("is_whole", [True, False], ids=["whole", "begun"])
def test_no_manifest_vouches_for_files_that_are_being_replaced(tmp_path, work, is_whole):
    for moment in range(200):
        folder = folder_of_job(tmp_path / f"{moment}", is_whole=is_whole)
        died = die_at(moment, work, folder.path)
        parts = [p for p in PARTS if (folder.path / p.file).exists()]
        if (folder.path / MANIFEST).exists():
            assert len(parts) == 2, moment
        # A restarted master makes the folder its own all the same.
        globals()[work](SystemFiles(), folder.path)
        assert not (folder.path / MANIFEST).exists()
        assert (folder.path / OWNER).exists()
        kept = [p for p in PARTS if (folder.path / p.file).exists()]
        assert kept == (parts if work == "resume_folder" else [])
        if not died:
            break
    assert not died
    assert moment > 8


def test_a_master_that_dies_in_a_new_folder_is_not_in_its_own_way(tmp_path):
    for moment in range(100):
        path = tmp_path / str(moment)
        died = die_at(moment, "claim_new", path)
        claim_new(SystemFiles(), path)
        assert (path / OWNER).exists()
        if not died:
            break
    assert not died


def claim_new(files, path):
    PredictionFolder(Path(path), files).claim("job", "new", resume=False, overwrite=False)


def test_another_jobs_folder_is_refused_and_named(tmp_path):
    folder = folder_of_job(tmp_path / "out", is_whole=True)
    for resume in (False, True):
        with pytest.raises(JobSpecError, match="of the job job") as raised:
            folder.claim("other", "new", resume=resume, overwrite=False)
        assert "--resume" not in str(raised.value)
    assert (folder.path / MANIFEST).exists()
