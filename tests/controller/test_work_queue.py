"""The queue: each key once at a time, nothing that was asked for is lost, failures rest longer."""

import random
import threading

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.toy_kind import soon

from elastic.controller.machinery.engine import BackOff, WorkQueue


class Clock:
    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def queue(clock):
    return WorkQueue(BackOff(1.0, 8.0, jitter=0.0), now_s=clock)


def drain(queue):
    keys = []
    while (taken := queue.take_now()) is not None:
        keys.append(taken.key)
        queue.done(taken.key)
    return keys


def test_keys_come_in_the_order_of_asking_and_once(queue):
    for key in "abcab":
        queue.add(key)
    assert queue.depth == 3
    assert drain(queue) == ["a", "b", "c"]


def test_a_key_in_work_is_given_to_nobody_else_and_is_not_forgotten(queue, clock):
    queue.add("a")
    assert queue.take_now().key == "a"
    clock.now_s += 1.0
    queue.add("a")
    clock.now_s += 5.0
    queue.add("a")
    assert queue.take_now() is None
    assert queue.depth == 1
    queue.done("a")
    # Since the first time that it was asked for again.
    assert queue.take_now().since_s == 1001.0
    queue.done("a")
    assert queue.take_now() is None


def test_the_sooner_of_two_moments_counts_and_a_look_settles_it(queue, clock):
    queue.add_after("a", 10.0)
    queue.add_after("a", 5.0)
    queue.add_after("a", 20.0)
    assert drain(queue) == []
    clock.now_s += 5.0
    taken = queue.take_now()
    assert (taken.key, taken.since_s) == ("a", 1005.0)
    queue.done("a")
    clock.now_s += 100.0
    assert drain(queue) == []
    queue.add_after("b", 5.0)
    queue.add("b")
    assert drain(queue) == ["b"]
    clock.now_s += 100.0
    assert drain(queue) == []


def test_a_moment_that_was_asked_for_in_work_is_kept(queue, clock):
    queue.add("a")
    queue.take_now()
    queue.add_after("a", 1.0)
    clock.now_s += 2.0
    assert queue.take_now() is None
    queue.done("a")
    assert drain(queue) == ["a"]


def test_pauses_double_up_to_a_bound_and_begin_anew_after_a_success(queue):
    assert [queue.again("a") for _ in range(6)] == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    assert queue.again("b") == 1.0
    queue.forget("a")
    assert queue.again("a") == 1.0
    assert queue.again("a", at_least_s=30.0) == 30.0


def test_jitter_stays_within_its_part_and_differs():
    back_off, rng = BackOff(1.0, 100.0, jitter=0.25), random.Random(1)
    pauses = [back_off.pause_s(3, rng) for _ in range(100)]
    assert all(3.0 <= pause_s <= 4.0 for pause_s in pauses)
    assert len(set(pauses)) == 100
    assert back_off.pause_s(10_000, rng) <= 100.0


def test_many_that_fail_at_once_do_not_come_back_at_once(clock):
    queue = WorkQueue(BackOff(1.0, 60.0, 0.0), retries_per_s=10.0, retry_burst=5, now_s=clock)
    pauses = [queue.again(number) for number in range(25)]
    assert pauses == pytest.approx([1.0] * 5 + [1.0 + 0.1 * n for n in range(1, 21)])
    # However many there are: what fails last waits no longer than twice the longest pause.
    assert max(queue.again(number) for number in range(2000)) <= 120.0
    clock.now_s += 1000.0
    assert queue.again("late") == 1.0


def test_timers_that_were_replaced_take_no_room(queue, clock):
    for _ in range(5000):
        queue.add_after("a", 86_400.0)
        queue.add("a")
        drain(queue)
    assert len(queue._timers) < 200
    assert queue.num_later == 0


def test_closing_ends_who_waits_and_takes_nothing_more(queue):
    found = []
    threads = [threading.Thread(target=lambda: found.append(queue.take())) for _ in range(3)]
    for thread in threads:
        thread.start()
    queue.close()
    for thread in threads:
        thread.join(10.0)
    assert found == [None] * 3
    queue.add("a")
    queue.add_after("b", 0.0)
    assert queue.take_now() is None
    assert queue.take() is None
    assert (queue.depth, queue.num_later) == (0, 0)


def test_who_waits_is_woken_by_moments_too():
    queue = WorkQueue()
    got = []

    def work():
        while (taken := queue.take()) is not None:
            got.append(taken.key)
            queue.done(taken.key)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(200):
        queue.add_after(number, 0.0005 * (number % 40))
        queue.add(("at once", number))
    soon(lambda: len(got) == 400)
    queue.close()
    for thread in threads:
        thread.join(10.0)


