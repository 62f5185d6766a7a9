"""torch's optimizers as rules by which rows of embeddings are updated."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import torch

from elastic.errors import ModelDefError
from elastic.rows.kernels import RowRule

Group: TypeAlias = Mapping[str, Any]
"""Hyper-parameters of some parameters, as an optimizer has them."""

_REFUSED: Final = {
    "amsgrad": "keeps the largest square of each number",
    "maximize": "goes up the gradient",
    "lr_decay": "has a rate that falls with the updates of each row: use lr_scheduler",
}


def row_rule_of(optimizer: torch.optim.Optimizer) -> RowRule:
    """How an optimizer updates rows, by its first parameter group.

    Raises:
        ModelDefError: In a way that there is no kernel for.
    """
    name, make = type(optimizer).__name__, _RULES.get(type(optimizer))
    if make is None:
        raise ModelDefError(
            f"optimizer returned a {name}, and the model has embeddings, whose rows are updated by "
            f"{', '.join(known.__name__ for known in _RULES)} of torch.optim, and not by a class "
            "of their own: use one of these"
        )
    group = optimizer.param_groups[0]
    for word, does in _REFUSED.items():
        if group.get(word):
            raise ModelDefError(
                f"optimizer returned a {name} with {word}={group[word]}, which {does}; the model "
                "has embeddings, whose rows are not updated so: leave it out"
            )
    return make(group)


def _sgd(group: Group) -> RowRule:
    if not group["momentum"]:
        return RowRule("sgd", _numbers(group, "weight_decay"))
    return RowRule("momentum", _numbers(group, "momentum", "dampening", "nesterov", "weight_decay"))


def _adagrad(group: Group) -> RowRule:
    numbers = _numbers(group, "weight_decay", initial="initial_accumulator_value", epsilon="eps")
    return RowRule("adagrad", numbers)


def _adam(group: Group) -> RowRule:
    betas = {f"beta_{number}": float(beta) for number, beta in enumerate(group["betas"], 1)}
    decay = "decay" if group.get("decoupled_weight_decay") else "weight_decay"
    return RowRule("adam", betas | _numbers(group, epsilon="eps", **{decay: "weight_decay"}))


def _decayed_adam(group: Group) -> RowRule:
    # torch before 2.7 does not say so in the group.
    return _adam({**group, "decoupled_weight_decay": True})


def _sparse_adam(group: Group) -> RowRule:
    betas = {f"beta_{number}": float(beta) for number, beta in enumerate(group["betas"], 1)}
    return RowRule("adam", betas | _numbers(group, epsilon_raw="eps"))


def _rmsprop(group: Group) -> RowRule:
    numbers = _numbers(group, "momentum", "centered", "weight_decay", rho="alpha", epsilon="eps")
    return RowRule("rmsprop", numbers)


def _numbers(group: Group, *same: str, **by_ours: str) -> dict[str, float]:
    """Some of a group's values, by our words."""
    words = dict(zip(same, same, strict=True)) | by_ours
    return {ours: float(group[theirs]) for ours, theirs in words.items()}


_RULES: Final[Mapping[type, Callable[[Group], RowRule]]] = {
    torch.optim.SGD: _sgd,
    torch.optim.Adagrad: _adagrad,
    torch.optim.Adam: _adam,
    torch.optim.AdamW: _decayed_adam,
    torch.optim.SparseAdam: _sparse_adam,
    torch.optim.RMSprop: _rmsprop,
}
