import copy
import errno
import itertools
import json
import subprocess
import sys
import warnings

import ml_dtypes
import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn
from torch.optim import lr_scheduler as schedules

from elastic.errors import CheckpointError, ModelDefError
from elastic.frameworks import load_framework
from elastic.frameworks.base import Batch
from elastic.spec.model_def import ModelDef
from elastic.spec.platforms import Mode

FRAMEWORK = load_framework("torch")


def mse(labels, predictions):
    return nn.functional.mse_loss(predictions, labels)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def network():
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))


def make_def(
    model=network, loss=mse, optimizer=sgd, dataset_fn=lambda dataset, mode: dataset, **rest
):
    return ModelDef("net", "torch", model, loss, optimizer, dataset_fn, **rest)


def make_batch(seed=0, size=8):
    generator = torch.Generator().manual_seed(seed)
    return Batch(
        torch.randn(size, 4, generator=generator), torch.randn(size, 2, generator=generator), size
    )


def build(model_def, seed=1, sample=None, **params):
    return FRAMEWORK.build_model(model_def, params, sample or make_batch(), seed)


def copied(arrays):
    return {name: array.copy() for name, array in arrays.items()}


def assert_equal(left, right):
    assert list(left) == list(right)
    for name, array in left.items():
        np.testing.assert_array_equal(array, right[name], err_msg=name)


class CountsSteps(torch.optim.SGD):
    """Keeps something of no parameter among its state."""

    def __init__(self, parameters):
        super().__init__(parameters, lr=0.1, momentum=0.9)

    def step(self, closure=None):
        self.state["steps"] = self.state.get("steps", 0) + 1
        return super().step(closure)


