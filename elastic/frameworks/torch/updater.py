"""The user's torch optimizer and schedule: over a model, over a part of it, as a rule for rows."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from elastic.errors import CheckpointError, ModelDefError
from elastic.frameworks.base import Array, Tensors, UpdaterState, check_fit, copy_values
from elastic.frameworks.torch.model import TorchModel
from elastic.frameworks.torch.tensors import (
    fill,
    pack,
    placed,
    to_array,
    to_tensor,
    unpack,
    wait_for,
)
from elastic.frameworks.user_code import asked_for, user_code
from elastic.rows.arithmetic import RowRule
from elastic.spec.model_def import ModelDef

PARALLEL_BYTES: Final = 32 << 20
"""Parameters below this are updated by one thread: measured on two cores, waking others costs more
than they do, up to 12 ms, and they spin where a worker is about to compute."""


_BY_ELEMENT: Final = (
    torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad,
    torch.optim.Adadelta, torch.optim.Adamax, torch.optim.ASGD, torch.optim.NAdam,
    torch.optim.RAdam, torch.optim.RMSprop, torch.optim.Rprop,
)  # fmt: skip
"""Update each number by itself; a subclass may do otherwise."""

Group: TypeAlias = Mapping[str, Any]
"""Hyper-parameters of some parameters, as an optimizer has them."""

_REFUSED: Final = {
    "amsgrad": "keeps the largest square of each number",
    "maximize": "goes up the gradient",
    "lr_decay": "has a rate that falls with the updates of each row: use lr_scheduler",
}


class TorchShare:
    """Parameters with their values, and in place of each other one a shape without memory.

    The user's function may tell parameters by their place in the list or by their number of
    dimensions, so it gets as many as the model has. Those without values never have a gradient,
    and torch's optimizers pass over them.

    Attributes:
        trained: Those with values, by name.
        elsewhere: The others.
        listed: All, in the order of the model.
    """

    def __init__(
        self,
        whole: Mapping[str, Array],
        parameters: Mapping[str, Array],
        state: Mapping[str, Array],
    ) -> None:
        """See `Framework.build_share`."""
        self.trained = {
            name: torch.nn.Parameter(to_tensor(array.copy())) for name, array in parameters.items()
        }
        self.elsewhere = {
            name: torch.nn.Parameter(_without_memory(array))
            for name, array in whole.items()
            if name not in parameters
        }
        every = self.trained | self.elsewhere
        self.listed = [every[name] for name in whole]
        self._state = {name: array.copy() for name, array in state.items()}

    def parameters(self) -> Tensors:
        """Views of the parameters with values."""
        return {name: to_array(parameter) for name, parameter in self.trained.items()}

    def state(self) -> Tensors:
        """What is not trained."""
        return dict(self._state)

    def copy_into(self, parameters: Mapping[str, Array], state: Mapping[str, Array]) -> None:
        """See `Values`."""
        copy_values(self, parameters, state)

    def load(
        self, parameters: Mapping[str, Array] | None, state: Mapping[str, Array] | None
    ) -> None:
        """Copy values in, by name; None leaves what is there."""
        if parameters is not None:
            check_fit("parameters", self.parameters(), parameters)
        if state is not None:
            check_fit("state", self._state, state)
            for name, array in state.items():
                np.copyto(self._state[name], array)
        if parameters is not None:
            for name, array in parameters.items():
                fill(self.trained[name], array)


def _without_memory(array: Array) -> torch.Tensor:
    return to_tensor(np.zeros((), array.dtype)).expand(array.shape)


@dataclass(slots=True)
class _Plan:
    """A schedule that was told how many updates there will be has no rate for more.

    There may be some: a minibatch that fails is computed in parts, and who resumes a job may want
    more epochs. They have the rate of the last update that was planned.
    """

    total_steps: int
    num_done: int = 0

    def advance(self) -> bool:
        """Count an update; whether the schedule has another rate for the next."""
        self.num_done += 1
        return self.num_done < self.total_steps


class TorchUpdater:
    """Applies gradients by the user's own optimizer object."""

    def __init__(
        self,
        model_def: ModelDef,
        model: TorchModel | TorchShare,
        total_steps: int | None = None,
    ) -> None:
        self._parameters = model.trained
        self._elsewhere = model.elsewhere
        self._optimizer = _build_optimizer(model_def, model, total_steps)
        for parameter in self._elsewhere.values():
            # Some optimizers make the slots of all parameters at once.
            self._optimizer.state.pop(parameter, None)
        _use_fused_kernel(self._optimizer)
        self._scheduler, self._by_epoch = _build_scheduler(model_def, self._optimizer, total_steps)
        self._plan = _plan_of(model_def, total_steps)
        size_bytes = sum(parameter.nbytes for parameter in self._parameters.values())
        self._is_parallel = size_bytes >= PARALLEL_BYTES

    def apply(self, gradients: Mapping[str, Array], learning_rate_scale: float = 1.0) -> None:
        """Update the parameters in place.

        The optimizer works on the arrays' own memory and may change it, as hooks that clip do.
        """
        parameters = self._parameters.values()
        given = placed((gradients[name], each.device) for name, each in self._parameters.items())
        for parameter, gradient in zip(parameters, given, strict=True):
            parameter.grad = _laid_out_as(parameter, gradient)
        threads = nullcontext() if self._is_parallel else _one_thread()
        with threads, self._scaled(learning_rate_scale), user_code("the optimizer's step"):
            self._optimizer.step()
        for parameter in parameters:
            parameter.grad = None
        # The arrays are the caller's again.
        wait_for({parameter.device for parameter in parameters})
        if not self._by_epoch and (self._plan is None or self._plan.advance()):
            self._step_scheduler()

    def end_epoch(self) -> None:
        """Advance a schedule that counts epochs."""
        if self._by_epoch:
            self._step_scheduler()

    def learning_rate(self) -> float:
        """The rate of the first parameter group."""
        return float(self._optimizer.param_groups[0]["lr"])

    def is_proportional(self) -> bool:
        """See `Updater`."""
        return isinstance(self._optimizer, torch.optim.SGD | torch.optim.ASGD)

    def state(self) -> UpdaterState:
        """Slots named after their parameter, as `fc.weight/exp_avg`."""
        tensors: Tensors = {}
        state_dict = self._optimizer.state_dict()
        names = self._names_by_index(state_dict["param_groups"])
        slots = {
            names.get(key, str(key)): pack(value, names.get(key, str(key)), tensors)
            for key, value in state_dict["state"].items()
        }
        values = {
            "class": type(self._optimizer).__name__,
            "slots": slots,
            "param_groups": pack(state_dict["param_groups"], "param_groups", tensors),
        }
        if self._scheduler is not None:
            values["schedule_class"] = type(self._scheduler).__name__
            values["schedule"] = pack(self._scheduler.state_dict(), "schedule", tensors)
        if self._plan is not None:
            values["plan"] = [self._plan.total_steps, self._plan.num_done]
        return UpdaterState(tensors, values)

    def load_state(self, state: UpdaterState) -> None:
        """Continue as the optimizer that `state` was taken from."""
        self._check_kind(state.values)
        needed = ("param_groups", "slots", *(["schedule"] if self._scheduler else []))
        missing = [key for key in needed if key not in state.values]
        if missing:
            raise CheckpointError(f"the optimizer's state lacks its {', '.join(missing)}")
        try:
            # The user's own class may answer a state that does not fit with whatever it likes.
            with user_code(f"loading it into {type(self._optimizer).__name__}"):
                self._load(state.values, state.tensors)
        except ModelDefError as error:
            raise CheckpointError(f"the optimizer's state does not fit: {error}") from error

    def row_rule(self) -> RowRule:
        """By the first parameter group."""
        if self._hooks():
            raise ModelDefError(
                f"optimizer returned a {type(self._optimizer).__name__} with a hook of its step, "
                "which would not see the rows of the model's embeddings: leave the hook out"
            )
        return row_rule_of(self._optimizer)

    def may_cut(self, num_servers: int) -> bool:
        """Whether each number is updated by itself."""
        if num_servers > 1 and self._hooks():
            raise ModelDefError(
                f"optimizer returned a {type(self._optimizer).__name__} with a hook of its step, "
                f"which each of {num_servers} parameter servers would call for its own tensors "
                "alone: leave the hook out, or give --num_ps 1"
            )
        return type(self._optimizer) in _BY_ELEMENT

    def _hooks(self) -> tuple[Any, ...]:
        # torch has no public way to look.
        return (
            *self._optimizer._optimizer_step_pre_hooks.values(),  # noqa: SLF001
            *self._optimizer._optimizer_step_post_hooks.values(),  # noqa: SLF001
        )

    def _load(self, values: Mapping[str, Any], tensors: Mapping[str, Array]) -> None:
        groups = unpack(values["param_groups"], tensors)
        index_by_name = {name: index for index, name in self._names_by_index(groups).items()}
        slots = {
            index_by_name.get(name, name): unpack(slot, tensors)
            for name, slot in values["slots"].items()
            if name not in self._elsewhere
        }
        if self._scheduler is not None:
            self._scheduler.load_state_dict(unpack(values["schedule"], tensors))
        if self._plan is not None and "plan" in values:
            # The schedule has its own length among what it has saved.
            self._plan = _Plan(*values["plan"])
        self._optimizer.load_state_dict({"state": slots, "param_groups": groups})
        for parameter in self._parameters.values():
            # An optimizer may keep other things there too, and under other keys.
            slot = self._optimizer.state.get(parameter)
            if isinstance(slot, dict):
                slot |= {
                    key: _laid_out_as(parameter, value)
                    for key, value in slot.items()
                    if torch.is_tensor(value) and value.shape == parameter.shape
                }

    def _check_kind(self, values: Mapping[str, Any]) -> None:
        here = {"class": type(self._optimizer).__name__}
        if self._scheduler is not None:
            here["schedule_class"] = type(self._scheduler).__name__
        there = {key: values[key] for key in ("class", "schedule_class") if key in values}
        if here != there:
            raise CheckpointError(
                "the optimizer's state was saved from "
                f"{' with '.join(map(str, there.values())) or 'nothing'}"
                f" and this is {' with '.join(here.values())}: use the same optimizer and schedule"
            )

    def _names_by_index(self, groups: list[dict[str, Any]]) -> dict[int, str]:
        """Which parameter is behind each number of a state_dict."""
        names = {id(parameter): name for name, parameter in self._parameters.items()}
        pairs: dict[int, str] = {}
        for saved, group in zip(groups, self._optimizer.param_groups, strict=False):
            for index, parameter in zip(saved["params"], group["params"], strict=False):
                if id(parameter) in names:
                    pairs[index] = names[id(parameter)]
        return pairs

    @contextmanager
    def _scaled(self, scale: float) -> Iterator[None]:
        if scale == 1.0:
            yield
            return
        groups = self._optimizer.param_groups
        rates = [group["lr"] for group in groups]
        for group in groups:
            group["lr"] = group["lr"] * scale
        try:
            yield
        finally:
            for group, rate in zip(groups, rates, strict=True):
                group["lr"] = rate

    def _step_scheduler(self) -> None:
        if self._scheduler is not None:
            with user_code("the schedule's step"):
                self._scheduler.step()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute by the calling thread alone."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _laid_out_as(parameter: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The values in the order in which the parameter has them in memory.

    Fused kernels go through the memory of all their arrays alike, and heed no strides.
    """
    if values.stride() == parameter.stride():
        return values
    return torch.empty_like(parameter, dtype=values.dtype).copy_(values)


def _build_optimizer(
    model_def: ModelDef, model: TorchModel | TorchShare, total_steps: int | None
) -> torch.optim.Optimizer:
    asked = asked_for(model_def.optimizer, "optimizer", total_steps)
    with user_code("optimizer"):
        optimizer = model_def.optimizer(list(model.listed), **asked)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ModelDefError(
            f"optimizer returned a {type(optimizer).__name__}: return a torch.optim.Optimizer"
        )
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise ModelDefError(
            f"optimizer returned a {type(optimizer).__name__}, which computes the loss several "
            "times a step: use an optimizer that needs gradients only"
        )
    return optimizer


def _use_fused_kernel(optimizer: torch.optim.Optimizer) -> None:
    """Let Adam pass over its arrays once, where the user has not chosen another way.

    On a processor torch's own default is a Python loop of nine operations for each parameter.
    """
    if type(optimizer) not in (torch.optim.Adam, torch.optim.AdamW):
        return
    for group in optimizer.param_groups:
        is_chosen = any(
            group.get(key) for key in ("foreach", "capturable", "differentiable", "fused")
        )
        on_processor = all(
            parameter.device.type == "cpu" and parameter.is_floating_point()
            for parameter in group["params"]
        )
        if not is_chosen and group.get("foreach") is None and on_processor:
            group["fused"] = True


def _plan_of(model_def: ModelDef, total_steps: int | None) -> _Plan | None:
    """The plan that the user's schedule was told of, if it asked."""
    if model_def.lr_scheduler is None:
        return None
    asked = asked_for(model_def.lr_scheduler, "lr_scheduler", total_steps)
    return _Plan(**asked) if asked else None


