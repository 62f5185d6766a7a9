"""How a status is read back that another version may have written."""

import json

import pytest
from pydantic import TypeAdapter, ValidationError

from elastic.platforms.local.directory import JobDirectory
from elastic.spec.status import JobPhase, JobStatus, StoredStatus, WorkerStatus

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