def test_threads_never_work_on_one_key_together():
    queue, lock = WorkQueue(), threading.Lock()
    busy, overlaps, looks = set(), [], []

    def work():
        while (taken := queue.take()) is not None:
            with lock:
                overlaps.extend({taken.key} & busy)
                busy.add(taken.key)
            looks.append(taken.key)
            with lock:
                busy.discard(taken.key)
            queue.done(taken.key)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(5000):
        queue.add(number % 7)
    soon(lambda: queue.depth == 0)
    queue.close()
    for thread in threads:
        thread.join(10.0)
    assert not overlaps
    assert set(looks) == set(range(7))


class Model:
    """A queue beside what it should hold: whether each key is owed a look, and since when."""

    def __init__(self):
        self.clock = Clock()
        self.queue = WorkQueue(
            BackOff(1.0, 8.0, 0.5),
            retries_per_s=2.0,
            retry_burst=3,
            now_s=self.clock,
            rng=random.Random(0),
        )
        self.owed = {}
        self.later = {}
        self.in_work = set()

    def settle(self):
        for key, due_s in list(self.later.items()):
            if due_s <= self.clock.now_s:
                del self.later[key]
                self.owed.setdefault(key, due_s)

    def add(self, key):
        self.settle()
        self.queue.add(key)
        self.owed.setdefault(key, self.clock.now_s)

    def add_after(self, key, delay_s):
        self.settle()
        self.queue.add_after(key, delay_s)
        self._expect_later(key, delay_s)

    def again(self, key):
        self.settle()
        pause_s = self.queue.again(key)
        assert 0.5 <= pause_s <= 16.0
        self._expect_later(key, pause_s)

    def _expect_later(self, key, delay_s):
        due_s = self.clock.now_s + delay_s
        self.later[key] = min(due_s, self.later.get(key, due_s))

    def forget(self, key):
        self.queue.forget(key)

    def wait(self, seconds):
        self.clock.now_s += seconds

    def take(self):
        self.settle()
        free = {key for key in self.owed if key not in self.in_work}
        taken = self.queue.take_now()
        if taken is None:
            assert not free
            return
        assert taken.key in free
        assert taken.since_s == self.owed.pop(taken.key)
        self.later.pop(taken.key, None)
        self.in_work.add(taken.key)

    def done(self, key):
        self.settle()
        self.in_work.discard(key)
        self.queue.done(key)

    def check(self):
        self.settle()
        assert self.queue.depth == len(self.owed)
        assert self.queue.num_later == len(self.later)

    def end(self):
        for key in self.in_work:
            self.queue.done(key)
        self.in_work.clear()
        self.settle()
        assert set(drain(self.queue)) == set(self.owed)


KEYS = st.integers(0, 4)
DELAYS_S = (0.0, 0.5, 1.0, 3.0, 100.0)
PAUSES_S = (0.25, 1.0, 5.0, 50.0)


class QueueMachine(RuleBasedStateMachine):
    """Orders that hypothesis finds, and makes as short as it can where one fails."""

    def __init__(self):
        super().__init__()
        self.model = Model()

    @rule(key=KEYS)
    def add(self, key):
        self.model.add(key)

    @rule(key=KEYS, delay_s=st.sampled_from(DELAYS_S))
    def add_after(self, key, delay_s):
        self.model.add_after(key, delay_s)

    @rule(key=KEYS)
    def again(self, key):
        self.model.again(key)

    @rule(key=KEYS)
    def forget(self, key):
        self.model.forget(key)

    @rule(seconds=st.sampled_from(PAUSES_S))
    def wait(self, seconds):
        self.model.wait(seconds)

    @rule()
    def take(self):
        self.model.take()

    @precondition(lambda self: self.model.in_work)
    @rule(data=st.data())
    def done(self, data):
        self.model.done(data.draw(st.sampled_from(sorted(self.model.in_work))))

    @invariant()
    def what_is_owed_is_counted(self):
        self.model.check()

    def teardown(self):
        self.model.end()


QueueMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
test_orders_that_hypothesis_finds_lose_nothing = QueueMachine.TestCase


def test_ten_thousand_random_orders_lose_nothing():
    rng = random.Random(20)
    for _ in range(10_000):
        model = Model()
        for _ in range(rng.randrange(5, 25)):
            key = rng.randrange(3)
            match rng.randrange(7):
                case 0:
                    model.add(key)
                case 1:
                    model.add_after(key, rng.choice(DELAYS_S))
                case 2:
                    model.again(key)
                case 3:
                    model.wait(rng.choice(PAUSES_S))
                case 4 | 5:
                    model.take()
                case 6 if model.in_work:
                    model.done(rng.choice(sorted(model.in_work)))
            model.check()
        model.end()