OPTIMIZERS = {
    "sgd": sgd,
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    # Bit by bit only where the user has chosen the loop over parameters.
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True, foreach=False),
    "adamw": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01), foreach=False),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "other-state": CountsSteps,
    "groups": lambda p: torch.optim.SGD([{"params": p[:1], "lr": 0.2}, {"params": p[1:]}], lr=0.1),
}
SCHEDULES = {
    "none": None,
    "step": lambda o: schedules.StepLR(o, 3, 0.5),
    "milestones": lambda o: schedules.MultiStepLR(o, [2, 4], 0.5),
    "cosine": lambda o: schedules.CosineAnnealingLR(o, 20),
    "one-cycle": lambda o: schedules.OneCycleLR(
        o,
        max_lr=0.2,
        total_steps=30,
        cycle_momentum=bool({"momentum", "betas"} & o.defaults.keys()),
    ),
    "lambda": lambda o: schedules.LambdaLR(o, lambda step: 0.9**step),
    "sequence": lambda o: schedules.SequentialLR(
        o, [schedules.LinearLR(o, 0.1, total_iters=3), schedules.ExponentialLR(o, 0.9)], [3]
    ),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("schedule", ["none", "step", "one-cycle"])
def test_training_gives_the_numbers_of_the_plain_loop(optimizer, schedule):
    model_def = make_def(optimizer=OPTIMIZERS[optimizer], lr_scheduler=SCHEDULES[schedule])
    model = build(model_def)
    updater = FRAMEWORK.build_updater(model_def, model)
    plain = copy.deepcopy(model.module)
    plain_optimizer = OPTIMIZERS[optimizer](list(plain.parameters()))
    plain_schedule = SCHEDULES[schedule](plain_optimizer) if SCHEDULES[schedule] else None
    plain.train()
    for step in range(6):
        batch = make_batch(step, size=8 - step % 2)
        result = model.gradients(batch, seed=step)
        updater.apply(result.gradients)
        plain_optimizer.zero_grad()
        loss = mse(batch.labels, plain(batch.features))
        loss.backward()
        plain_optimizer.step()
        if plain_schedule is not None:
            plain_schedule.step()
        assert result.loss == loss.item()
        assert updater.learning_rate() == float(plain_optimizer.param_groups[0]["lr"])
    assert_equal(model.parameters(), {n: p.detach().numpy() for n, p in plain.named_parameters()})
    assert_equal(model.state(), {n: b.numpy() for n, b in plain.named_buffers()})


def planned(optimizer, total_steps):
    return schedules.OneCycleLR(optimizer, 0.2, total_steps=total_steps, cycle_momentum=False)


def test_a_schedule_may_ask_how_many_updates_there_will_be():
    model_def = make_def(lr_scheduler=planned)
    model = build(model_def)
    updater = FRAMEWORK.build_updater(model_def, model, total_steps=6)
    plain = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    plain_schedule = planned(plain, 6)
    rates = []
    for step in range(8):
        rates.append(updater.learning_rate())
        if step < 6:
            assert rates[-1] == float(plain.param_groups[0]["lr"])
            plain.step()
            plain_schedule.step()
        updater.apply(model.gradients(make_batch(step), seed=step).gradients)
        if step == 2:
            state = updater.state()
            updater = FRAMEWORK.build_updater(model_def, model, total_steps=6)
            updater.load_state(state)
    # More updates than were planned have the rate of the last one.
    assert rates[5] == rates[6] == rates[7] < rates[4]


def test_who_asks_where_nobody_knows_is_told():
    model_def = make_def(lr_scheduler=planned)
    with pytest.raises(ModelDefError, match="lr_scheduler asks for total_steps, which is known in"):
        FRAMEWORK.build_updater(model_def, build(model_def))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_restoring_continues_bit_by_bit(optimizer, schedule):
    model_def = make_def(optimizer=OPTIMIZERS[optimizer], lr_scheduler=SCHEDULES[schedule])
    model = build(model_def)
    updater = FRAMEWORK.build_updater(model_def, model)

    def train(model, updater, steps):
        for step in steps:
            updater.apply(model.gradients(make_batch(step), seed=step).gradients)

    train(model, updater, range(4))
    saved = copied(model.parameters()), copied(model.state())
    state = updater.state()
    state.tensors = copied(state.tensors)
    state.values = json.loads(json.dumps(state.values))
    again = build(model_def, seed=99)
    other = FRAMEWORK.build_updater(model_def, again)
    train(again, other, range(10, 12))
    again.load(*saved)
    other.load_state(state)
    frozen = copied(state.tensors)
    assert other.learning_rate() == updater.learning_rate()
    train(model, updater, range(4, 10))
    train(again, other, range(4, 10))
    assert_equal(model.parameters(), again.parameters())
    assert_equal(updater.state().tensors, other.state().tensors)
    assert updater.state().values == other.state().values
    # What was loaded belongs to the caller still.
    assert_equal(state.tensors, frozen)


class Turned(nn.Module):
    """Its parameters lie in memory in other orders than their indices."""

    def __init__(self):
        super().__init__()
        self.wide = nn.Parameter(torch.randn(12, 4).t())
        self.convolution = nn.Conv2d(3, 2, 2).to(memory_format=torch.channels_last)

    def forward(self, features):
        return self.convolution((features @ self.wide).reshape(-1, 3, 2, 2)).flatten(1)


@pytest.mark.parametrize("optimizer", [
    lambda p: torch.optim.Adam(p, lr=0.05),
    lambda p: torch.optim.AdamW(p, lr=0.05),
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
], ids=["adam", "adamw", "sgd"])  # fmt: skip
def test_how_parameters_lie_in_memory_changes_nothing(optimizer):
    model_def = make_def(model=Turned, optimizer=optimizer)
    model = build(model_def)
    updater = FRAMEWORK.build_updater(model_def, model)
    plain = copy.deepcopy(model.module)
    plain_optimizer = optimizer(list(plain.parameters()))
    for group in plain_optimizer.param_groups:
        group.update(fused=None, foreach=False)
    for step in range(8):
        batch = make_batch(step)
        gradients = model.gradients(batch, seed=step).gradients
        # As they come over a connection.
        updater.apply({name: np.ascontiguousarray(each) for name, each in gradients.items()})
        if step == 3:
            state, updater = updater.state(), FRAMEWORK.build_updater(model_def, model)
            state.tensors = {n: np.ascontiguousarray(a) for n, a in state.tensors.items()}
            updater.load_state(state)
        plain_optimizer.zero_grad()
        mse(batch.labels, plain(batch.features)).backward()
        plain_optimizer.step()
    for name, parameter in plain.named_parameters():
        np.testing.assert_allclose(
            model.parameters()[name], parameter.detach().numpy(), atol=1e-6, err_msg=name
        )


def test_slots_are_named_after_their_parameter():
    model_def = make_def(optimizer=OPTIMIZERS["momentum"])
    model = build(model_def)
    updater = FRAMEWORK.build_updater(model_def, model)
    updater.apply(model.gradients(make_batch(), 0).gradients)
    assert list(updater.state().tensors) == [f"{n}/momentum_buffer" for n in model.parameters()]


def test_a_scaled_update_has_the_scaled_rate_once():
    model_def = make_def(optimizer=OPTIMIZERS["groups"])
    model = build(model_def)
    updater = FRAMEWORK.build_updater(model_def, model)
    before = copied(model.parameters())
    gradients = copied(model.gradients(make_batch(), 0).gradients)
    updater.apply(gradients, learning_rate_scale=0.25)
    assert updater.learning_rate() == 0.2
    for index, (name, value) in enumerate(model.parameters().items()):
        rate = 0.2 if index == 0 else 0.1
        np.testing.assert_allclose(value, before[name] - rate * 0.25 * gradients[name], atol=1e-7)


@pytest.mark.parametrize(("name", "expected"), [("momentum", True), ("adam", False)])
def test_steps_of_sgd_alone_are_in_proportion_to_the_gradient(name, expected):
    model_def = make_def(optimizer=OPTIMIZERS[name])
    assert FRAMEWORK.build_updater(model_def, build(model_def)).is_proportional() is expected


def test_a_tensor_rate_is_scaled_and_given_back():
    model_def = make_def(optimizer=lambda p: torch.optim.SGD(p, lr=torch.tensor(0.5)))
    model = build(model_def)
    updater = FRAMEWORK.build_updater(model_def, model)
    before = copied(model.parameters())
    gradients = {name: np.ones_like(value) for name, value in before.items()}
    updater.apply(gradients, learning_rate_scale=0.5)
    assert updater.learning_rate() == 0.5
    for name, value in model.parameters().items():
        np.testing.assert_allclose(value, before[name] - 0.25, atol=1e-6)


def test_a_schedule_by_epoch_stands_still_between_epochs():
    model_def = make_def(
        lr_scheduler=lambda o: {"scheduler": schedules.ExponentialLR(o, 0.5), "interval": "epoch"}
    )
    model = build(model_def)
    updater = FRAMEWORK.build_updater(model_def, model)
    rates = []
    for _ in range(2):
        for step in range(3):
            updater.apply(model.gradients(make_batch(step), step).gradients)
            rates.append(updater.learning_rate())
        updater.end_epoch()
    assert rates == [0.1, 0.1, 0.1, 0.05, 0.05, 0.05]


class ThreadCounter(torch.optim.SGD):
    """Remembers how many threads each step had."""

    def __init__(self, parameters):
        super().__init__(parameters, lr=0.1)
        self.seen = []

    def step(self, closure=None):
        self.seen.append(torch.get_num_threads())
        return super().step(closure)


@pytest.mark.parametrize(("size_bytes", "threads"), [(8, 1), (33 << 20, 2)])
def test_small_models_are_updated_by_one_thread(size_bytes, threads):
    counters = []

    def counting(parameters):
        counters.append(ThreadCounter(parameters))
        return counters[0]

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        definition = make_def(lambda: nn.Linear(1, size_bytes // 8), optimizer=counting)
        sample = Batch(torch.zeros(1, 1), torch.zeros(1, size_bytes // 8), 1)
        model = build(definition, sample=sample)
        updater = FRAMEWORK.build_updater(definition, model)
        updater.apply({name: np.ones_like(array) for name, array in model.parameters().items()})
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert counters[0].seen == [threads]


@pytest.mark.filterwarnings("error")
def test_read_only_gradients_are_applied_without_a_warning():
    model_def = make_def()
    model = build(model_def)
    updater = FRAMEWORK.build_updater(model_def, model)
    before = copied(model.parameters())
    gradients = {name: np.ones_like(value) for name, value in before.items()}
    for gradient in gradients.values():
        gradient.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.set_warn_always(True)
        try:
            updater.apply(gradients)
        finally:
            torch.set_warn_always(False)
    for name, value in model.parameters().items():
        np.testing.assert_allclose(value, before[name] - 0.1, atol=1e-6)


def test_parameters_are_views():
    model = build(make_def())
    array = model.parameters()["0.bias"]
    with torch.no_grad():
        model.module[0].bias.fill_(7.0)
    assert array.tolist() == [7.0] * 8


class HalfNet(nn.Module):
    def __init__(self, dtype=torch.bfloat16):
        super().__init__()
        self.layer = nn.Linear(4, 2).to(dtype)
        self.unused = nn.Parameter(torch.ones(3, dtype=dtype))
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("scratch", torch.zeros(2), persistent=False)

    def forward(self, features):
        if self.training:
            self.seen = self.seen + 1
        return self.layer(features.to(self.layer.weight.dtype)).float()


@pytest.mark.parametrize(
    ("dtype", "expected"), [(torch.bfloat16, ml_dtypes.bfloat16), (torch.float16, np.float16)]
)
def test_half_floats_frozen_unused_and_buffers(dtype, expected):
    model_def = make_def(lambda: HalfNet(dtype), optimizer=OPTIMIZERS["adam"])
    model = build(model_def)
    updater = FRAMEWORK.build_updater(model_def, model)
    parameters = copied(model.parameters())
    assert list(parameters) == ["unused", "layer.weight", "layer.bias"]
    assert {array.dtype for array in parameters.values()} == {np.dtype(expected)}
    assert copied(model.state()) == {"seen": 0}
    result = model.gradients(make_batch(), 0)
    assert result.state == {"seen": 1}
    assert not result.gradients["unused"].any()
    assert result.gradients["layer.weight"].any()
    assert {array.dtype for array in result.gradients.values()} == {np.dtype(expected)}
    updater.apply(result.gradients)
    assert (model.parameters()["layer.bias"] != parameters["layer.bias"]).all()
    model.load(parameters, {"seen": np.array(5)})
    assert_equal(model.parameters(), parameters)
    assert model.module.seen.item() == 5


def test_sparse_gradients_become_dense():
    model_def = make_def(
        lambda: nn.Embedding(5, 2, sparse=True), loss=lambda labels, predictions: predictions.sum()
    )
    batch = Batch(torch.tensor([1, 3, 3]), torch.zeros(3), 3)
    gradients = build(model_def, sample=batch).gradients(batch, 0).gradients
    assert gradients["weight"].tolist() == [[0, 0], [1, 1], [0, 0], [2, 2], [0, 0]]


def test_lazy_modules_get_their_parameters():
    model_def = make_def(
        lambda: nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d(), nn.LazyLinear(2))
    )
    assert build(model_def).parameters()["0.weight"].shape == (3, 4)


def test_building_leaves_the_state_alone():
    state = build(make_def()).state()
    assert state["1.num_batches_tracked"] == 0
    assert not state["1.running_mean"].any()


def test_several_losses_are_summed():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def forward(self, features):
            out = self.layer(features["x"])
            return {"a": out.mean(), "b": (out**2).mean()}

    model_def = make_def(Two, loss=lambda labels, predictions: predictions)
    batch = Batch({"x": make_batch().features}, make_batch().labels, 8)
    model = build(model_def, sample=batch)
    out = model.module.layer(batch.features["x"])
    expected = (out.mean() + (out**2).mean()).item()
    assert model.gradients(batch, 0).loss == pytest.approx(expected, abs=1e-7)


def dropout_network():
    return nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5), nn.Linear(64, 2))


def test_the_seed_decides_dropout():
    model = build(make_def(dropout_network))
    first = copied(model.gradients(make_batch(), 5).gradients)
    other = copied(model.gradients(make_batch(), 6).gradients)
    torch.rand(7)
    assert_equal(first, copied(model.gradients(make_batch(), 5).gradients))
    assert any((first[name] != other[name]).any() for name in first)


def test_equal_seeds_give_equal_parameters_in_another_process():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import test_torch as t\n"
        "print(t.build(t.make_def(), seed=3).parameters()['0.weight'].tobytes().hex())\n"
    )
    folder = __file__.rpartition("/")[0]
    done = subprocess.run(
        [sys.executable, "-c", code, folder], capture_output=True, text=True, check=True
    )
    build(make_def(), seed=8)
    here = build(make_def(), seed=3).parameters()["0.weight"]
    assert here.tobytes().hex() == done.stdout.strip()
    assert (here != build(make_def(), seed=4).parameters()["0.weight"]).any()


def test_metrics_add_up_over_any_split():
    def per_example(labels, predictions):
        return (labels - predictions).abs().mean(dim=1)

    model_def = make_def(
        eval_metrics_fn=lambda: {"mae": per_example, "top": lambda y, p: float((p > 0).any())}
    )
    model = build(model_def)
    batch = make_batch(size=10)
    model.gradients(batch, 0)
    whole = model.metrics(batch)
    parts = [
        model.metrics(Batch(batch.features[s], batch.labels[s], len(batch.labels[s])))
        for s in (slice(0, 3), slice(3, 10))
    ]
    merged = [
        type(a)(a.name, tuple(x + y for x, y in zip(a.values, b.values, strict=True)))
        for a, b in zip(*parts, strict=True)
    ]
    expected = model.metric_results(whole)
    assert list(expected) == ["loss", "mae", "top"]
    assert model.metric_results(merged) == pytest.approx(expected, abs=1e-6)
    model.module.eval()
    predictions = model.module(batch.features)
    assert expected["loss"] == pytest.approx(mse(batch.labels, predictions).item(), abs=1e-6)
    assert expected["mae"] == pytest.approx(
        (batch.labels - predictions).abs().mean().item(), abs=1e-6
    )


@pytest.mark.parametrize("suffix", ["", ".safetensors"])
def test_the_export_is_a_state_dict(tmp_path, suffix):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 4)
            self.b = nn.Linear(4, 4)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x))[:, :2]

    model = build(make_def(Tied))
    path = model.export(f"{tmp_path}/new/model{suffix}")
    assert path == f"{tmp_path}/new/model.safetensors"
    again = Tied()
    again.load_state_dict(safetensors.torch.load_file(path))
    assert torch.equal(again.b.weight, model.module.a.weight)
    assert [each.name for each in (tmp_path / "new").iterdir()] == ["model.safetensors"]


