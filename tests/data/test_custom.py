"""The user's own reader: what it may return, and what is said when it does something else."""

import itertools
import re

import numpy as np
import pytest

from elastic.data import open_reader
from elastic.data.base import ReadTask
from elastic.errors import DataError
from elastic.policy.tasks.records import Shard


class Squares:
    """A reader of the numbers 0..9, squared."""

    shards = (("squares", 0, 10),)

    def __init__(self, data_origin, records_per_task, power=2):
        self.made_with = (data_origin, records_per_task, power)
        self.power = power

    def create_shards(self):
        return self.shards

    def read_records(self, task):
        for number in range(task.start, task.end):
            yield number**self.power


def build(shards=None, read=None, **params):
    def custom(data_origin, records_per_task, **given):
        reader = Squares(data_origin, records_per_task, **given)
        if shards is not None:
            reader.shards = shards
        if read is not None:
            reader.read_records = read
        return reader

    return open_reader("origin", 4, params, custom)


@pytest.mark.parametrize(
    ("shards", "expected"),
    [
        pytest.param({"a": (0, 3), "b": (5, 2)}, [Shard("a", 0, 3), Shard("b", 5, 7)], id="dict"),
        pytest.param([("a", 0, 3), ("a", 3, 7)], [Shard("a", 0, 3), Shard("a", 3, 7)], id="tuples"),
        pytest.param([Shard("a", 1, 3, 77)], [Shard("a", 1, 3, 77)], id="shards"),
        pytest.param((["a", np.int64(0), np.int64(3)],), [Shard("a", 0, 3)], id="numpy-numbers"),
    ],
)
def test_forms_of_shards(shards, expected):
    assert build(shards).create_shards() == expected


@pytest.mark.parametrize(
    ("shards", "message"),
    [
        ([], "returned no shards"),
        ({}, "returned no shards"),
        (7, "returned 7: return a list of elastic Shard objects, a dict"),
        ({"a": 3}, "returned {'a': 3}: return a list"),
        ([("a", 3)], "returned the shard ('a', 3) (not enough values"),
        ([("a", 0, 1.5)], "returned the shard ('a', 0, 1.5) ("),
        ([("a", 5, 3)], "returned the shard ('a', 5, 3) (shard 'a' has the range [5, 3))"),
        ([("a", -1, 3)], "has the range [-1, 3)"),
        ([("a", 3, 3)], "returned the shard 'a' without records ([3, 3)): leave it out"),
        (
            [("a", 0, 5), ("b", 0, 5), ("a", 4, 6)],
            "returned record 4 of 'a' twice, in [0, 5) and [4, 6)",
        ),
    ],
)
def test_odd_shards(shards, message):
    with pytest.raises(DataError, match=re.escape(message)):
        build(shards).create_shards()


def test_it_is_made_with_the_parameters_of_the_job():
    made = []

    def custom(data_origin, records_per_task=None, **params):
        made.append((data_origin, records_per_task, params))
        return Squares(data_origin, records_per_task)

    open_reader("table", 5, {"project": "p"}, custom)
    assert made == [("table", 5, {"project": "p"})]


def test_records_of_a_range():
    reader = build(power=3)
    (shard,) = reader.create_shards()
    assert list(reader.read_records(ReadTask(shard, 2, 5))) == [8, 27, 64]
    assert list(reader.read_records(ReadTask(shard, 5, 5))) == []


def test_tasks_carry_their_range_wherever_elasticdl_readers_look():
    seen = []

    def read(task):
        seen.append((task.shard_name, task.start, task.end, task.shard.start, task.shard.end))
        return [0] * (task.end - task.start)

    reader = build(read=read)
    list(reader.read_records(ReadTask(Shard("a", 0, 10), 2, 4)))
    list(reader.read_records(ReadTask(Shard("a", 0, 10, offset_bytes=9), 2, 4)))
    # A reader that placed its shards by offset needs the shard as it made it.
    assert seen == [("a", 2, 4, 2, 4), ("a", 2, 4, 0, 10)]


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (
            2,
            "s, records [4, 7): read_records of the custom_data_reader delivered 2 records instead "
            "of 3",
        ),
        (0, "delivered 0 records instead of 3"),
        (4, "delivered 4 or more records instead of 3: stop at task.end"),
    ],
)
def test_another_number_of_records(count, message):
    reader = build(read=lambda task: list(range(count)))
    with pytest.raises(DataError, match=re.escape(message)):
        list(reader.read_records(ReadTask(Shard("s", 0, 10), 4, 7)))


def test_too_many_records_are_noticed_by_who_takes_only_what_was_asked_for():
    records = build(read=lambda task: iter(int, 1)).read_records(ReadTask(Shard("s", 0, 9), 0, 3))
    with pytest.raises(DataError, match="4 or more records instead of 3"):
        list(itertools.islice(records, 3))


def failing(task):
    yield 1
    raise KeyError("column")


@pytest.mark.parametrize(
    ("action", "message", "cause"),
    [
        pytest.param(
            lambda: open_reader("o", 4, {"colour": 1}, Squares),
            "custom_data_reader('o', 4, colour=1) failed: TypeError: ",
            TypeError,
            id="made",
        ),
        pytest.param(
            lambda: list(build(read=failing).read_records(ReadTask(Shard("s", 0, 9), 3, 6))),
            "s, records [3, 6), record 4: read_records of the custom_data_reader failed: KeyError: "
            "'column'",
            KeyError,
            id="read",
        ),
        pytest.param(
            lambda: list(
                build(read=lambda task: 1 / 0).read_records(ReadTask(Shard("s", 0, 9), 3, 6))
            ),
            "s, records [3, 6): read_records of the custom_data_reader failed: ZeroDivisionError",
            ZeroDivisionError,
            id="read-at-once",
        ),
        pytest.param(
            lambda: list(
                build(read=lambda task: None).read_records(ReadTask(Shard("s", 0, 9), 3, 6))
            ),
            "s, records [3, 6): read_records of the custom_data_reader failed: TypeError: ",
            TypeError,
            id="read-returns-nothing",
        ),
        pytest.param(
            lambda: open_reader("o", 4, {}, lambda *_: object()),
            "custom_data_reader returned a object without the method create_shards",
            type(None),
            id="no-reader",
        ),
    ],
)
def test_failures_name_the_range_and_keep_the_cause(action, message, cause):
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        action()
    assert isinstance(caught.value.__cause__, cause)


def test_a_failure_names_the_line_of_the_reader():
    line = failing.__code__.co_firstlineno + 2
    with pytest.raises(DataError, match=rf"KeyError: 'column' \({__file__}:{line}\)$"):
        list(build(read=failing).read_records(ReadTask(Shard("s", 0, 9), 3, 6)))


def test_failing_create_shards():
    reader = build()
    reader._reader.create_shards = lambda: [][0]
    with pytest.raises(DataError, match="create_shards of the custom_data_reader failed: IndexErr"):
        reader.create_shards()
