"""How rows begin: the same everywhere, whatever comes together, and spread as asked for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.errors import ModelDefError
from elastic.rows.arithmetic import Initializer, first_rows, parse
from elastic.rows.base import Table

IDS = np.arange(-50_000, 50_000, dtype=np.int64)

UNIFORM = [
    [0.026193892583251, 0.031147431582212448],
    [-0.0015426396857947111, -0.03664923459291458],
]
NORMAL = [
    [0.0046763611026108265, 0.00010574340558378026],
    [-0.004364318680018187, -0.006521148607134819],
]


def rows(initializer, ids=IDS, name="items", dim=4):
    return first_rows(Table(name, dim, initializer), np.asarray(ids, np.int64))


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("uniform(0.05)", Initializer("uniform", 0.05)),
        (" normal ( 1e-2 ) ", Initializer("normal", 0.01)),
        ("uniform", Initializer("uniform", 0.05)),
        ("constant(-1)", Initializer("constant", -1.0)),
        ("zeros", Initializer("zeros", 0.0)),
        ("ones()", Initializer("ones", 1.0)),
    ],
)
def test_what_texts_say(text, read):
    assert parse(text) == read


@pytest.mark.parametrize(
    "text",
    ["glorot", "uniform(a)", "uniform(nan)", "constant", "zeros(1)", "uniform(1, 2)", "", "("],
)
def test_others_are_told_what_there_is(text):
    with pytest.raises(ModelDefError, match=r"uniform\(0.05\).*normal\(0.01\).*constant.*zeros"):
        parse(text)


def test_rows_are_those_of_every_version():
    assert rows("uniform(0.05)", [0, -1], dim=2).tolist() == UNIFORM
    assert rows("normal(0.01)", [0, -1], dim=2).tolist() == NORMAL


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_what_comes_with_an_id_does_not_matter(ids):
    for initializer in ("uniform(0.05)", "normal(0.01)"):
        each = np.concatenate([rows(initializer, [one]) for one in ids])
        np.testing.assert_array_equal(rows(initializer, ids), each)


def test_tables_ids_and_places_differ():
    made = rows("uniform(1)", dim=8)
    assert len(np.unique(made)) > 0.95 * made.size
    assert not np.isin(rows("uniform(1)", name="users")[:100], made[:100]).any()


def test_uniform_numbers_fill_their_range():
    made = rows("uniform(0.5)")
    assert (made.dtype, made.shape) == (np.float32, (len(IDS), 4))
    assert -0.5 <= made.min() < -0.49999
    assert 0.49999 < made.max() < 0.5
    assert made.mean() == pytest.approx(0, abs=0.002)
    assert made.std() == pytest.approx(1 / 12**0.5, rel=0.01)


def test_normal_numbers_have_their_deviation():
    made = rows("normal(2)") / 2
    assert made.mean() == pytest.approx(0, abs=0.005)
    assert made.std() == pytest.approx(1, rel=0.01)
    within = [np.mean(np.abs(made) < sigmas) for sigmas in (1, 2)]
    assert within == pytest.approx([0.683, 0.954], abs=0.005)
    correlations = np.corrcoef(made.T) - np.eye(4)
    assert np.abs(correlations).max() < 0.02


@pytest.mark.parametrize(("text", "value"), [("zeros", 0), ("ones", 1), ("constant(0.25)", 0.25)])
def test_constant_rows(text, value):
    assert (rows(text, [1, 2]) == value).all()


def test_no_ids_have_no_rows():
    assert rows("normal(1)", []).shape == (0, 4)
