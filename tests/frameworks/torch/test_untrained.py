"""Parameters without `requires_grad` that a step changes: of each process alone, and so refused."""

import copy

import pytest
import torch
from torch import nn

from elastic.errors import ModelFaultError
from elastic.frameworks import load_framework
from elastic.frameworks.base import Batch
from elastic.frameworks.torch.untrained import LAST_LOOK
from elastic.spec.model_def import ModelDef

BATCH = Batch(torch.randn(8, 4), torch.randn(8, 2), 8)


class Taught(nn.Module):
    """A student and what starts as its copy; `follow` makes of that what a step makes of it."""

    def __init__(self, follow):
        super().__init__()
        self.student = nn.Linear(4, 2)
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        self._follow = follow

    def forward(self, features):
        if self.training:
            with torch.no_grad():
                self._follow(self.teacher, self.student)
        return self.student(features) + self.teacher(features)


def in_place(teacher, student):
    for own, other in zip(teacher.parameters(), student.parameters(), strict=True):
        own.lerp_(other, 0.25)


def by_data(teacher, student):
    for own, other in zip(teacher.parameters(), student.parameters(), strict=True):
        own.data.mul_(0.5).add_(other.data, alpha=0.5)


def bound_anew(teacher, student):
    for own, other in zip(teacher.parameters(), student.parameters(), strict=True):
        own.data = own.data * 0.5 + other.data * 0.5


def another_one(teacher, student):
    mean = teacher.weight * 0.5 + student.weight * 0.5
    teacher.weight = nn.Parameter(mean, requires_grad=False)


def not_at_all(_teacher, _student):
    pass


def build(make):
    model_def = ModelDef(
        "net",
        "torch",
        make,
        lambda labels, predictions: nn.functional.mse_loss(predictions, labels),
        lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        lambda dataset, _mode: dataset,
    )
    framework = load_framework("torch")
    model = framework.build_model(model_def, {}, BATCH, seed=1)
    return model, framework.build_updater(model_def, model)


def step(model, updater):
    updater.apply(model.gradients(BATCH, 0).gradients)


@pytest.mark.parametrize("follow", [in_place, by_data, bound_anew, another_one])
def test_a_teacher_that_follows_its_student_is_refused_when_they_differ(follow):
    model, updater = build(lambda: Taught(follow))
    # Whoever follows what it equals stays as it is.
    step(model, updater)
    for _ in range(2):
        with pytest.raises(ModelFaultError) as caught:
            step(model, updater)
        assert "a step changes teacher.weight" in str(caught.value)
        assert "register_buffer" in str(caught.value)


def test_one_that_the_forward_pass_changes_is_refused_before_anything_is_trained():
    class Counting(nn.Linear):
        def __init__(self):
            super().__init__(4, 2)
            self.calls = nn.Parameter(torch.zeros((), dtype=torch.int64), requires_grad=False)

        def forward(self, features):
            self.calls += 1
            return super().forward(features)

    with pytest.raises(ModelFaultError, match="a step changes calls, which is not trained"):
        build(Counting)


def test_what_no_step_changes_is_not_minded_whatever_it_is_of():
    class Kept(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 2)
            self.lazy = nn.LazyLinear(2)
            for parameter in self.lazy.parameters():
                parameter.requires_grad = False
            values = (
                torch.tensor([1.5, float("nan"), float("inf")]),
                torch.ones(3, dtype=torch.bfloat16),
                torch.ones(3, dtype=torch.int8),
                torch.tensor(True),
                torch.ones(3, dtype=torch.complex64),
                torch.ones(3, dtype=torch.complex128),
                torch.ones(3).to(torch.float8_e4m3fn),
                torch.eye(3).to_sparse(),
            )
            self.kept = nn.ParameterList(nn.Parameter(each, requires_grad=False) for each in values)

        def forward(self, features):
            return self.layer(features) + self.lazy(features)

    model, updater = build(Kept)
    for _ in range(LAST_LOOK + 1):
        step(model, updater)
    follower, its_updater = build(lambda: Taught(not_at_all))
    for _ in range(LAST_LOOK + 1):
        step(follower, its_updater)


def test_a_small_change_beside_a_large_value_is_one():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 2)
            self.kept = nn.Parameter(torch.tensor([1e20, 1.0]), requires_grad=False)

        def forward(self, features):
            if self.training:
                self.kept[1] += 1
            return self.layer(features)

    model, _ = build(Counting)
    with pytest.raises(ModelFaultError, match="a step changes kept"):
        model.gradients(BATCH, 0)


def test_only_the_first_steps_are_looked_at(monkeypatch):
    model, updater = build(lambda: Taught(not_at_all))
    looks = []
    summed = type(model._untrained)._sums
    monkeypatch.setattr(
        type(model._untrained), "_sums", lambda own: looks.append(own._num_steps) or summed(own)
    )
    for _ in range(40):
        step(model, updater)
    assert looks == [each for number in (1, 2, 4, 8, 16) for each in (number, number)]
