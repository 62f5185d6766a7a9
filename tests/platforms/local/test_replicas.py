"""What a supervisor makes of an end that it cannot see all of."""

import errno
import selectors
import sys
from contextlib import contextmanager

import pytest
from support.local_jobs import unreadable

from elastic.errors import PlatformError
from elastic.platforms.base import ExitReason, ReplicaId
from elastic.platforms.local import replicas
from elastic.platforms.local.directory import JobDirectory, Submission, Termination
from elastic.platforms.local.replicas import MemoryKills, ReplicaTable

WORKER = ReplicaId("worker", 0, 1)


@pytest.fixture
def directory(tmp_path):
    directory = JobDirectory(tmp_path / "job")
    for path in (
        directory.desired_path, directory.observed_path, directory.exits_path,
        directory.log_path(WORKER).parent,
    ):  # fmt: skip
        path.mkdir(parents=True)
    return directory


@contextmanager
def ended(directory, code):
    """A table whose worker has ended with a code, which it does not know yet."""
    with selectors.DefaultSelector() as selector:
        table = ReplicaTable(
            directory,
            Submission("uid", 0.0, {}),
            lambda _: [sys.executable, "-c", f"raise SystemExit({code})"],
            {},
            selector,
            MemoryKills.since_now(None),
        )
        assert table.start(WORKER) is None
        assert selector.select(60.0)
        yield table


def failing(error):
    def fail(*_):
        raise error

    return fail


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENFILE, "no descriptor"), PlatformError("cannot list /proc")],
    ids=["system", "listing"],
)
def test_an_end_is_told_though_its_children_cannot_be_looked_for(directory, monkeypatch, error):
    with ended(directory, 3) as table:
        monkeypatch.setattr(replicas, "find_members", failing(error))
        [replica] = table.reap()
    assert (replica.exit_reason, replica.exit_code) == (ExitReason.USER_ERROR, 3)


@pytest.mark.parametrize("is_readable", [True, False])
def test_a_worker_is_not_blamed_for_a_record_that_cannot_be_read(directory, is_readable):
    directory.write_termination(WORKER, Termination(ExitReason.COMPLETED, ""))
    [path] = directory.exits_path.iterdir()
    with ended(directory, 0) as table:
        if is_readable:
            [replica] = table.reap()
        else:
            with unreadable(path):
                [replica] = table.reap()
    assert replica.exit_reason is ExitReason.COMPLETED


def test_a_worker_that_has_written_no_record_is_blamed(directory):
    with ended(directory, 0) as table:
        [replica] = table.reap()
    assert replica.exit_reason is ExitReason.USER_ERROR
