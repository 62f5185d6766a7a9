"""Keras' optimizers as rules by which rows of embeddings are updated."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import keras

from elastic.errors import ModelDefError
from elastic.rows.kernels import RowRule

_REFUSED: Final = {
    "clipnorm": "looks at all of a gradient at once",
    "global_clipnorm": "looks at all gradients at once",
    "clipvalue": "bounds gradients",
    "use_ema": "averages parameters over updates",
    "gradient_accumulation_steps": "updates after several gradients: use --grads_to_wait",
    "amsgrad": "keeps the largest square of each number",
}


def row_rule_of(optimizer: Any) -> RowRule:
    """How an optimizer updates rows, without the loss scaling around it, which rows do not see.

    Raises:
        ModelDefError: In a way that there is no kernel for.
    """
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        # It hands the inner one what it divides by; nobody else clips or averages there.
        return row_rule_of(optimizer.inner_optimizer)
    name, make = type(optimizer).__name__, _RULES.get(type(optimizer))
    if make is None:
        raise ModelDefError(
            f"optimizer returned a {name}, and the model has embeddings, whose rows are updated by "
            f"{', '.join(known.__name__ for known in _RULES)} of keras.optimizers, and not by a "
            "class of their own: use one of these"
        )
    for word, does in _REFUSED.items():
        if getattr(optimizer, word, None):
            raise ModelDefError(
                f"optimizer returned a {name} with {word}={getattr(optimizer, word)}, which "
                f"{does}; the model has embeddings, whose rows are not updated so: leave it out"
            )
    rule = make(optimizer)
    return RowRule(rule.kind, {**rule.numbers, "decay": float(optimizer.weight_decay or 0)})


def _sgd(optimizer: Any) -> RowRule:
    if not optimizer.momentum:
        return RowRule("sgd")
    return RowRule("velocity", _numbers(optimizer, "momentum", "nesterov"))


def _adagrad(optimizer: Any) -> RowRule:
    numbers = _numbers(optimizer, initial="initial_accumulator_value", epsilon_within="epsilon")
    return RowRule("adagrad", numbers)


def _adam(optimizer: Any) -> RowRule:
    return RowRule("adam", _numbers(optimizer, "beta_1", "beta_2", epsilon_raw="epsilon"))


def _rmsprop(optimizer: Any) -> RowRule:
    numbers = _numbers(optimizer, "rho", "momentum", "centered", epsilon_within="epsilon")
    return RowRule("rmsprop", {**numbers, "rate_within": 1.0})


def _numbers(optimizer: Any, *same: str, **by_ours: str) -> dict[str, float]:
    """Some of an optimizer's hyper-parameters, by our words."""
    words = dict(zip(same, same, strict=True)) | by_ours
    return {ours: float(getattr(optimizer, theirs)) for ours, theirs in words.items()}


_RULES: Final[Mapping[type, Callable[[Any], RowRule]]] = {
    keras.optimizers.SGD: _sgd,
    keras.optimizers.Adagrad: _adagrad,
    keras.optimizers.Adam: _adam,
    keras.optimizers.AdamW: _adam,
    keras.optimizers.RMSprop: _rmsprop,
}
