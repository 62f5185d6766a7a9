"""Objects that are wrong are refused, by the schema or the kind, with the field and the value."""

import json

import pytest
from pydantic import Field
from support.invalid_objects import GONE, Row, changed, field_paths, kinds, untested
from support.structural import refusals

from elastic.controller.assembly import assembled, everything
from elastic.controller.reconciling import ClusterView, EventType, Observed
from elastic.controller.resources.common import Fields
from elastic.controller.resources.definitions import definitions

SCHEMAS = {
    each["spec"]["names"]["kind"]: each["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for each in definitions()
}
RECONCILERS = {
    kind.resource.kind: kind for kind in assembled().make_kinds(everything).values()
}  # fmt: skip
ALL = [pytest.param(kind, id=kind.VALID["kind"]) for kind in kinds()]
CASES = [
    pytest.param(kind, row, id=f"{kind.VALID['kind']}-{row.path}-{str(row.value)[:30]}")
    for kind in kinds()
    for row in kind.ROWS
]
READ = [
    case
    for case in CASES
    for kind, row in [case.values]
    if kind.VALID["kind"] in RECONCILERS and kind.read(changed(kind.VALID, row)).problem
]
"""Those that a kind itself refuses, and that is looked after by this version."""


def _messages(kind, job) -> list[str]:
    problem = kind.read(job).problem
    return [*refusals(job, SCHEMAS[job["kind"]]), *([problem] if problem else [])]


@pytest.mark.parametrize(("kind", "row"), CASES)
def test_field_and_value_are_named(kind, row):
    messages = _messages(kind, changed(kind.VALID, row))
    fitting = [each for each in messages if row.names in each and row.told in each]
    assert fitting, f"refused as {messages}"
    if not (row.value is GONE or row.told or row.field):
        assert any(repr(row.value)[:100] in each for each in fitting), fitting


@pytest.mark.parametrize(("kind", "row"), READ)
def test_what_no_schema_refuses_fails_with_that_as_its_reason(kind, row):
    """Also what a schema does refuse: a cluster may have an older one."""
    job = changed(kind.VALID, row)
    reconciler, problem = RECONCILERS[job["kind"]], kind.read(job).problem
    job["metadata"] |= {"namespace": "team", "uid": "u", "generation": 1}
    children = {each: [] for each in reconciler.children}
    outcome = reconciler.reconcile(Observed(job, children, 1.7e9, ClusterView([], [])))
    assert outcome.actions in ((), [])
    (note,) = outcome.notes
    assert note.type is EventType.WARNING
    assert problem in note.message
    told = json.dumps(outcome.status, ensure_ascii=False)
    assert json.dumps(problem, ensure_ascii=False)[1:-1] in told
    assert "Failed" in told or '"phase": "failed"' in told


@pytest.mark.parametrize("kind", ALL)
def test_without_the_change_nothing_is_wrong(kind):
    assert _messages(kind, kind.VALID) == []


@pytest.mark.parametrize("kind", ALL)
def test_every_field_has_a_row(kind):
    assert untested(kind.SPEC, kind.ROWS) == []


def test_every_kind_that_is_looked_after_has_its_rows():
    assert {kind.VALID["kind"] for kind in kinds()} == SCHEMAS.keys()
    assert RECONCILERS.keys() <= SCHEMAS.keys()


@pytest.mark.parametrize("kind", ALL)
def test_there_are_enough_of_them(kind):
    assert len(kind.ROWS) >= 40


def test_a_field_that_no_row_is_about_is_found():
    class Part(Fields):
        size: int = 1

    class Spec(Fields):
        first: Part | None = None
        others: list[Part] = Field(default=[], alias="more")
        amounts: dict[str, int] | None = None

    paths = ["spec", "spec.first", "spec.first.size", "spec.more", "spec.more.0"]
    assert list(field_paths(Spec)) == [*paths, "spec.more.0.size", "spec.amounts"]
    rows = [Row("spec.first", 1), Row("spec.more.0.size", "x"), Row("spec.amounts.cpu", None)]
    assert untested(Spec, rows) == ["spec.first.size"]
