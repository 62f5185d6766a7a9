"""Objects that are wrong are refused, by the schema or the reader, with the field and the value."""

import pytest
from support.invalid_objects import GONE, changed, kinds
from support.structural import refusals

from elastic.controller.resources.definitions import definitions

SCHEMAS = {
    each["spec"]["names"]["kind"]: each["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for each in definitions()
}
CASES = [
    pytest.param(kind, row, id=f"{kind.VALID['kind']}-{row.path}-{str(row.value)[:30]}")
    for kind in kinds()
    for row in kind.ROWS
]


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


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.VALID["kind"]) for kind in kinds()])
def test_without_the_change_nothing_is_wrong(kind):
    assert _messages(kind, kind.VALID) == []


def test_there_are_enough_of_them():
    assert len(CASES) >= 40
