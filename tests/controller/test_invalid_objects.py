"""Objects that are wrong are refused, by the schema or the reader, with the field and the value."""

import pytest
from support.invalid_objects import GONE, changed, kinds
from support.structural import refusals

from elastic.controller.resources.base import read_spec
from elastic.controller.resources.definitions import DEFINITIONS, definitions

SCHEMAS = {
    each["spec"]["names"]["kind"]: each["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for each in definitions()
}
CASES = [
    pytest.param(valid, row, id=f"{valid['kind']}-{row.path}-{str(row.value)[:30]}")
    for valid, rows in kinds()
    for row in rows
]


def _messages(job) -> list[str]:
    problem = read_spec(DEFINITIONS[job["kind"]].spec, job).problem
    return [*refusals(job, SCHEMAS[job["kind"]]), *([problem] if problem else [])]


@pytest.mark.parametrize(("valid", "row"), CASES)
def test_field_and_value_are_named(valid, row):
    messages = _messages(changed(valid, row))
    fitting = [each for each in messages if row.names in each and row.told in each]
    assert fitting, f"refused as {messages}"
    if not (row.value is GONE or row.told or row.field):
        assert any(repr(row.value)[:100] in each for each in fitting), fitting


@pytest.mark.parametrize("valid", [pytest.param(valid, id=valid["kind"]) for valid, _ in kinds()])
def test_without_the_change_nothing_is_wrong(valid):
    assert _messages(valid) == []


def test_there_are_enough_of_them():
    assert len(CASES) >= 40