def test_an_export_to_a_full_disk_is_told_as_that(small_disk):
    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 50_000), nn.Linear(50_000, 2))

        def forward(self, x):
            return self.layers(x)

    with pytest.raises(OSError, match="No space left on device") as raised:
        build(make_def(Wide)).export(f"{small_disk}/model")
    assert raised.value.errno == errno.ENOSPC
    assert list(small_disk.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(
            lambda arrays: arrays.pop("0.bias"),
            "the parameters do not fit this model: missing 0.bias, unknown nothing: use the model "
            "they were saved from",
            id="missing",
        ),
        pytest.param(
            lambda arrays: arrays.update(extra=arrays["0.bias"]),
            "the parameters do not fit this model: missing nothing, unknown extra: use the model "
            "they were saved from",
            id="unknown",
        ),
        pytest.param(
            lambda arrays: arrays.update({"3.bias": np.zeros(3, np.float32)}),
            "the parameters do not fit this model: 3.bias is float32[2] here and float32[3] there: "
            "use the model they were saved from",
            id="shape",
        ),
        pytest.param(
            lambda arrays: arrays.update({"3.bias": np.zeros(2, np.float64)}),
            "the parameters do not fit this model: 3.bias is float32[2] here and float64[2] there: "
            "use the model they were saved from",
            id="dtype",
        ),
    ],
)
def test_what_does_not_fit_changes_nothing(change, message):
    model = build(make_def())
    before = copied(model.parameters())
    arrays = {name: array + 1 for name, array in before.items()}
    change(arrays)
    with pytest.raises(CheckpointError) as caught:
        model.load(arrays, None)
    assert str(caught.value) == message
    assert_equal(model.parameters(), before)


