"""What is kept of the transactions of late."""

import random
from itertools import pairwise

from elastic.rows.redis.link import KEPT_S, RedoLog


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


def log_of(*stamps, max_bytes=1000, size_bytes=1):
    """A log of transactions between these stamps, each with the number of its end as commands."""
    log = RedoLog(max_bytes)
    for number, (before, after) in enumerate(pairwise(stamps)):
        log.add(before, after, number, size_bytes)
    return log


def fills(log, stamp):
    return [written.fill for written in log.since(stamp)]


def test_all_since_a_stamp_are_made_again():
    log = log_of(None, b"1", b"2", b"3")
    assert fills(log, b"1") == [1, 2]
    assert fills(log, b"2") == [2]
    assert fills(log, b"3") == []
    assert fills(log, b"of another") == []
    assert fills(log, None) == [], "a server without a stamp has another disk"


def test_those_that_leave_the_stamp_are_made_again_with_all_at_it():
    # A hold at 1, and two at 2.
    log = log_of(None, b"1", b"1", b"2", b"2", b"2", b"3")
    assert fills(log, b"1") == [1, 2, 3, 4, 5]
    assert fills(log, b"2") == [3, 4, 5]


def test_more_than_there_is_room_for_is_forgotten():
    log = log_of(None, b"1", b"2", b"3", b"4", max_bytes=2)
    assert fills(log, b"1") == []
    assert fills(log, b"2") == [2, 3]


def test_where_others_at_a_stamp_are_forgotten_it_is_not_gone_on_from():
    log = log_of(None, b"1", b"1", b"2", b"3", max_bytes=2)
    assert fills(log, b"1") == [], "a hold at 1 may be lost, and is forgotten"
    assert fills(log, b"2") == [3]


def test_one_that_is_larger_than_the_room_leaves_nothing():
    log = log_of(None, b"1", b"2", max_bytes=5)
    log.add(b"2", b"3", "large", 6)
    assert [fills(log, stamp) for stamp in (None, b"1", b"2", b"3")] == [[], [], [], []]
    log.add(b"3", b"4", "next", 1)
    assert fills(log, b"3") == ["next"]


def test_what_is_on_the_disk_by_now_is_forgotten():
    clock = Clock()
    log = RedoLog(1000, clock)
    for number in range(10):
        clock.now_s = number * KEPT_S / 4
        log.add(b"%d" % number, b"%d" % (number + 1), number, 1)
    assert fills(log, b"4") == []
    assert fills(log, b"5") == [5, 6, 7, 8, 9]


def test_nothing_is_left_of_what_is_cleared():
    log = log_of(None, b"1", b"2")
    log.clear()
    assert fills(log, b"1") == []
    log.add(b"2", b"3", "next", 1)
    assert fills(log, b"2") == ["next"]


def written(draw, number, state):
    """A transaction on a store, as the stamp that it leaves and a function from state to state.

    A state is a stamp, rows, and the versions that are held.
    """
    if draw.random() < 0.4:
        held = state[2] ^ {draw.randrange(3)}
        return state[0], lambda now: (now[0], now[1], held)
    after, row = b"%d" % (number + 1), {draw.randrange(4): number}
    return after, lambda now: (after, {**now[1], **row}, now[2])


def test_a_server_that_has_any_beginning_of_what_was_written_is_brought_to_its_end():
    draw, num_brought = random.Random(4), 0
    for _ in range(300):
        log = RedoLog(draw.choice([5, 1000]))
        past = [(b"0", {}, frozenset())]
        for number in range(20):
            before = past[-1]
            after, fill = written(draw, number, before)
            past.append(fill(before))
            log.add(before[0], after, fill, 1)
        for seen in past:
            lost = log.since(seen[0])
            for each in lost:
                assert seen[0] == each.before
                seen = each.fill(seen)
            if lost:
                num_brought += 1
                assert seen == past[-1]
    assert num_brought > 300
