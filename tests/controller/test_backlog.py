"""How many notes an object may tell, and what becomes of those beyond."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.controller.machinery.recorder import MAX_GATHERED, MAX_MESSAGE, Backlog, Subject
from elastic.controller.reconciling import EventType, Note


def subject(name="job"):
    return Subject("tests.elastic.dev/v1", "Toy", "team", name, f"uid-{name}")


def add(backlog, message, reason="Made", now_s=0.0, name="job", type_=EventType.NORMAL):
    return backlog.add(subject(name), "toy-controller", Note(reason, message, type_), now_s)


def drain(backlog, now_s):
    found = []
    while (telling := backlog.take(now_s)) is not None:
        found.append((telling.topic.reason, telling.message, telling.count))
    return found


@pytest.fixture
def backlog():
    return Backlog(burst=3, refill_s=10.0, max_waiting=20)


def test_notes_are_told_one_by_one_as_they_came(backlog):
    add(backlog, "a")
    add(backlog, "b", reason="Lost")
    assert backlog.due_s(0.0) == 0.0
    assert drain(backlog, 0.0) == [("Made", "a", 1), ("Lost", "b", 1)]
    assert backlog.is_empty
    assert backlog.due_s(0.0) is None


def test_equal_notes_that_wait_are_one(backlog):
    for now_s in (1.0, 2.0, 3.0, 4.0, 5.0):
        add(backlog, "a", now_s=now_s)
    telling = backlog.take(5.0)
    assert (telling.count, telling.first_s, telling.last_s) == (5, 1.0, 5.0)
    assert backlog.take(5.0) is None


def test_an_object_that_tells_too_much_is_heard_less_often_and_others_as_before(backlog):
    for number in range(8):
        add(backlog, f"pod {number}")
    add(backlog, "x", reason="Lost")
    add(backlog, "y", name="other")
    told = drain(backlog, 0.0)
    assert told == [("Made", f"pod {number}", 1) for number in range(3)] + [("Made", "y", 1)]
    assert backlog.due_s(0.0) == 10.0
    assert drain(backlog, 9.9) == []
    assert drain(backlog, 10.0) == [("Made", "pod 3; pod 4; pod 5; pod 6; pod 7", 5)]
    assert backlog.due_s(10.0) == 20.0
    assert drain(backlog, 20.0) == [("Lost", "x", 1)]
    assert backlog.is_empty


def test_tokens_come_back_with_time_and_not_beyond_the_burst(backlog):
    for number in range(3):
        add(backlog, str(number))
    drain(backlog, 0.0)
    for number in range(4):
        add(backlog, str(number), now_s=1000.0)
    assert len(drain(backlog, 1000.0)) == 3


def test_who_leaves_tells_all(backlog):
    for number in range(8):
        add(backlog, str(number), reason=f"R{number}")
    told = []
    while (telling := backlog.take(0.0, is_leaving=True)) is not None:
        told.append(telling.message)
    assert sorted(told) == [str(number) for number in range(8)]
    assert backlog.is_empty


def test_there_is_an_end_of_what_waits(backlog):
    added = [add(backlog, str(number), name=f"job{number}") for number in range(30)]
    assert added == [True] * 20 + [False] * 10
    # What is waited for anyway is counted still.
    assert add(backlog, "0", name="job0")


def test_a_message_ends_somewhere_and_says_how_much_it_leaves_out(backlog):
    for number in range(3):
        add(backlog, f"spent {number}")
    drain(backlog, 0.0)
    for number in range(200):
        add(backlog, f"pod {number:03} {'x' * 40}")
    telling = backlog.take(10.0)
    assert telling.count == 200
    assert len(telling.message) <= MAX_MESSAGE + 20
    shown = telling.message.count("pod ")
    assert telling.message.endswith(f"; and {200 - shown} more")
    assert len(telling.messages) == MAX_GATHERED


def test_one_message_too_long_is_cut(backlog):
    add(backlog, "x" * 5000)
    assert len(backlog.take(0.0).message) == MAX_MESSAGE


NOTES = st.tuples(
    st.sampled_from("ab"), st.sampled_from("RS"), st.integers(0, 5), st.sampled_from([0.0, 4.0])
)


@given(st.lists(NOTES, max_size=60))
def test_every_note_is_told_exactly_once_and_never_too_many(notes):
    backlog, now_s, told, accepted = Backlog(3, 10.0, 20), 0.0, [], 0
    for name, reason, number, pause_s in notes:
        now_s += pause_s
        accepted += add(backlog, str(number), reason, now_s, name)
        telling = backlog.take(now_s)
        if telling is not None:
            told.append((now_s, telling))
    while not backlog.is_empty:
        now_s = max(now_s, backlog.due_s(now_s))
        told.append((now_s, backlog.take(now_s)))
    assert sum(telling.count for _, telling in told) == accepted
    for name in "ab":
        times_s = [at for at, telling in told if telling.topic.subject.name == name]
        assert len(times_s) <= 3 + now_s / 10.0 + 1e-6