def test_a_state_of_another_optimizer():
    first, other = make_def(optimizer=OPTIMIZERS["adam"]), make_def(lr_scheduler=SCHEDULES["step"])
    state = FRAMEWORK.build_updater(first, build(first)).state()
    with pytest.raises(CheckpointError) as caught:
        FRAMEWORK.build_updater(other, build(other)).load_state(state)
    assert str(caught.value) == (
        "the optimizer's state was saved from Adam and this is SGD with StepLR: use the same "
        "optimizer and schedule"
    )


# -- batches


def rows(count):
    return [(np.full(4, i, np.float32), i) for i in range(count)]


class MapStyle(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        # Unlike a list, this never raises IndexError.
        return self.rows[index % len(self.rows)]


class IterableStyle(torch.utils.data.IterableDataset):
    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        yield from self.rows


@pytest.mark.parametrize(
    "dataset_fn",
    [
        lambda dataset, mode: dataset,
        lambda dataset, mode: ((x, y) for x, y in dataset),
        lambda dataset, mode: MapStyle(dataset),
        lambda dataset, mode: IterableStyle(dataset),
    ],
)
def test_batches_hold_exactly_their_records(dataset_fn):
    batch = FRAMEWORK.make_batch(make_def(dataset_fn=dataset_fn), rows(5), Mode.TRAINING)
    assert batch.num_examples == 5
    assert batch.features[:, 0].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert batch.labels.tolist() == [0, 1, 2, 3, 4]


def test_dataset_fn_may_filter_and_multiply():
    model_def = make_def(dataset_fn=lambda dataset, mode: [r for r in dataset if r[1] > 9])
    assert FRAMEWORK.make_batch(model_def, rows(3), Mode.TRAINING) == Batch(None, None, 0)
    model_def = make_def(dataset_fn=lambda dataset, mode: list(dataset) * 3)
    assert FRAMEWORK.make_batch(model_def, rows(3), Mode.TRAINING).num_examples == 9


def test_prediction_needs_no_labels():
    model_def = make_def(dataset_fn=lambda dataset, mode: [x for x, _ in dataset])
    batch = FRAMEWORK.make_batch(model_def, rows(3), Mode.PREDICTION)
    assert (batch.features.shape, batch.labels, batch.num_examples) == ((3, 4), None, 3)


def test_records_without_names_are_told_where_dataset_fn_takes_them_for_dicts():
    def looking(dataset, mode):
        return [list(record.values()) for record in dataset]

    with pytest.raises(ModelDefError) as caught:
        FRAMEWORK.make_batch(make_def(dataset_fn=looking), [("1", "2")], Mode.TRAINING)
    where = f"({__file__}:{looking.__code__.co_firstlineno + 1})"
    assert str(caught.value) == (
        "dataset_fn failed: AttributeError: 'tuple' object has no attribute 'values' "
        f"{where}; a record is a tuple of 2"
    )


def test_records_are_no_cause_of_what_a_module_lacks():
    with pytest.raises(ModelDefError) as caught:
        FRAMEWORK.make_batch(
            make_def(dataset_fn=lambda d, m: torch.tenser(d)), rows(1), Mode.TRAINING
        )
    assert "a record is" not in str(caught.value)


def failing(*_arguments):
    raise ValueError("no luck")


WHERE = f"({__file__}:{failing.__code__.co_firstlineno + 1})"


@pytest.mark.parametrize(
    ("record", "key", "words"),
    [
        ({"x": 1.0, "y": 0}, "z", "KeyError: 'z' {where}; a record is a dict with the fields x, y"),
        (("1", "2"), 2, "IndexError: tuple index out of range {where}; a record is a tuple of 2"),
        (
            ("1", "2"),
            "x",
            "TypeError: tuple indices must be integers or slices, not str {where}; a record is a "
            "tuple of 2",
        ),
        (np.zeros(3), 3, "index 3 is out of bounds for axis 0 with size 3 {where}; a record is an "
         "array of shape (3,)"),
    ],
)  # fmt: skip
def test_a_record_without_what_dataset_fn_looks_for_is_told(record, key, words):
    def looking(dataset, mode):
        return [record[key] for record in dataset]

    with pytest.raises(ModelDefError) as caught:
        FRAMEWORK.make_batch(make_def(dataset_fn=looking), [record], Mode.TRAINING)
    where = f"({__file__}:{looking.__code__.co_firstlineno + 1})"
    assert str(caught.value).startswith("dataset_fn failed: ")
    assert str(caught.value).endswith(words.format(where=where))


@pytest.mark.parametrize(
    ("dataset_fn", "message"),
    [
        (failing, f"dataset_fn failed: ValueError: no luck {WHERE}"),
        (
            lambda d, m: 3,
            "dataset_fn returned a int: return an iterable of (features, labels)",
        ),
        (
            lambda d, m: torch.utils.data.DataLoader(d),
            "dataset_fn returned a DataLoader: return its dataset, minibatches are made of it",
        ),
        (
            lambda d, m: [(1, 2, 3)],
            "dataset_fn gave a tuple of 3 in mode training: every element must be a tuple "
            "(features, labels)",
        ),
        (
            lambda d, m: [(torch.zeros(2), 0), (torch.zeros(3), 0)],
            "the examples of one minibatch cannot be stacked: make tensors of equal shapes in "
            "dataset_fn (stack expects each tensor to be equal size, but got [2] at entry 0 and "
            "[3] at entry 1)",
        ),
    ],
)
def test_what_dataset_fn_does_wrong(dataset_fn, message):
    with pytest.raises(ModelDefError) as caught:
        FRAMEWORK.make_batch(make_def(dataset_fn=dataset_fn), rows(2), Mode.TRAINING)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("model_def", "message"),
    [
        (
            make_def(failing),
            f"making the model with the parameters {{}} failed: ValueError: no luck {WHERE}",
        ),
        (
            make_def(lambda: 3),
            "the model function returned a int: return a torch.nn.Module",
        ),
        (
            make_def(nn.Identity),
            "the model Identity has no parameters to train: give it layers, or set requires_grad",
        ),
        (
            make_def(loss=lambda y, p: p.mean(dim=1)),
            "loss returned a tensor of shape [8]: return a scalar, such as its mean",
        ),
        (
            make_def(loss=lambda y, p: p.mean().item()),
            "loss returned a float: return a scalar tensor, or a dict, list or tuple of them",
        ),
        (make_def(loss=lambda y, p: {}), "loss returned nothing: return a scalar tensor"),
        (make_def(loss=failing), f"loss failed: ValueError: no luck {WHERE}"),
    ],
)
def test_what_a_model_does_wrong(model_def, message):
    if model_def.model is nn.Identity:
        model_def = make_def(nn.Identity, loss=lambda y, p: p.mean())
    with pytest.raises(ModelDefError) as caught:
        build(model_def)
    assert str(caught.value) == message