def _build_scheduler(
    model_def: ModelDef, optimizer: torch.optim.Optimizer, total_steps: int | None
) -> tuple[LRScheduler | None, bool]:
    """The user's schedule, and whether it counts epochs."""
    if model_def.lr_scheduler is None:
        return None, False
    asked = asked_for(model_def.lr_scheduler, "lr_scheduler", total_steps)
    with user_code("lr_scheduler"):
        made = model_def.lr_scheduler(optimizer, **asked)
    interval = "step"
    if isinstance(made, Mapping):
        interval = made.get("interval", "step")
        made = made.get("scheduler")
    if interval not in ("step", "epoch"):
        raise ModelDefError(
            f"lr_scheduler returned the interval {interval!r}: use 'step' or 'epoch'"
        )
    if isinstance(made, ReduceLROnPlateau):
        raise ModelDefError(
            "lr_scheduler returned a ReduceLROnPlateau, which waits for a metric after every "
            "epoch: use a schedule that depends on the number of steps or epochs only"
        )
    if not isinstance(made, LRScheduler):
        raise ModelDefError(
            f"lr_scheduler returned a {type(made).__name__}: return a torch LRScheduler, or "
            '{"scheduler": …, "interval": "epoch"}'
        )
    return made, interval == "epoch"


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
