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
    records = LaunchRecords(path)
    records.load()
    return {launch.replica: launch for launch in records}


def test_a_later_life_knows_what_was_launched_and_how_it_ended(path):
    records = LaunchRecords(path)
    records.load()
    records.add(Launch(FIRST))
    assert reopened(path) == {FIRST: Launch(FIRST)}
    records.note(Launch(FIRST, "uid", ENDED))
    assert reopened(path) == {FIRST: Launch(FIRST, "uid", ENDED)}


def test_replicas_of_two_roles_are_told_apart(path):
    records = LaunchRecords(path)
    server = ReplicaId("ps", 0, 7)
    records.add(Launch(server))
    assert (records.newest("ps", 0), records.newest("worker", 0)) == (7, 0)
    records.add(Launch(FIRST))
    records.note(Launch(FIRST, "uid", ENDED))
    records.forget(FIRST)
    assert reopened(path).keys() == {server, FIRST}


def test_a_forgotten_number_stays_taken_until_a_later_one_is_known(path):
    records = LaunchRecords(path)
    records.add(Launch(FIRST, "uid", ENDED))
    records.forget(FIRST)
    assert (records.newest("worker", 0), reopened(path)[FIRST].is_forgotten) == (1, True)
    records.add(Launch(AGAIN))
    records.forget(FIRST)
    assert reopened(path) == {AGAIN: Launch(AGAIN)}


def test_a_launch_that_cannot_be_written_is_none(tmp_path):
    records = LaunchRecords(tmp_path / "no" / "such" / "folder")
    with pytest.raises(PlatformError, match="cannot write"):
        records.add(Launch(FIRST))
    assert list(records) == []


def test_a_fact_that_cannot_be_written_counts_and_is_written_later(tmp_path):
    folder = tmp_path / "late"
    records = LaunchRecords(folder / "launches.json")
    records.note(Launch(FIRST, "uid"))
    assert records.get(FIRST) == Launch(FIRST, "uid")
    folder.mkdir()
    records.flush()
    assert reopened(folder / "launches.json") == {FIRST: Launch(FIRST, "uid")}


def test_a_damaged_records_says_what_to_do(path):
    path.write_text("{")
    with pytest.raises(PlatformError, match=r"is damaged.*--resume"):
        LaunchRecords(path).load()
