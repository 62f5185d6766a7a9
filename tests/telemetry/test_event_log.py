"""Event files: what TensorBoard reads of them, after restarts and on disks that take nothing."""

import errno
import subprocess
import sys
import threading
import time

import pytest
from support.curves import curve, read, text
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

from elastic.telemetry import board, event_file
from elastic.telemetry.board import EventLog
from elastic.telemetry.event_file import told_values
from elastic.telemetry.meter import EVALUATION, Point

PATIENCE_S = 60.0


def evaluate(folder, first_step, points, once=EVALUATION):
    """One life of a master, which tells results by name of some steps."""
    log = EventLog(folder, first_step, "", pytest.fail, once)
    log.start()
    for step, values in points:
        told = tuple((EVALUATION + name, value) for name, value in values.items())
        log.write(Point(step, 1000.0 + step, told))
    log.close(PATIENCE_S)


def write(folder, first_step, points, on_failure=pytest.fail):
    log = EventLog(folder, first_step, "| setting | value |", on_failure)
    log.start()
    for step, value in points:
        log.write(Point(step, 1000.0 + step, (("train/loss", value), ("epoch", 0.0))))
    log.close(PATIENCE_S)


def test_what_is_written_is_what_tensorboard_reads(tmp_path):
    write(tmp_path / "new" / "folder", 0, [(1, 0.5), (2, 0.25)])
    folder = tmp_path / "new" / "folder"
    assert curve(folder, "train/loss") == [(1, 0.5), (2, 0.25)]
    assert [e.wall_time for e in read(folder).Scalars("train/loss")] == [1001.0, 1002.0]
    assert text(folder) == "| setting | value |"


def test_a_restarted_master_writes_what_follows_its_cut_anew(tmp_path):
    """Lives may follow each other within a second, and TensorBoard never goes back to a file."""
    write(tmp_path, 0, [(step, float(step)) for step in range(1, 11)])
    write(tmp_path, 5, [(step, step + 0.5) for step in range(5, 8)])
    write(tmp_path, 7, [(7, 100.0), (8, 101.0)])
    assert curve(tmp_path, "train/loss") == [
        (1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0), (5, 5.5), (6, 6.5), (7, 100.0), (8, 101.0),
    ]  # fmt: skip


def test_what_tensorboard_itself_shows_follows_a_restart_too(tmp_path):
    """Its own reader is another one than that for programs."""
    write(tmp_path, 0, [(step, float(step)) for step in range(1, 6)])
    write(tmp_path, 3, [(3, 30.0)])
    shown = EventAccumulator(str(tmp_path)).Reload().Tensors("train/loss")
    assert [(e.step, make_ndarray(e.tensor_proto).item()) for e in shown] == [
        (1, 1.0), (2, 2.0), (3, 30.0)
    ]  # fmt: skip


def test_a_value_of_an_earlier_version_stays_beside_later_ones(tmp_path):
    log = EventLog(tmp_path, 0, "", pytest.fail)
    log.start()
    log.write(Point(10, 1.0, (("train/loss", 1.0),)))
    log.write(Point(4, 2.0, (("evaluation/accuracy", 0.5),)))
    log.write(Point(11, 3.0, (("train/loss", 2.0),)))
    log.close(PATIENCE_S)
    assert curve(tmp_path, "train/loss") == [(10, 1.0), (11, 2.0)]
    assert curve(tmp_path, "evaluation/accuracy") == [(4, 0.5)]


LOSS, ACCURACY = EVALUATION + "loss", EVALUATION + "accuracy"


def test_an_evaluation_that_is_done_again_is_told_once(tmp_path):
    """A cut of version 5 was taken while 3 and 5 were evaluated, and the master lost after 8."""
    evaluate(tmp_path, 0, [(3, {"loss": 3.0}), (5, {"loss": 5.0}), (8, {"loss": 8.0})])
    write(tmp_path, 6, [(6, 60.0)])
    evaluate(tmp_path, 6, [(3, {"loss": 3.0}), (5, {"loss": 5.0, "accuracy": 0.5})])
    evaluate(tmp_path, 6, [(5, {"loss": 5.0, "accuracy": 0.5}), (8, {"loss": 8.5})])
    assert curve(tmp_path, LOSS) == [(3, 3.0), (5, 5.0), (8, 8.5)]
    assert curve(tmp_path, ACCURACY) == [(5, 0.5)]


def test_an_evaluation_that_no_longer_stands_is_told_again(tmp_path):
    evaluate(tmp_path, 0, [(3, {"loss": 3.0}), (5, {"loss": 5.0})])
    evaluate(tmp_path, 4, [])
    evaluate(tmp_path, 6, [(3, {"loss": 3.5}), (5, {"loss": 5.5})])
    assert curve(tmp_path, LOSS) == [(3, 3.0), (5, 5.5)]
    evaluate(tmp_path, 0, [(3, {"loss": 3.75})])
    assert curve(tmp_path, LOSS) == [(3, 3.75)]


def test_another_evaluation_of_the_same_version_is_told_too(tmp_path):
    evaluate(tmp_path, 0, [(5, {"loss": 5.0})])
    evaluate(tmp_path, 6, [(5, {"loss": 0.25})], once=None)
    assert curve(tmp_path, LOSS) == [(5, 5.0), (5, 0.25)]


