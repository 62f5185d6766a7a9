"""Files replaced whole, locks and bells."""

import select
import shutil
import signal
import subprocess
import sys
import time

import pytest
from support.local_jobs import eventually

from elastic.errors import PlatformError
from elastic.platforms.base import ReplicaId
from elastic.platforms.local.directory import (
    Bell,
    Desired,
    JobDirectory,
    Lock,
    exists,
    read_whole,
    remove,
    write_whole,
)
from elastic.platforms.local.processes import birth_of, parse_replica, replica_name


def test_a_writer_killed_at_any_point_leaves_the_old_text_or_the_new(tmp_path):
    path = tmp_path / "status.json"
    program = (
        "import sys; from pathlib import Path\n"
        "from elastic.platforms.local.directory import write_whole\n"
        "while True:\n"
        "    for letter in 'ab': write_whole(Path(sys.argv[1]), letter * 1_000_000)\n"
    )
    for _ in range(5):
        writer = subprocess.Popen([sys.executable, "-c", program, str(path)])
        before = path.stat().st_mtime_ns if path.exists() else 0
        eventually(lambda before=before: path.exists() and path.stat().st_mtime_ns != before)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        text = read_whole(path)
        assert len(text) == 1_000_000
        assert len(set(text)) == 1


def test_a_missing_file_is_none_and_an_unreadable_one_an_error(tmp_path):
    assert read_whole(tmp_path / "none") is None
    with pytest.raises(PlatformError, match=str(tmp_path)):
        read_whole(tmp_path)


def test_a_write_that_fails_names_the_path_and_leaves_no_litter(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(PlatformError, match=r"cannot write .*folder.*ELASTIC_HOME"):
        write_whole(tmp_path / "folder", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize(
    ("ask", "nothing"),
    [
        pytest.param(exists, False, id="exists"),
        pytest.param(remove, None, id="remove"),
        pytest.param(lambda path: Lock(path).is_held(), False, id="is-held"),
    ],
)
def test_what_cannot_be_looked_at_is_not_taken_for_missing(tmp_path, ask, nothing):
    (tmp_path / "file").touch()
    for path in (tmp_path / "none", tmp_path / "none" / "of", tmp_path / "file" / "of"):
        assert ask(path) is nothing
    # Root may enter any folder, but no loop.
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(PlatformError, match="loop/of"):
        ask(tmp_path / "loop" / "of")


def test_a_launch_that_cannot_be_forgotten_is_told_as_an_error_of_the_platform(tmp_path):
    directory, replica = JobDirectory(tmp_path), ReplicaId("worker", 0, 1)
    directory.forget(replica)
    directory.exits_path.symlink_to(directory.exits_path)
    with pytest.raises(PlatformError, match="cannot remove"):
        directory.forget(replica)


def test_a_damaged_file_is_named(tmp_path):
    directory = JobDirectory(tmp_path)
    directory.status_path.write_text("{")
    with pytest.raises(PlatformError, match=r"status\.json is damaged"):
        directory.status()


def test_a_role_cannot_lead_out_of_the_folder(tmp_path):
    with pytest.raises(PlatformError, match="is not a role"):
        JobDirectory(tmp_path).write_desired(Desired(ReplicaId("../token", 0, 1)))


def test_a_lock_has_one_holder_and_dies_with_it(tmp_path):
    path = tmp_path / "lock"
    program = (
        "import sys; from pathlib import Path\n"
        "from elastic.platforms.local.directory import Lock\n"
        "assert Lock(Path(sys.argv[1])).is_held() is False\n"
        "lock = Lock(Path(sys.argv[1])); print(lock.take(), flush=True); sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout.readline() == b"True\n"
        lock = Lock(path)
        assert lock.is_held()
        assert not lock.take()
        holder.kill()
    assert not lock.is_held()
    assert lock.take()
    lock.release()
    assert Lock(path).take()


def _is_ready(descriptor):
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def test_a_bell_wakes_its_listener_and_nobody_else_is_held_up(tmp_path):
    bell = Bell(tmp_path / "bell")
    bell.ring()
    descriptor = bell.listen()
    assert not _is_ready(descriptor)
    # More rings than a pipe holds.
    for _ in range(70_000):
        Bell(tmp_path / "bell").ring()
    assert _is_ready(descriptor)
    bell.silence()
    assert not _is_ready(descriptor)
    bell.close()


@pytest.mark.parametrize("replica", [ReplicaId("worker", 0, 1), ReplicaId("tensor-board", 12, 3)])
def test_a_replicas_name_is_read_back(replica):
    assert parse_replica(replica_name(replica)) == replica


@pytest.mark.parametrize("text", ["", "worker", "worker-1", "worker-x-1", "worker-1-²"])
def test_other_names_are_no_replica(text):
    assert parse_replica(text) is None


def test_a_process_is_told_from_others_whatever_its_program_is_called(tmp_path):
    program = tmp_path / "a) b (c"
    program.symlink_to(shutil.which("sleep"))
    first = subprocess.Popen([program, "60"])
    births = [birth_of(first.pid), birth_of(first.pid)]
    # A tick takes a hundredth of a second.
    time.sleep(0.05)
    second = subprocess.Popen([program, "60"])
    births.append(birth_of(second.pid))
    for process in (first, second):
        process.kill()
        process.wait()
    assert births[0] == births[1] != births[2]
    assert birth_of(first.pid) is None
