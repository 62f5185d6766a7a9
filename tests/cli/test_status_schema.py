"""The documents of `status -o json` keep to the schema that is published for them."""

import json
from pathlib import Path

import pytest
from support.schema import problems
from support.statuses import failed, running, succeeded

import elastic
from elastic.cli.showing import listed_document, schema_text, status_schema
from elastic.spec.status import SCHEMA_VERSION, JobStatus, document

SCHEMA_PATH = Path(elastic.__file__).parents[1] / "docs" / "status.schema.json"
SCHEMA = json.loads(schema_text())


def test_the_committed_schema_is_current():
    assert SCHEMA_PATH.read_text(encoding="utf-8") == schema_text(), (
        "write it anew: elastic status --schema > docs/status.schema.json"
    )


def test_every_field_is_described():
    assert [
        f"{name}.{field}"
        for name, form in SCHEMA["$defs"].items()
        for field, told in form.get("properties", {}).items()
        if not told.get("description")
    ] == []


@pytest.mark.parametrize(
    "status",
    [JobStatus(job_name="new"), running(), failed(), succeeded(),
     running(metrics={"loss": float("nan")})],
)  # fmt: skip
def test_documents_keep_to_the_schema(status):
    told = json.loads(json.dumps(document(status), allow_nan=False))
    assert problems(told, SCHEMA) == []
    listed = listed_document(status, "team")
    assert problems([listed, listed], SCHEMA) == []
    assert told["schema_version"] == SCHEMA_VERSION
    assert set(told) == set(SCHEMA["$defs"]["JobStatus"]["properties"])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"phase": "Dreaming"}, "$.phase: 'Dreaming' is none of"),
        ({"workers": None}, "$.workers: None is no array"),
        ({"metrics": {"loss": "low"}}, "$.metrics.loss: 'low' is no number"),
    ],
)
def test_what_does_not_keep_to_it_is_found(change, problem):
    assert problems(document(running()) | change, SCHEMA)[0].startswith(problem)
    told = document(running())
    del told["progress"]["loss"]
    assert problems(told, SCHEMA) == ["$.progress: no loss"]


def test_a_field_may_be_added_without_another_version():
    assert problems(document(running()) | {"priority": 3}, SCHEMA) == []


FIELDS_OF_VERSION_1 = {
    "schema_version", "job_name", "phase", "reason", "message", "submitted_s", "started_s",
    "ended_s", "updated_s", "desired_workers", "workers", "progress", "audits", "audits_left_out",
    "metrics", "checkpoint", "checkpoint_problem", "export", "master_restarts", "worker_failures",
    "workers_lost", "events", "evaluation", "time_split",
}  # fmt: skip


def test_no_field_goes_without_another_version():
    assert SCHEMA_VERSION == 1
    form = status_schema()["$defs"]["JobStatus"]
    assert set(form["properties"]) >= FIELDS_OF_VERSION_1
    assert set(form["required"]) == set(form["properties"])
