"""A group's average, whatever its gradients are made of."""

import asyncio

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.master.parameters.store import (
    Contribution,
    GradientReceiver,
    WeightedSum,
)
from elastic.master.parameters.strategy import Incoming
from elastic.rpc.layout import Layout, LayoutError

DTYPES = {
    "float64": np.float64,
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}


def _group(gradients, state):
    return WeightedSum(Layout.of(gradients), Layout.of(state))


def _contribution(random, dtype, weight):
    return Contribution(
        [random.normal(size=(3, 2)).astype(dtype), random.normal(size=()).astype(dtype)],
        [random.normal(size=5).astype(np.float32), np.array(random.integers(100))],
        weight,
    )


@given(
    dtype=st.sampled_from(sorted(DTYPES)),
    groups=st.lists(st.lists(st.integers(1, 64), min_size=1, max_size=5), min_size=1, max_size=3),
    seed=st.integers(0, 10_000),
)
def test_the_mean_is_weighted_by_records(dtype, groups, seed):
    """Group after group in the same memory; what was borrowed may change meanwhile."""
    random = np.random.default_rng(seed)
    sample = _contribution(random, DTYPES[dtype], 1)
    names = ("a", "b")
    group = _group(
        dict(zip(names, sample.gradients, strict=True)),
        dict(zip(names, sample.state, strict=True)),
    )
    for weights in groups:
        parts = [_contribution(random, DTYPES[dtype], weight) for weight in weights]
        expected = [
            np.average([np.float64(p.gradients[i]) for p in parts], axis=0, weights=weights)
            for i in range(2)
        ]
        state = np.average([np.float64(p.state[0]) for p in parts], axis=0, weights=weights)
        counter = max(int(p.state[1]) for p in parts)
        for part in parts:
            group.add(part)
            group.own()
            if random.integers(2) or part is parts[0]:
                for array in (*part.gradients, *part.state):
                    array[...] = 0
        gradients, states, scale = group.mean()
        tolerance = {"float16": 1e-2, "bfloat16": 5e-2}.get(dtype, 1e-5)
        for mine, theirs in zip(gradients, expected, strict=True):
            assert mine.dtype == DTYPES[dtype]
            np.testing.assert_allclose(np.float64(mine), theirs, atol=tolerance, rtol=tolerance)
        np.testing.assert_allclose(states[0], state, atol=1e-5)
        assert int(states[1]) == counter
        assert (scale, group.count, group.num_records) == (1.0, len(weights), sum(weights))
        group = group.successor()
    assert (group.count, group.num_records) == (0, 0)


def test_one_gradient_alone_is_passed_through_untouched():
    array = np.ones(4, np.float32)
    group = _group({"a": array}, {})
    group.add(Contribution([array], [], 8))
    [gradient], _, _ = group.mean()
    assert gradient is array


def test_what_was_rounded_on_its_way_is_summed_and_applied_in_float32():
    """Also with one beside it that was not, and alone in the memory of the group before."""
    exact, rounded = np.float32([1 / 3, 1e-3]), np.float32([1 / 3, 1e-3]).astype(DTYPES["bfloat16"])
    group = _group({"a": exact}, {})
    for arrays in ([rounded], [exact, rounded], [rounded, rounded, rounded], [rounded]):
        for array in arrays:
            group.add(Contribution([array], [], 7))
        [mean], _, _ = group.mean()
        assert mean.dtype == np.float32
        expected = np.mean([array.astype(np.float64) for array in arrays], axis=0)
        np.testing.assert_allclose(mean, expected, rtol=1e-6)
        group = group.successor()


@pytest.mark.parametrize("weights", [[32, 32], [32, 32, 32], [7, 32]])
def test_whole_numbers_average_exactly(weights):
    """What the counting model's gradients have to, for sums that add up."""
    group = _group({"a": np.zeros(2, np.float32)}, {})
    for weight in weights:
        group.add(Contribution([np.array([sum(weights), 0], np.float32)], [], weight))
    [gradient], _, _ = group.mean()
    assert gradient.tolist() == [sum(weights), 0]


