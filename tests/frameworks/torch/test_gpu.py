"""Values of a GPU: as those of the CPU, and through memory that it reaches by itself."""

import gc

import numpy as np
import pytest
import torch
from frameworks.torch.test_torch import FRAMEWORK, build, make_batch, make_def

from elastic.frameworks.torch.tensors import (
    HostCopies,
    fill_all,
    lock_again,
    placed,
    stand_in,
    to_array,
    to_tensor,
    wait_for,
)
from elastic.rpc.layout import Layout, SharedMemory, map_shared

NUM_NUMBERS = 300_000
"""More than the megabyte below which memory is not locked."""


@pytest.fixture
def gpu():
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU here that torch can use")
    return torch.device("cuda")


def numbers(dtype, device="cpu"):
    return torch.arange(NUM_NUMBERS, device=device).to(dtype)


def is_locked(array):
    return to_tensor(array).is_pinned()


def shared_views(arrays):
    """The arrays in memory that another process would map, as views of the mapping."""
    layout = Layout.of(arrays)
    memory = SharedMemory(layout.size_bytes)
    layout.fill(memory.data, arrays.values())
    mapped = map_shared(memory.handle())
    return dict(zip(arrays, layout.views(mapped), strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_a_stand_in_has_the_shape_and_the_dtype(dtype):
    tensor = torch.zeros((3, 2), dtype=dtype)
    made, real = stand_in(tensor), to_array(tensor)
    assert (made.shape, made.dtype) == (real.shape, real.dtype)


def test_values_on_the_cpu_are_views():
    tensor = torch.zeros(3)
    array = HostCopies().of({"a": tensor})["a"]
    tensor.add_(1)
    assert array.tolist() == [1, 1, 1]


def test_arrays_for_the_cpu_are_not_copied_or_kept():
    array = np.zeros(NUM_NUMBERS, np.float32)
    [tensor] = placed([(array, torch.device("cpu"))])
    array += 1
    assert tensor[0] == 1
    wait_for({torch.device("cpu")})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.float16])
def test_copies_of_a_gpu_have_its_values_in_locked_memory(gpu, dtype):
    copies = HostCopies()
    tensors = {
        "plain": numbers(dtype, gpu),
        "transposed": numbers(dtype, gpu).view(300, -1).t(),
        "channels": numbers(dtype, gpu).view(3, 10, 100, 100).to(memory_format=torch.channels_last),
        "one": torch.ones((), dtype=dtype, device=gpu),
        "spread": torch.ones((), dtype=dtype, device=gpu).expand(5),
        "none": torch.ones(0, dtype=dtype, device=gpu),
    }
    for _ in range(2):
        arrays = copies.of(tensors)
        for name, tensor in tensors.items():
            np.testing.assert_array_equal(arrays[name], to_array(tensor), name)
        for tensor in tensors.values():
            tensor.data = (tensor + 1).to(dtype)
    assert is_locked(arrays["plain"])


def test_copies_go_to_the_same_memory_until_the_form_changes(gpu):
    copies = HostCopies()
    first = copies.of({"a": numbers(torch.float32, gpu)})["a"]
    second = copies.of({"a": numbers(torch.float32, gpu) + 1})["a"]
    assert second is first
    assert second[0] == 1
    assert copies.of({"a": torch.zeros(2, device=gpu)})["a"].tolist() == [0, 0]


def test_shared_memory_is_locked_when_it_comes_again_and_while_it_lives(gpu):
    views = shared_views({name: to_array(numbers(torch.float32)) for name in "ab"})
    tensor = torch.zeros(NUM_NUMBERS, device=gpu)
    fill_all([(tensor, views["a"]), (tensor, views["b"])])
    assert not is_locked(views["a"])
    for added in range(3):
        views["a"][:] = np.arange(NUM_NUMBERS) + added
        fill_all([(tensor, views["a"])])
        assert tensor.equal(numbers(torch.float32, gpu) + added)
    assert is_locked(views["a"])
    assert is_locked(views["b"])
    address = views["a"].ctypes.data
    del views
    gc.collect()
    # Who locks it next is not refused: it was let go of.
    again = shared_views({name: to_array(numbers(torch.float32)) for name in "ab"})
    for _ in range(2):
        fill_all([(tensor, again["b"])])
    assert is_locked(again["b"]), f"{address:x} and {again['a'].ctypes.data:x}"


