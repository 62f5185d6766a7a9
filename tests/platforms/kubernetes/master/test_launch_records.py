"""What the master writes down about its launches."""

import pytest

from elastic.errors import PlatformError
from elastic.platforms.base import ExitReason, Replica, ReplicaId, ReplicaPhase
from elastic.platforms.kubernetes.master.launches import Launch, LaunchRecords

FIRST = ReplicaId("worker", 0, 1)
AGAIN = ReplicaId("worker", 0, 2)
ENDED = Replica(FIRST, ReplicaPhase.FAILED, ExitReason.KILLED, message="deleted")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "launches.json"


def reopened(path):
    book = LaunchRecords(path)
    book.load()
    return {launch.replica: launch for launch in book}


def test_a_later_life_knows_what_was_launched_and_how_it_ended(path):
    book = LaunchRecords(path)
    book.load()
    book.add(Launch(FIRST))
    assert reopened(path) == {FIRST: Launch(FIRST)}
    book.note(Launch(FIRST, "uid", ENDED))
    assert reopened(path) == {FIRST: Launch(FIRST, "uid", ENDED)}


def test_a_forgotten_number_stays_taken_until_a_later_one_is_known(path):
    book = LaunchRecords(path)
    book.add(Launch(FIRST, "uid", ENDED))
    book.forget(FIRST)
    assert (book.newest(0), reopened(path)[FIRST].is_forgotten) == (1, True)
    book.add(Launch(AGAIN))
    book.forget(FIRST)
    assert reopened(path) == {AGAIN: Launch(AGAIN)}


def test_a_launch_that_cannot_be_written_is_none(tmp_path):
    book = LaunchRecords(tmp_path / "no" / "such" / "folder")
    with pytest.raises(PlatformError, match="cannot write"):
        book.add(Launch(FIRST))
    assert list(book) == []


def test_a_fact_that_cannot_be_written_counts_and_is_written_later(tmp_path):
    folder = tmp_path / "late"
    book = LaunchRecords(folder / "launches.json")
    book.note(Launch(FIRST, "uid"))
    assert book.get(FIRST) == Launch(FIRST, "uid")
    folder.mkdir()
    book.flush()
    assert reopened(folder / "launches.json") == {FIRST: Launch(FIRST, "uid")}


def test_a_damaged_book_says_what_to_do(path):
    path.write_text("{")
    with pytest.raises(PlatformError, match=r"is damaged.*--resume"):
        LaunchRecords(path).load()