@pytest.mark.parametrize(
    "tail",
    [
        pytest.param(b"\x20", id="half-a-head"),
        pytest.param(b"\xff" * 12, id="longer-than-its-file"),
        pytest.param(b"\x02" + bytes(11) + b"\xff\xff" + bytes(4), id="no-event"),
    ],
)
def test_what_a_killed_master_has_left_unfinished_is_passed_over(tail, tmp_path):
    evaluate(tmp_path, 0, [(5, {"loss": 5.0})])
    [path] = tmp_path.iterdir()
    with path.open("ab") as file:
        file.write(tail)
    assert told_values(tmp_path, EVALUATION, 6) == {(LOSS, 5)}
    assert told_values(tmp_path, EVALUATION, 5) == set()


def test_a_value_without_its_whole_checksum_was_not_told(tmp_path):
    evaluate(tmp_path, 0, [(4, {"loss": 4.0}), (5, {"loss": 5.0})])
    [path] = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    assert told_values(tmp_path, EVALUATION, 6) == {(LOSS, 4)}


def test_a_file_that_cannot_be_read_stops_no_curve(tmp_path):
    evaluate(tmp_path, 0, [(5, {"loss": 5.0})])
    (tmp_path / "events.out.tfevents.0000000001.gone").symlink_to(tmp_path / "gone")
    assert told_values(tmp_path, EVALUATION, 6) == {(LOSS, 5)}


def test_a_folder_that_cannot_be_made_is_told_once(tmp_path):
    (tmp_path / "file").write_text("")
    said = []
    write(tmp_path / "file" / "below", 0, [(i, 0.0) for i in range(5)], said.append)
    assert len(said) == 1
    assert "Not a directory" in said[0]
    assert str(tmp_path / "file" / "below") in said[0]


def test_a_disk_that_is_full_is_told_once_and_tried_again(tmp_path, monkeypatch):
    monkeypatch.setattr(board, "RETRY_S", 0.0)
    monkeypatch.setattr(board, "FLUSH_S", 0.01)
    is_full, tried = threading.Event(), threading.Semaphore(0)

    class Disk(event_file.EventFile):
        def flush(self):
            if is_full.is_set():
                tried.release()
                raise OSError(errno.ENOSPC, "No space left on device")
            super().flush()

    monkeypatch.setattr(event_file, "EventFile", Disk)
    said = []
    log = EventLog(tmp_path, 0, "", said.append)
    log.start()
    log.write(Point(1, 1.0, (("train/loss", 1.0),)))
    wait_until(lambda: curve(tmp_path, "train/loss") == [(1, 1.0)], tmp_path)
    is_full.set()
    log.write(Point(2, 1.0, (("train/loss", 2.0),)))
    for _ in range(3):
        assert tried.acquire(timeout=PATIENCE_S)
    is_full.clear()
    log.write(Point(3, 1.0, (("train/loss", 3.0),)))
    log.close(PATIENCE_S)
    assert said == [f"{tmp_path}: No space left on device"]
    assert (3, 3.0) in curve(tmp_path, "train/loss")
    assert (1, 1.0) in curve(tmp_path, "train/loss")
    # What was begun on the full disk is not left lying about.
    assert len(list(tmp_path.iterdir())) == 2


def wait_until(condition, folder):
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            if condition():
                return
        except KeyError:
            pass
        assert time.monotonic() < deadline_s, list(folder.iterdir())
        time.sleep(0.01)


def test_who_writes_never_waits_for_a_disk(tmp_path, monkeypatch):
    """A disk that hangs holds up its own thread, and what does not fit its queue is left out."""
    going_on = threading.Event()

    class Hanging(event_file.EventFile):
        def write_point(self, point):
            going_on.wait()
            super().write_point(point)

    monkeypatch.setattr(event_file, "EventFile", Hanging)
    log = EventLog(tmp_path, 0, "", pytest.fail)
    log.start()
    # All of this is done before the disk takes the first one.
    for step in range(board.QUEUE_LENGTH + 10_000):
        log.write(Point(step, 1.0, (("train/loss", 1.0),)))
    log.close(0.0)
    going_on.set()
    log._thread.join(PATIENCE_S)
    assert not log._thread.is_alive(), "it was told to end while its queue was full"


def test_no_framework_is_imported_for_it(tmp_path):
    program = (
        "import sys; from pathlib import Path; from elastic.telemetry.event_file import EventFile\n"
        "from elastic.telemetry.meter import Point\n"
        "f = EventFile(Path(sys.argv[1]), 0); f.write_text('job', 'x')\n"
        "f.write_point(Point(1, 1.0, (('a', 1.0),))); f.close()\n"
        "sys.exit(bool({'tensorflow', 'torch', 'keras'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path], check=True)


def test_without_the_package_it_says_which_extra_has_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "elastic.telemetry.event_file", None)
    said = []
    write(tmp_path, 0, [(1, 1.0)], said.append)
    assert said == [board.MISSING]
    assert "pip install tensorboard" in said[0]
