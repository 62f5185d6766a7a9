"""How a status is read back that another version may have written."""

import json

import pytest
from pydantic import TypeAdapter, ValidationError

from elastic.errors import TransitionError
from elastic.platforms.local.directory import JobDirectory
from elastic.spec.status import (
    FINAL_PHASES,
    TRANSITIONS,
    JobPhase,
    JobStatus,
    StoredStatus,
    WorkerStatus,
)

STORED = TypeAdapter(StoredStatus)
STATUS = JobStatus(
    job_name="mnist",
    phase=JobPhase.RUNNING,
    workers=(WorkerStatus(index=0, launch=1, phase="Running"),),
    metrics={"loss": 0.5},
)


def newer():
    """The same status as a later version might write it."""
    document = json.loads(STATUS.model_dump_json())
    document["priority"] = {"class": "high"}
    document["progress"]["joules"] = 7
    document["workers"][0]["node"] = "node-0"
    return document


def test_what_a_newer_version_added_is_passed_over():
    assert STORED.validate_json(json.dumps(newer())) == STATUS
    assert STORED.validate_python(newer()) == STATUS


def test_a_folder_is_read_so_too(tmp_path):
    (tmp_path / "status.json").write_text(json.dumps(newer()))
    assert JobDirectory(tmp_path).status() == STATUS


def test_a_value_that_is_not_a_number_is_read_back_as_that():
    document = newer()
    document["metrics"] = {"loss": float("nan")}
    read = STORED.validate_json(json.dumps(document))
    assert str(read.metrics["loss"]) == "nan"


def test_a_phase_that_nobody_knows_stays_an_error():
    with pytest.raises(ValidationError, match="phase"):
        STORED.validate_json(json.dumps(newer() | {"phase": "Dreaming"}))


def test_who_builds_a_status_is_still_told_of_a_wrong_name():
    with pytest.raises(ValidationError, match="Extra inputs"):
        JobStatus(job_name="mnist", prioritty=1)


def test_the_audit_of_a_version_that_kept_one_for_each_epoch_is_of_one_epoch():
    document = newer() | {"audits": [{"epoch": 2, "records": 4, "committed": 4, "skipped": 0}]}
    [audit] = STORED.validate_json(json.dumps(document)).audits
    assert (audit.epoch, audit.num_epochs) == (2, 1)


class TestPhases:
    @pytest.mark.parametrize("before", JobPhase)
    @pytest.mark.parametrize("after", JobPhase)
    def test_a_job_enters_what_the_table_says_and_nothing_else(self, before, after):
        status = JobStatus(job_name="a", phase=before)
        if after in TRANSITIONS[before] or after is before:
            changed = status.entering(after, "Why", "because", ended_s=3.0)
            assert (changed.phase, changed.reason, changed.message) == (after, "Why", "because")
            assert changed.ended_s == 3.0
        else:
            with pytest.raises(TransitionError, match=f"{before} cannot become {after}"):
                status.entering(after, "", "")

    def test_every_phase_is_reached_from_the_first(self):
        reached, last = set(), {JobPhase.PENDING}
        while last - reached:
            reached |= last
            last = {after for before in reached for after in TRANSITIONS[before]}
        assert set(JobPhase) == reached

    def test_every_job_can_be_cancelled_and_can_fail_until_it_has_ended(self):
        for phase in set(JobPhase) - FINAL_PHASES:
            assert {JobPhase.CANCELLED, JobPhase.FAILED} <= TRANSITIONS[phase]
        assert {JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.CANCELLED} == FINAL_PHASES

    def test_one_that_is_not_ended_becomes_recovering_when_its_master_is_lost(self):
        for phase in set(JobPhase) - FINAL_PHASES:
            assert phase.to(JobPhase.RECOVERING) is JobPhase.RECOVERING
