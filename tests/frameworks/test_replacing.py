"""How rows begin is read off the values of an ordinary layer."""

import numpy as np
import pytest

from elastic.frameworks.embeddings import initializer_of
from elastic.rows.arithmetic import first_rows
from elastic.rows.base import Table

RNG = np.random.default_rng(3)
SHAPE = (20_000, 8)


@pytest.mark.parametrize(
    "initializer", ["normal(1.0)", "normal(0.02)", "uniform(0.05)", "uniform(0.013)"]
)
def test_rows_that_our_own_initializers_make_are_known(initializer):
    rows = first_rows(Table("items", 8, initializer), np.arange(SHAPE[0]))
    assert initializer_of(rows) == initializer


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1])
def test_equal_numbers_stay_what_they_are(value):
    values = np.full((5, 2), value, np.float32)
    rows = first_rows(Table("items", 2, initializer_of(values)), np.arange(5))
    assert rows.tobytes() == values.tobytes()


def test_a_number_has_no_more_digits_than_the_values_bear_out():
    values = np.random.default_rng(3).uniform(-0.0173, 0.0173, SHAPE).astype(np.float32)
    assert initializer_of(values) == "uniform(0.0173)"
    assert initializer_of(values[:20]) == "uniform(0.02)"


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(RNG.uniform(0, 1, SHAPE), id="not around 0"),
        pytest.param(np.clip(RNG.normal(0, 1, SHAPE), -1.5, 1.5), id="cut off"),
        pytest.param(RNG.normal(0, 1, SHAPE) * np.arange(1, 9), id="columns of several scales"),
        pytest.param(RNG.normal(0, 1, SHAPE) + np.eye(8)[0] * 0.06, id="one column beside"),
        pytest.param(np.where(RNG.random(SHAPE) < 1e-4, np.nan, 0.1), id="not numbers"),
    ],
)
def test_other_values_are_of_no_initializer(values):
    assert initializer_of(values.astype(np.float32)) is None