def test_memory_that_cannot_be_locked_is_copied_all_the_same(gpu):
    array = to_array(numbers(torch.float32))
    tensor = torch.zeros(NUM_NUMBERS, device=gpu)
    fill_all([(tensor, array)])
    assert not int(torch.cuda.cudart().cudaHostRegister(array.ctypes.data, array.nbytes, 0))
    try:
        for _ in range(3):
            tensor.zero_()
            fill_all([(tensor, array)])
            # An error that was left behind would come up here.
            assert (tensor + 0).equal(numbers(torch.float32, gpu))
    finally:
        torch.cuda.cudart().cudaHostUnregister(array.ctypes.data)


def test_small_arrays_are_left_alone(gpu):
    array = np.ones(10, np.float32)
    for _ in range(3):
        lock_again([array])
    [tensor] = placed([(array, gpu)])
    wait_for({gpu})
    assert tensor.tolist() == [1] * 10
    assert not is_locked(array)


def test_a_step_and_an_update_are_those_of_the_cpu(gpu, monkeypatch):
    batch = make_batch()
    model_def = make_def()
    there = build(model_def)
    there_updater = FRAMEWORK.build_updater(model_def, there)
    assert next(iter(there.trained.values())).device.type == "cuda"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    here = build(model_def)
    monkeypatch.undo()
    here_updater = FRAMEWORK.build_updater(model_def, here)
    for seed in range(3):
        there.load(here.parameters(), here.state())
        one, other = there.gradients(batch, seed), here.gradients(batch, seed)
        assert one.gradients.keys() == other.gradients.keys()
        for name, gradient in other.gradients.items():
            np.testing.assert_allclose(one.gradients[name], gradient, 1e-3, 1e-5, err_msg=name)
        assert one.loss == pytest.approx(other.loss, rel=1e-4)
        assert one.are_finite
        assert not other.are_finite, "nobody looked"
        there_updater.apply(one.gradients)
        here_updater.apply(other.gradients)
        for name, value in here.parameters().items():
            np.testing.assert_allclose(there.parameters()[name], value, 1e-3, 1e-5, err_msg=name)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_gradient_that_is_not_finite_is_not_said_to_be(gpu, value):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.good = torch.nn.Parameter(torch.ones(3))
            self.bad = torch.nn.Parameter(torch.ones(3))

        def forward(self, features):
            factors = torch.tensor([1.0, value, 1.0], device=features.device)
            return features[:, :2] * self.good.sum() + 0 * (factors * self.bad).sum()

    model = build(make_def(model=Net, loss=lambda labels, predictions: predictions.nansum()))
    result = model.gradients(make_batch(), 0)
    assert not result.are_finite
    assert not np.isfinite(result.gradients["bad"]).all()


def test_gradients_lie_where_they_are_wanted(gpu):
    model = build(make_def())
    model.load(model.parameters(), model.state())
    before = {n: a.copy() for n, a in model.gradients(make_batch(), 0).gradients.items()}
    room = {name: np.zeros_like(array) for name, array in model.parameters().items()}
    model.lay_gradients_in(room)
    after = model.gradients(make_batch(), 0).gradients
    for name, gradient in before.items():
        assert after[name] is room[name]
        np.testing.assert_allclose(room[name], gradient, 1e-3, 1e-5)
    model.lay_gradients_in({})
    assert not any(
        np.shares_memory(array, room[name])
        for name, array in model.gradients(make_batch(), 1).gradients.items()
    )


def test_all_values_are_copied_out(gpu):
    model = build(make_def())
    parameters = {n: np.empty_like(a) for n, a in model.parameters().items()}
    state = {n: np.empty_like(a) for n, a in model.state().items()}
    model.copy_into(parameters, state)
    for copied, own in ((parameters, model.parameters()), (state, model.state())):
        for name, array in own.items():
            np.testing.assert_array_equal(copied[name], array)
