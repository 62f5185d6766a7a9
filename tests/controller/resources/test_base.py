"""Specs as users write them: what is wrong is named with its value, what is unknown by its path."""

import pytest
from pydantic import Field, model_validator

from elastic.controller.resources.common import Fields, read_spec


class Part(Fields):
    min_size: int = Field(1, ge=1)
    max_size: int = 9

    @model_validator(mode="after")
    def _check_range(self):
        if self.max_size < self.min_size:
            raise ValueError(f"maxSize={self.max_size} is below minSize={self.min_size}")
        return self


class Whole(Fields):
    part: Part
    by_name: dict[str, Part] = Field({})


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ({}, "spec.part is missing"),
        (None, "spec.part is missing"),
        ({"part": {"minSize": "x"}}, "spec.part.minSize='x': Input should be a valid integer"),
        ({"part": {}, "byName": {"a": {"minSize": 0}}}, "spec.byName.a.minSize=0: "),
        ({"part": {"minSize": 3, "maxSize": 2}}, "spec.part: maxSize=2 is below minSize=3"),
        (["part"], "spec=['part']: "),
    ],
)
def test_field_and_value_that_are_wrong_are_named(written, problem):
    reading = read_spec(Whole, {"spec": written})
    assert reading.spec is None
    assert reading.problem.startswith(problem)


def test_a_long_value_is_cut():
    problem = read_spec(Whole, {"spec": {"part": "x" * 1000}}).problem
    assert "x" * 90 + "…" in problem[:120]
    assert len(problem) < 300


def test_unknown_fields_are_told_by_their_paths():
    written = {"part": {"colour": 1}, "byName": {"a": {"size": 2}}, "other": 3}
    reading = read_spec(Whole, {"spec": written})
    assert set(reading.unknown) == {"spec.part.colour", "spec.byName.a.size", "spec.other"}