def _measured(parts):
    names = ("a", "b")
    layout = Layout.of(dict(zip(names, parts[0].gradients, strict=True)))
    state = Layout.of({"s": parts[0].state[0], "n": parts[0].state[1]})
    group = WeightedSum(layout, state, is_measured=True)
    for part in parts:
        group.add(part)
    group.mean()
    return group.gradients


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_the_lengths_of_gradients_are_measured_where_they_are_wanted(dtype):
    random = np.random.default_rng(5)
    parts = [_contribution(random, DTYPES[dtype], 8) for _ in range(3)]
    flat = [np.concatenate([np.float64(g).reshape(-1) for g in p.gradients]) for p in parts]
    told = _measured(parts)
    assert (told.count, told.num_records) == (3, 8)
    assert told.mean_square == pytest.approx(np.mean([f @ f for f in flat]), rel=1e-2)
    mean = np.mean(flat, axis=0)
    assert told.square_of_mean == pytest.approx(mean @ mean, rel=5e-2)


@pytest.mark.parametrize("weights", [[8], [8, 3]], ids=["one", "a-short-one"])
def test_what_says_nothing_of_noise_is_not_measured(weights):
    random = np.random.default_rng(6)
    assert _measured([_contribution(random, np.float32, each) for each in weights]) is None


class ComingChunks:
    """Data that is written where it was to lie, or elsewhere, and may break off."""

    def __init__(self, data, *, is_laid, breaks=None):
        self._data, self._is_laid, self._breaks = data, is_laid, breaks

    def lie_in(self, room):
        self.room = room

    async def __aiter__(self):
        for at in range(0, len(self._data), 64):
            part = memoryview(self._data)[at : at + 64]
            if self._is_laid:
                self.room[at : at + len(part)] = part
                part = self.room[at : at + len(part)]
            yield part
            if self._breaks is not None:
                raise self._breaks


ONE = {"one": np.arange(64, dtype=np.float32)}


def _receiver():
    layout = Layout.of(ONE)
    return GradientReceiver(layout, Layout.of(), layout)


def _received(receiver, chunks):
    incoming = Incoming("s", 1, Layout.of(ONE), None, None, chunks)
    return asyncio.run(receiver.receive(incoming))


@pytest.mark.parametrize("is_laid", [True, False])
def test_what_comes_is_whole_and_its_memory_is_used_again(is_laid):
    receiver = _receiver()
    first = _received(receiver, ComingChunks(ONE["one"].tobytes(), is_laid=is_laid))
    assert first.gradients[0].tolist() == ONE["one"].tolist()
    memory = first.buffer
    receiver.give_back(first)
    chunks = ComingChunks((2 * ONE["one"]).tobytes(), is_laid=is_laid)
    second = _received(receiver, chunks)
    assert second.gradients[0].tolist() == (2 * ONE["one"]).tolist()
    assert second.buffer is memory


@pytest.mark.parametrize("breaks", [asyncio.CancelledError(), LayoutError("a second header")])
def test_what_broke_off_may_still_be_written_and_is_no_part_of_the_next(breaks):
    receiver = _receiver()
    broken = ComingChunks(ONE["one"].tobytes(), is_laid=True, breaks=breaks)
    with pytest.raises(type(breaks)):
        _received(receiver, broken)
    whole = _received(receiver, ComingChunks(ONE["one"].tobytes(), is_laid=True))
    # A thread is still receiving for the one that nobody waits for any more.
    broken.room[:] = b"\xff" * len(broken.room)
    assert whole.gradients[0].tolist() == ONE["one"].tolist()


def test_more_or_less_than_was_announced_is_refused():
    data = ONE["one"].tobytes()
    for wrong, told in ((data[:-64], "192 bytes where"), (data + bytes(64), "more bytes than")):
        with pytest.raises(LayoutError, match=told):
            _received(_receiver(), ComingChunks(wrong, is_laid=False))
