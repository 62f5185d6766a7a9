"""Rows in fewer bits: near the number, which is their mean, and by a chance that is fixed."""

import numpy as np
import pytest

from elastic.rows.arithmetic import numbers_of, packed, put_numbers, repacked, unpacked
from elastic.rows.base import ROW_DTYPES, Change, Table, TableForm

NARROW = ("bfloat16", "int8")
STEP = {"bfloat16": 2**-7, "int8": 1 / 127}
"""The largest step between numbers that are stored, as a part of the largest of a row."""


def table_of(row_dtype, dim=5, name="items"):
    return Table(name, dim, "zeros", row_dtype=row_dtype)


def some_rows(num_rows, dim, seed=3):
    rng = np.random.default_rng(seed)
    sizes = 10.0 ** rng.integers(-6, 6, (num_rows, 1))
    return (rng.normal(size=(num_rows, dim)) * sizes).astype(np.float32)


def stored(table, values, step=1):
    """What is read of values that an update has left."""
    ids = np.arange(len(values), dtype=np.int64)
    words = packed(table, values, ids, step)
    assert words.shape == (len(values), table.num_words)
    assert words.dtype == np.float32
    return unpacked(table, words)


@pytest.mark.parametrize(
    ("row_dtype", "dim", "num_words"),
    [
        ("float32", 5, 5),
        ("bfloat16", 4, 2),
        ("bfloat16", 5, 3),
        ("int8", 1, 2),
        ("int8", 4, 2),
        ("int8", 5, 3),
        ("int8", 64, 17),
    ],
)
def test_values_take_as_many_words_as_they_need(row_dtype, dim, num_words):
    table = table_of(row_dtype, dim)
    assert table.num_words == num_words
    assert TableForm(table, ("mean", "square"), ("count",)).width == num_words + 2 * dim + 1
    assert stored(table, some_rows(7, dim)).shape == (7, dim)


def test_float32_is_kept_bit_by_bit():
    values = np.float32([[0.1, -0.0, 1e-42, np.inf, np.nan]])
    assert stored(table_of("float32"), values).tobytes() == values.tobytes()


@pytest.mark.parametrize("row_dtype", NARROW)
def test_numbers_are_off_by_less_than_a_step(row_dtype):
    values = some_rows(1000, 5)
    off = np.abs(stored(table_of(row_dtype), values) - values)
    of = np.abs(values) if row_dtype == "bfloat16" else np.abs(values).max(axis=1, keepdims=True)
    assert (off <= of * STEP[row_dtype] * 1.0001).all()
    assert off.any()


@pytest.mark.parametrize("row_dtype", NARROW)
def test_the_mean_of_many_updates_is_the_number(row_dtype):
    """To the nearest, each of these is off by two fifths of a step, and always to the same side."""
    values = np.ones((2000, 5), np.float32)
    values[:, 1:] += np.float32(0.4 * STEP[row_dtype])
    if row_dtype == "int8":
        values[:, 1:] -= 1
    means = np.mean(
        [stored(table_of(row_dtype), values, step) for step in range(1, 6)], axis=(0, 1)
    )
    np.testing.assert_allclose(means, values[0], atol=0.02 * STEP[row_dtype])


@pytest.mark.parametrize("row_dtype", NARROW)
def test_small_updates_are_not_lost(row_dtype):
    """Each is a tenth of a step."""
    table, values = table_of(row_dtype), np.ones((500, 5), np.float32)
    for step in range(1, 101):
        values[:, 1:] -= np.float32(0.1 * STEP[row_dtype] / 2)
        values = stored(table, values, step)
    np.testing.assert_allclose(
        values[:, 1:].mean(), 1 - 5 * STEP[row_dtype], rtol=0.1 * STEP[row_dtype]
    )


@pytest.mark.parametrize("row_dtype", NARROW)
def test_what_is_stored_already_stays_as_it_is(row_dtype):
    table, values = table_of(row_dtype), some_rows(1000, 5)
    once = stored(table, values, 1)
    np.testing.assert_allclose(stored(table, once, 2), once, rtol=1e-6)


@pytest.mark.parametrize("row_dtype", NARROW)
def test_chance_follows_from_table_id_and_update(row_dtype):
    table, values, ids = table_of(row_dtype), np.full((50, 5), 0.3, np.float32), np.arange(50)
    values[:, 0] = 1
    words = packed(table, values, ids, 7)
    assert packed(table, values[10:20], ids[10:20], 7).tobytes() == words[10:20].tobytes()
    others = [
        packed(table, values, ids + 50, 7),
        packed(table, values, ids, 8),
        packed(table_of(row_dtype, name="users"), values, ids, 7),
    ]
    assert len({words.tobytes(), *(other.tobytes() for other in others)}) == 4


def test_what_is_no_number_does_not_become_one():
    odd = [np.nan, np.inf, -np.inf, -np.nan, 1.0]
    values = np.float32([odd, [0.0, -0.0, 0.0, 0.0, 0.0]])
    # All bits set: what is added must not be carried into the sign.
    values.view(np.uint32)[0, 0] = 0x7FFFFFFF
    for step in range(20):
        found = stored(table_of("bfloat16"), values, step)
        np.testing.assert_array_equal(found, values)
        found = stored(table_of("int8"), values, step)
        assert np.isnan(found[0]).all(), "a row with an infinite scale is lost, and says so"
        assert not found[1].any()


@pytest.mark.parametrize("row_dtype", ROW_DTYPES)
def test_an_update_changes_values_and_slots_and_no_note(row_dtype):
    form = TableForm(table_of(row_dtype), ("moment",), ("count", "seen"))
    rng = np.random.default_rng(4)
    rows = rng.integers(0, 2**30, (6, form.width)).astype(np.int32).view(np.float32)
    rows[:, : form.table.num_words] = packed(form.table, some_rows(6, 5), np.arange(6), 1)
    notes = rows[:, -2:].tobytes()
    numbers = numbers_of(form, rows)
    assert numbers.shape == (6, 10)
    numbers[:] = some_rows(6, 10, seed=5)
    wanted = numbers.copy()
    put_numbers(form, rows, numbers, np.arange(6), 2)
    assert rows[:, -2:].tobytes() == notes
    again = numbers_of(form, rows)
    np.testing.assert_array_equal(again[:, 5:], wanted[:, 5:])
    largest = np.abs(wanted[:, :5]).max(axis=1, keepdims=True)
    assert (np.abs(again[:, :5] - wanted[:, :5]) <= largest * STEP.get(row_dtype, 0) * 1.0001).all()


@pytest.mark.parametrize("row_dtype", ROW_DTYPES)
@pytest.mark.parametrize("was", ROW_DTYPES)
def test_rows_go_on_as_another_dtype(was, row_dtype):
    old, new, ids = table_of(was), table_of(row_dtype), np.arange(6)
    part = Change(
        ids,
        np.concatenate([packed(old, some_rows(6, 5), ids, 1), np.ones((6, 3), np.float32)], axis=1),
    )
    words = repacked(new, old, part, 9)
    before, after = unpacked(old, part.values), unpacked(new, words)
    if was == row_dtype:
        assert words.tobytes() == np.ascontiguousarray(part.values[:, : old.num_words]).tobytes()
    largest = np.abs(before).max(axis=1, keepdims=True)
    assert (np.abs(after - before) <= largest * STEP.get(row_dtype, 0) * 1.0001).all()
