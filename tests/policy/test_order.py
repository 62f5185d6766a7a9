"""Which record stands at which position: pinned, a bijection, and as random as a draw."""

import hashlib

import numpy as np
import pytest

from elastic.policy.tasks.epochs import OrderForm, RecordOrder, Shuffle, permute

ALL = OrderForm(Shuffle.RECORDS)

PINNED_10 = [3, 9, 4, 6, 0, 5, 7, 1, 2, 8]
PINNED_1000 = [63, 225, 393]
PINNED_RECORDS = [4, 6, 3, 0, 1, 5, 2, 7]
PINNED_CHUNKS = [10, 11, 2, 3, 4, 8, 9, 5, 1, 7, 6, 0]
PINNED_TASKS = [0, 1, 2, 6, 7, 3, 4, 5]


def epoch(num_records, epoch=0, seed=0, form=ALL, chunks=()):
    return RecordOrder(num_records, seed, form, chunks).records(epoch, 0, num_records)


def chi_square(counts):
    """How far counts are from all being alike, in standard deviations of a random draw."""
    counts = np.asarray(counts, float)
    expected, freedom = counts.mean(), counts.size - 1
    return (((counts - expected) ** 2 / expected).sum() - freedom) / np.sqrt(2 * freedom)


def test_the_order_is_part_of_the_format_and_never_changes():
    """Other values would give the rest of an epoch that was cut other records."""
    assert permute(np.arange(10), 10, "key").tolist() == PINNED_10
    assert permute(np.arange(3), 1000, "0/0/window/0").tolist() == PINNED_1000
    assert epoch(8, epoch=1, seed=3).tolist() == PINNED_RECORDS
    form = OrderForm(Shuffle.RECORDS, mixed=2)
    assert epoch(12, form=form, chunks=range(0, 12, 2)).tolist() == PINNED_CHUNKS
    assert epoch(8, form=OrderForm(Shuffle.TASKS, chunk=3)).tolist() == PINNED_TASKS


def sent_through(place, size, key):
    """The format in whole numbers of Python, place by place."""
    digest = hashlib.blake2b(key.encode(), digest_size=64).digest()
    half = max(1, -(-(size - 1).bit_length() // 2))
    while True:
        left, right = place >> half, place % (1 << half)
        for at in range(0, 64, 8):
            mixed = right ^ int.from_bytes(digest[at : at + 8], "little")
            for multiplier in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
                mixed = (mixed ^ mixed >> 33) * multiplier % (1 << 64)
            left, right = right, left ^ (mixed ^ mixed >> 33) % (1 << half)
        place = left << half | right
        if place < size:
            return place


@pytest.mark.parametrize("size", [1, 2, 7, 1000, 4097, 1 << 20, (1 << 30) + 1, 1 << 45])
def test_a_permutation_is_what_its_format_says_at_every_size(size):
    """Sizes above and below which steps are looked up; few places and many."""
    rng = np.random.default_rng(size)
    for places in (rng.integers(0, size, 3), rng.integers(0, size, 300)):
        before = places.copy()
        found = permute(places, size, "0/1/window/2")
        expected = [sent_through(place, size, "0/1/window/2") for place in places.tolist()]
        assert found.tolist() == expected
        assert (places == before).all()


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 16, 17, 255, 1000, 65_537])
def test_a_permutation_has_every_place_once(size):
    assert sorted(permute(np.arange(size), size, "key")) == list(range(size))


@pytest.mark.parametrize(
    ("form", "chunks"),
    [
        pytest.param(ALL, (), id="records"),
        pytest.param(OrderForm(Shuffle.RECORDS, mixed=16), range(0, 1003, 7), id="chunks"),
        pytest.param(OrderForm(Shuffle.RECORDS, mixed=4), [0, 1, 500, 501, 990], id="uneven"),
        pytest.param(
            OrderForm(Shuffle.RECORDS, mixed=16, is_forward=True), range(0, 1003, 7), id="forward"
        ),
        pytest.param(OrderForm(Shuffle.TASKS, chunk=30), (), id="tasks"),
        pytest.param(OrderForm(Shuffle.NONE), (), id="none"),
    ],
)
def test_an_epoch_has_every_record_once_wherever_it_is_asked_for(form, chunks):
    order = RecordOrder(1003, 5, form, chunks)
    whole = order.records(2, 0, 1003)
    assert sorted(whole) == list(range(1003))
    parts = [order.records(2, start, min(start + 100, 1003)) for start in range(0, 1003, 100)]
    assert np.concatenate(parts).tolist() == whole.tolist()