def test_a_loss_without_the_parameters():
    with pytest.raises(ModelDefError) as caught:
        build(make_def(loss=lambda y, p: p.detach().mean()))
    assert str(caught.value) == (
        "the loss depends on no trained parameter: compute it from the predictions with torch "
        "operations, without detach() or no_grad()"
    )


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        (
            {"optimizer": lambda p: 3},
            "optimizer returned a int: return a torch.optim.Optimizer",
        ),
        ({"optimizer": failing}, f"optimizer failed: ValueError: no luck {WHERE}"),
        (
            {"optimizer": torch.optim.LBFGS},
            "optimizer returned a LBFGS, which computes the loss several times a step: use an "
            "optimizer that needs gradients only",
        ),
        (
            {"lr_scheduler": lambda o: schedules.ReduceLROnPlateau(o)},
            "lr_scheduler returned a ReduceLROnPlateau, which waits for a metric after every "
            "epoch: use a schedule that depends on the number of steps or epochs only",
        ),
        (
            {"lr_scheduler": lambda o: None},
            "lr_scheduler returned a NoneType: return a torch LRScheduler, or "
            '{"scheduler": …, "interval": "epoch"}',
        ),
        (
            {"lr_scheduler": lambda o: {"scheduler": schedules.StepLR(o, 1), "interval": "day"}},
            "lr_scheduler returned the interval 'day': use 'step' or 'epoch'",
        ),
        ({"lr_scheduler": failing}, f"lr_scheduler failed: ValueError: no luck {WHERE}"),
    ],
)
def test_what_an_optimizer_does_wrong(rest, message):
    model_def = make_def(**rest)
    with pytest.raises(ModelDefError) as caught:
        FRAMEWORK.build_updater(model_def, build(model_def))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        (failing, f"eval_metrics_fn failed: ValueError: no luck {WHERE}"),
        (lambda: 3, "eval_metrics_fn returned a int: return a dict of metrics by name"),
        (
            lambda: {"loss": mse},
            "eval_metrics_fn names a metric 'loss', which the loss itself is called: rename it",
        ),
        (
            lambda: {"a": "accuracy"},
            "eval_metrics_fn gives str for 'a': give a function f(labels, predictions), or a "
            "metric object",
        ),
    ],
)
def test_what_metrics_do_wrong(metrics, message):
    with pytest.raises(ModelDefError) as caught:
        build(make_def(eval_metrics_fn=metrics)).metrics(make_batch())
    assert str(caught.value) == message


