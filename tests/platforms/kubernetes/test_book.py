"""What the master writes down about its launches, and about its own lives."""

import pytest
from support.pods import pod

from elastic.errors import PlatformError
from elastic.platforms.base import ExitReason, Replica, ReplicaId, ReplicaPhase
from elastic.platforms.kubernetes.book import Launch, LaunchBook
from elastic.platforms.kubernetes.lives import verdict
from elastic.platforms.last_words import STEP_NAME
from elastic.policy.masters import MAX_MASTER_CRASHES, EndJob
from elastic.spec.status import JobPhase, JobStatus, Progress

FIRST = ReplicaId("worker", 0, 1)
AGAIN = ReplicaId("worker", 0, 2)
ENDED = Replica(FIRST, ReplicaPhase.FAILED, ExitReason.KILLED, message="deleted")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "launches.json"


def reopened(path):
    book = LaunchBook(path)
    book.load()
    return {launch.replica: launch for launch in book}


def test_a_later_life_knows_what_was_launched_and_how_it_ended(path):
    book = LaunchBook(path)
    book.load()
    book.add(Launch(FIRST))
    assert reopened(path) == {FIRST: Launch(FIRST)}
    book.note(Launch(FIRST, "uid", ENDED))
    assert reopened(path) == {FIRST: Launch(FIRST, "uid", ENDED)}


def test_a_forgotten_number_stays_taken_until_a_later_one_is_known(path):
    book = LaunchBook(path)
    book.add(Launch(FIRST, "uid", ENDED))
    book.forget(FIRST)
    assert (book.newest(0), reopened(path)[FIRST].is_forgotten) == (1, True)
    book.add(Launch(AGAIN))
    book.forget(FIRST)
    assert reopened(path) == {AGAIN: Launch(AGAIN)}


def test_a_launch_that_cannot_be_written_is_none(tmp_path):
    book = LaunchBook(tmp_path / "no" / "such" / "folder")
    with pytest.raises(PlatformError, match="cannot write"):
        book.add(Launch(FIRST))
    assert list(book) == []


def test_a_fact_that_cannot_be_written_counts_and_is_written_later(tmp_path):
    folder = tmp_path / "late"
    book = LaunchBook(folder / "launches.json")
    book.note(Launch(FIRST, "uid"))
    assert book.get(FIRST) == Launch(FIRST, "uid")
    folder.mkdir()
    book.flush()
    assert reopened(folder / "launches.json") == {FIRST: Launch(FIRST, "uid")}


def test_a_damaged_book_says_what_to_do(path):
    path.write_text("{")
    with pytest.raises(PlatformError, match=r"is damaged.*--resume"):
        LaunchBook(path).load()


# -- lives of the master's container


def restarted(count, code=1, reason="Error", message="boom"):
    last = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
    entry = {"name": "elastic", "restartCount": count, "state": {}, "lastState": last}
    return pod({"phase": "Running", "containerStatuses": [entry]})


def status(version=0, phase=JobPhase.RUNNING):
    return JobStatus(job_name="j", phase=phase, progress=Progress(model_version=version))


def test_the_first_life_goes_on(tmp_path):
    fresh = pod({"containerStatuses": [{"name": "elastic", "restartCount": 0, "state": {}}]})
    assert verdict(tmp_path, fresh, None, cancelled=False) is None


def test_crashes_without_progress_end_the_job(tmp_path):
    verdicts = [
        verdict(tmp_path, restarted(number), status(5), cancelled=False)
        for number in range(1, MAX_MASTER_CRASHES + 1)
    ]
    assert verdicts[:-1] == [None] * (MAX_MASTER_CRASHES - 1)
    assert verdicts[-1].reason == "MasterCrashed"
    assert "boom" in verdicts[-1].message


def test_a_crash_loop_in_the_preparation_names_the_step_of_the_last_life(tmp_path):
    for number in range(1, MAX_MASTER_CRASHES + 1):
        (tmp_path / STEP_NAME).write_text(f"step {number}")
        end = verdict(tmp_path, restarted(number), None, cancelled=False)
    assert f"last while it prepared the job (step {MAX_MASTER_CRASHES}): boom" in end.message


def test_a_life_is_counted_once_however_often_it_is_looked_at(tmp_path):
    for _ in range(2 * MAX_MASTER_CRASHES):
        assert verdict(tmp_path, restarted(1), status(5), cancelled=False) is None


def test_progress_and_kills_cost_nothing(tmp_path):
    for number in range(1, 3 * MAX_MASTER_CRASHES):
        assert verdict(tmp_path, restarted(number), status(number), cancelled=False) is None
    for number in range(3 * MAX_MASTER_CRASHES, 5 * MAX_MASTER_CRASHES):
        killed = restarted(number, code=137, message="")
        assert verdict(tmp_path, killed, status(99), cancelled=False) is None


def test_a_published_end_is_the_end(tmp_path):
    final = status(phase=JobPhase.SUCCEEDED)
    assert verdict(tmp_path, restarted(1, 137), final, cancelled=True) == EndJob()


def test_a_cancelled_job_is_not_begun_again(tmp_path):
    end = verdict(tmp_path, restarted(1, 137), status(5), cancelled=True)
    assert end.phase is JobPhase.CANCELLED