def test_each_epoch_and_each_seed_has_an_order_of_its_own():
    orders = {tuple(epoch(50, number, seed)) for number in range(4) for seed in range(4)}
    assert len(orders) == 16


@pytest.mark.sampled(2)
@pytest.mark.parametrize("chunks", [(), range(0, 64, 2)], ids=["records", "chunks"])
def test_every_record_comes_at_every_position_as_often(chunks):
    counts = np.zeros((64, 64))
    for number in range(3000):
        form = OrderForm(Shuffle.RECORDS, mixed=16)
        counts[epoch(64, number, form=form, chunks=chunks), np.arange(64)] += 1
    assert abs(chi_square(counts)) < 4


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("chunk", "mixed"),
    [
        pytest.param(1, 128, id="records"),
        pytest.param(2, 32, id="chunks-of-two-windows"),
        pytest.param(2, 16, id="chunks-of-the-smallest-windows"),
    ],
)
def test_neighbours_in_the_file_are_no_neighbours_in_the_epoch(chunk, mixed):
    """How far apart two records come that follow each other in the file: as in a random draw."""
    ours, drawn = np.zeros(128), np.zeros(128)
    rng = np.random.default_rng(0)
    form = OrderForm(Shuffle.RECORDS, mixed=mixed)
    for number in range(1500):
        ours += distances(epoch(128, number, form=form, chunks=range(0, 128, chunk)))
        drawn += distances(draw(rng, 128, chunk, mixed))
    both = np.stack([ours, drawn])[:, 1:]
    squares = (both[0] - both[1]) ** 2 / both.sum(0)
    # Pairs of one epoch are not independent of each other: twice the room.
    assert squares.sum() < 127 + 8 * np.sqrt(2 * 127)


def draw(rng, num_records, chunk, mixed):
    """Chunks in any order, and then the records of so many of them."""
    chunks = rng.permutation(np.arange(num_records).reshape(-1, chunk))
    return rng.permuted(chunks.reshape(-1, chunk * mixed), axis=1).ravel()


def distances(order):
    places = np.argsort(order)
    return np.bincount(np.abs(np.diff(places)), minlength=len(order))


@pytest.mark.parametrize("chunk", [1, 20], ids=["records", "chunks"])
def test_sorted_classes_mix_in_every_minibatch_as_in_a_random_draw(chunk):
    """Ten classes one after the other in the file, minibatches of 32."""
    num_records = 64_000
    classes = np.arange(num_records) * 10 // num_records
    chunks = range(0, num_records, chunk) if chunk > 1 else ()
    order = epoch(num_records, form=OrderForm(Shuffle.RECORDS, mixed=64), chunks=chunks)
    counts = np.stack([np.bincount(part, minlength=10) for part in classes[order].reshape(-1, 32)])
    # Of a random draw: 32 · 0.1 · 0.9. A window of 64 chunks adds the spread of its own draw.
    of_draw = 32 * 0.09
    assert counts.var() == pytest.approx(of_draw if chunk == 1 else of_draw * 1.5, rel=0.1)
    assert (counts > 0).sum(1).min() >= 5


def test_data_of_one_window_has_the_same_order_however_it_is_cut():
    form = OrderForm(Shuffle.RECORDS, mixed=16)
    one = epoch(120, form=form)
    assert epoch(120, form=form, chunks=range(0, 120, 50)).tolist() == one.tolist()
    assert epoch(120, form=form, chunks=range(0, 120, 4)).tolist() == one.tolist()
    assert epoch(120, form=form, chunks=range(0, 120, 2)).tolist() != one.tolist()


def test_no_window_is_short():
    """The last chunks of an epoch, too, are mixed with many others."""
    form = OrderForm(Shuffle.RECORDS, mixed=16)
    order = epoch(330, form=form, chunks=range(0, 330, 10))
    assert len(set((order // 10)[-16:])) > 5


def test_what_is_read_forward_stays_in_its_window():
    form = OrderForm(Shuffle.RECORDS, mixed=2, is_forward=True)
    order = epoch(80, form=form, chunks=range(0, 80, 10))
    assert [sorted(part) for part in order.reshape(4, 20)] == np.arange(80).reshape(4, 20).tolist()
    assert order.tolist() != list(range(80))