def over_and_over(dataset, mode):
    while True:
        yield from dataset


class Endless(torch.utils.data.IterableDataset):
    def __init__(self, dataset):
        self._dataset = dataset

    def __iter__(self):
        return itertools.cycle(self._dataset)


@pytest.mark.parametrize("dataset_fn", [over_and_over, lambda dataset, mode: Endless(dataset)])
def test_a_dataset_without_an_end_is_ended(dataset_fn):
    records = [(torch.zeros(4), torch.zeros(2))] * 3
    with pytest.raises(ModelDefError) as caught:
        FRAMEWORK.make_batch(make_def(dataset_fn=dataset_fn), records, Mode.TRAINING)
    assert str(caught.value) == (
        "dataset_fn has made more than 10300 examples of the 3 records of one minibatch, and seems "
        "to have no end: go through them once, epochs are counted by the job"
    )


def test_many_examples_of_a_record_are_all_taken():
    records = [(torch.zeros(1), torch.zeros(1))]
    model_def = make_def(dataset_fn=lambda dataset, mode: list(dataset) * 10_100)
    assert FRAMEWORK.make_batch(model_def, records, Mode.TRAINING).num_examples == 10_100


def limited_loss(most):
    """A loss that has room for so many examples, and for none where one of them is bad."""

    def loss(labels, predictions):
        if len(labels) > most or (labels > 100).any():
            raise RuntimeError(f"no room for {len(labels)}")
        return mse(labels, predictions)

    return loss


def test_a_sample_too_large_for_this_machine_is_tried_in_parts():
    model = build(make_def(loss=limited_loss(3)))
    assert model.module.training
    assert len(model.parameters()) == 6


def test_what_fails_on_one_example_is_told_as_the_whole_failed():
    sample = make_batch()
    sample.labels[5] = 101.0
    with pytest.raises(ModelDefError, match="loss failed: RuntimeError: no room for 8"):
        build(make_def(loss=limited_loss(100)), sample=sample)
