"""Short waits are spent awake, others asleep."""

import hashlib
import os
import socket
import threading
import time

import pytest

from elastic.rpc.local import AWAKE_S, CROWDED, PAUSE_S, Vigil, num_displaced
from elastic.rpc.sockets import Connection


class Clocks:
    """A wall's and a processor's, and a connection whose answers take what they are told to."""

    def __init__(self):
        self.now_s = 0.0
        self.num_displaced, self.is_crowded = 0, False
        self.spun = []
        self.vigil = Vigil(lambda: self.now_s, lambda: self.num_displaced)

    def spin(self, seconds):
        waits_s = min(seconds, self.left_s)
        self.spun.append(round(seconds, 6))
        self.now_s += waits_s
        self.num_displaced += self.is_crowded
        self.left_s -= waits_s

    def ask(self, takes_s, kind=b"report"):
        """Whether it was waited for awake."""
        before, self.left_s = len(self.spun), takes_s
        with self.vigil.over(self, kind):
            self.now_s += self.left_s
        return len(self.spun) > before


@pytest.fixture
def clocks():
    return Clocks()


def test_the_first_of_a_kind_is_waited_for_asleep(clocks):
    assert [clocks.ask(0.002, kind) for kind in (b"a", b"b", b"a", b"b")] == [
        False, False, True, True,
    ]  # fmt: skip


def test_it_stays_awake_for_twice_as_long_as_the_last_one_took(clocks):
    clocks.ask(0.001)
    clocks.ask(0.0001)
    clocks.ask(0.001)
    clocks.ask(0.004)
    clocks.ask(0.001)
    assert clocks.spun == [0.002, 0.0002, 0.002, AWAKE_S]


def test_what_takes_long_is_waited_for_asleep_until_it_is_short_again(clocks):
    clocks.ask(0.001)
    assert clocks.ask(0.5), "nobody knew"
    assert not clocks.ask(0.5)
    assert not clocks.ask(0.001)
    assert clocks.ask(0.001)


def test_a_core_that_others_need_is_left_to_them(clocks):
    clocks.ask(0.001)
    clocks.is_crowded = True
    assert [clocks.ask(0.001) for _ in range(CROWDED + 1)] == [True] * CROWDED + [False]
    clocks.now_s += PAUSE_S
    assert [clocks.ask(0.001) for _ in range(CROWDED + 1)] == [True] * CROWDED + [False]


def test_a_core_that_others_need_now_and_then_is_not(clocks):
    clocks.ask(0.001)
    for number in range(10 * CROWDED):
        clocks.is_crowded = number % CROWDED > 0
        assert clocks.ask(0.001)


def test_a_core_that_two_threads_want_is_noticed():
    cores = os.sched_getaffinity(0)
    others = threading.Event()

    def compute():
        while not others.is_set():
            hashlib.sha256(bytes(1 << 20))

    thread = threading.Thread(target=compute, daemon=True)
    os.sched_setaffinity(0, {min(cores)})
    try:
        thread.start()
        before, until_s = num_displaced(), time.monotonic() + 30.0
        while num_displaced() == before and time.monotonic() < until_s:
            os.sched_yield()
            hashlib.sha256(bytes(1 << 16))
        assert num_displaced() > before
    finally:
        os.sched_setaffinity(0, cores)
        others.set()
        thread.join()


def test_one_thread_of_a_process_is_awake_and_the_others_sleep():
    one, other = Clocks(), Clocks()
    one.ask(0.001)
    other.ask(0.001)
    spin, meanwhile = one.spin, []

    def spin_while_the_other_asks(seconds):
        spin(seconds)
        meanwhile.append(other.ask(0.001))

    one.spin = spin_while_the_other_asks
    assert one.ask(0.001)
    assert meanwhile == [False]
    assert other.ask(0.001), "it may be awake again"


def test_an_answer_that_does_not_come_is_forgotten(clocks):
    clocks.ask(0.001)
    with pytest.raises(ConnectionError), clocks.vigil.over(clocks, b"report"):
        raise ConnectionError
    assert clocks.ask(0.001)


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    ours.settimeout(30.0)
    yield Connection(ours), theirs
    ours.close()
    theirs.close()


def _spun_s(connection, seconds, before=lambda: None):
    """How long it took, with what is begun right before."""
    began_s = time.perf_counter()
    before()
    connection.spin(seconds)
    return time.perf_counter() - began_s


def test_spinning_ends_when_something_comes_and_leaves_it_there(ends):
    connection, other = ends
    sending = threading.Timer(0.05, other.sendall, [b"\x03\0\0\0abc"])
    assert 0.05 <= _spun_s(connection, 20.0, sending.start) < 10.0
    assert connection.read_message() == b"abc"


def test_spinning_ends_after_its_time_and_reading_waits_on(ends):
    connection, other = ends
    assert _spun_s(connection, 0.01) >= 0.01
    threading.Timer(0.05, other.sendall, [b"\x01\0\0\0x"]).start()
    assert connection.read_message() == b"x"


def test_spinning_ends_when_the_other_side_goes_and_reading_says_so(ends):
    connection, other = ends
    other.close()
    assert _spun_s(connection, 20.0) < 10.0
    with pytest.raises(ConnectionError, match="the other process has closed"):
        connection.read_message()
