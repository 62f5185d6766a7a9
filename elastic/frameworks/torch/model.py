"""A torch module with the user's loss and metrics.

Metrics are sums that add up exactly over any split of the records.
"""

import math
import random
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError

from elastic.errors import CheckpointError, ModelDefError
from elastic.frameworks.base import (
    Array,
    Batch,
    MetricState,
    Replacement,
    StepResult,
    Tensors,
    check_fit,
    disk_error,
    mean_of,
    mean_state,
    named_results,
    some,
    widened,
)
from elastic.frameworks.embeddings import reading, recording
from elastic.frameworks.torch.embedding import row_gradients, sources_of
from elastic.frameworks.torch.tensors import (
    HostCopies,
    copy_all,
    fill_all,
    map_tensors,
    stand_in,
    to_array,
    to_device,
)
from elastic.frameworks.torch.untrained import Untrained
from elastic.frameworks.user_code import (
    leaves,
    metric_functions,
    part_that_runs,
    predicted_arrays,
    user_code,
)
from elastic.rows.base import RowReader, Table
from elastic.spec.model_def import ModelDef
from elastic.spec.values import export_target


class TorchMetrics:
    """Plain functions, and objects of torchmetrics' form, whose state is sums."""

    def __init__(self, eval_metrics_fn: Callable[[], Any] | None, device: torch.device) -> None:
        metrics = metric_functions(eval_metrics_fn, is_metric_object)
        self._metrics = {
            name: _MetricObject(name, metric, device) if is_metric_object(metric) else metric
            for name, metric in metrics.items()
        }

    def states(self, labels: Any, predictions: Any, num_examples: int) -> list[MetricState]:
        """Mergeable states over one minibatch alone.

        Raises:
            ModelDefError: A metric failed, or keeps what cannot be added up.
        """
        found = []
        for name, metric in self._metrics.items():
            if isinstance(metric, _MetricObject):
                found.append(MetricState(name, metric.sums(labels, predictions)))
                continue
            with user_code(f"metric {name!r}"):
                value = torch.as_tensor(metric(labels, predictions))
                mean = float(value.to(torch.float64).mean())
            found.append(mean_state(name, mean, num_examples))
        return found

    def result(self, state: MetricState) -> dict[str, float]:
        """The value of one merged state; several where a metric's result is a dict or vector."""
        metric = self._metrics.get(state.name)
        if isinstance(metric, _MetricObject):
            return named_results(state.name, metric.result(state.values))
        return {state.name: mean_of(state)}


def is_metric_object(metric: Any) -> bool:
    """Whether it is of torchmetrics' form, and no class of it."""
    parts = (getattr(metric, name, None) for name in ("reset", "update", "compute"))
    return not isinstance(metric, type) and all(map(callable, parts))


class _MetricObject:
    """One metric object: `reset()`, `update(predictions, labels)`, `compute()`."""

    def __init__(self, name: str, metric: Any, device: torch.device) -> None:
        self._what = f"metric {name!r}"
        with user_code(self._what):
            self._metric = metric.to(device) if hasattr(metric, "to") else metric
            self._metric.reset()
            self._names = self._find_sums()
        self._is_checked = False

    def sums(self, labels: Any, predictions: Any) -> tuple[Array, ...]:
        """What the metric keeps of one minibatch alone."""
        with user_code(self._what):
            self._metric.reset()
            others = self._others()
            self._metric.update(predictions, labels)
            once = self._values()
            if not self._is_checked:
                self._metric.update(predictions, labels)
                self._check(once, others)
                self._is_checked = True
        return once

    def result(self, values: tuple[Array, ...]) -> Any:
        """What the metric computes of sums, with NumPy arrays for tensors."""
        if len(values) != len(self._names):
            raise CheckpointError(
                f"the {self._what} keeps {len(self._names)} sums here and {len(values)} there: use "
                "the same eval_metrics_fn everywhere"
            )
        with user_code(self._what), warnings.catch_warnings():
            # What an update would have set is set here, of which it cannot know.
            warnings.filterwarnings("ignore", message=".*compute.*before.*update")
            # Also forgets a result that it may have kept.
            self._metric.reset()
            for name, value in zip(self._names, values, strict=True):
                setattr(self._metric, name, _as_kept(getattr(self._metric, name), value))
            return _plain(self._metric.compute())

    def _find_sums(self) -> tuple[str, ...]:
        """The names of what it adds up: what it says itself, or each number that is 0 at first."""
        told = getattr(self._metric, "metric_state", None)
        if isinstance(told, Mapping):
            for name, value in told.items():
                if not _is_number(value):
                    raise self._refusal(name)
            names = tuple(told)
        else:
            names = tuple(
                name
                for name, value in vars(self._metric).items()
                if _is_number(value) and not np.any(_number(value))
            )
        if not names:
            raise ModelDefError(
                f"{self._what} keeps nothing that is 0 after reset(): keep sums as attributes"
            )
        return names

    def _others(self) -> dict[str, Array]:
        """Numbers that are no sums, which an update leaves alone."""
        return {
            name: _number(value).copy()
            for name, value in vars(self._metric).items()
            if _is_number(value) and name not in self._names and not name.startswith("_")
        }

    def _values(self) -> tuple[Array, ...]:
        kept = (getattr(self._metric, name) for name in self._names)
        return tuple(widened(_number(value).copy()) for value in kept)

    def _check(self, once: tuple[Array, ...], others: Mapping[str, Array]) -> None:
        """After a second, equal update every sum must be twice what it was, and nothing else new.

        Raises:
            ModelDefError: The metric keeps what cannot be added up, such as a largest value.
        """
        for name, first, both in zip(self._names, once, self._values(), strict=True):
            if not np.allclose(both, first + first, rtol=1e-3, atol=1e-6, equal_nan=True):
                raise self._refusal(name)
        for name, value in self._others().items():
            if name not in others or not np.array_equal(value, others[name], equal_nan=True):
                raise self._refusal(name)

    def _refusal(self, name: str) -> ModelDefError:
        kind = type(self._metric).__name__
        return ModelDefError(
            f"{self._what} cannot be put together from minibatches: {name!r} of its {kind} is no "
            "sum over the examples: keep sums in update() and compute the rest in compute() (of "
            "torchmetrics, take one with thresholds or bins, which keeps no examples)"
        )


def _is_number(value: Any) -> bool:
    """Whether it is a number, or a tensor of them, that can be added up."""
    if isinstance(value, torch.Tensor):
        return value.dtype.is_floating_point or value.dtype in (torch.int32, torch.int64)
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number(value: Any) -> Array:
    return to_array(value) if isinstance(value, torch.Tensor) else np.asarray(value)


def _as_kept(at_first: Any, value: Array) -> Any:
    """A sum in the form in which the metric keeps it."""
    if not isinstance(at_first, torch.Tensor):
        return type(at_first)(value.reshape(()))
    tensor = torch.as_tensor(value, device=at_first.device).to(at_first.dtype)
    return tensor.reshape(at_first.shape) if tensor.numel() == at_first.numel() else tensor


def _plain(result: Any) -> Any:
    if isinstance(result, Mapping):
        return {name: _plain(value) for name, value in result.items()}
    return to_array(result.detach()) if isinstance(result, torch.Tensor) else result


class TorchModel:
    """One module on one device; its arrays are views of its memory where that is the CPU's."""

    def __init__(
        self,
        module: torch.nn.Module,
        model_def: ModelDef,
        device: torch.device,
        replacement: Replacement | None = None,
    ) -> None:
        self.module = module
        self.replacement = replacement
        self._loss = model_def.loss
        self._eval_metrics_fn = model_def.eval_metrics_fn
        self._metrics: TorchMetrics | None = None
        self._device = device
        self._sources = sources_of(module)
        self.trained = {n: p for n, p in module.named_parameters() if p.requires_grad}
        self._untrained = Untrained(module)
        saved = module.state_dict().keys()
        self._buffers = {n: b for n, b in module.named_buffers() if n in saved}
        self._held_parameters = HostCopies()
        self._held_gradients = HostCopies()
        self._held_state = HostCopies()

    @property
    def tables(self) -> Sequence[Table]:
        """Those of the module's embeddings, in its order."""
        return [source.table for source in self._sources]

    def read_rows_from(self, reader: RowReader) -> None:
        """Have all embeddings read there."""
        for source in self._sources:
            source.read_from(reader)

    @property
    def listed(self) -> Sequence[torch.nn.Parameter]:
        """What the user's optimizer is given."""
        return list(self.trained.values())

    @property
    def elsewhere(self) -> Mapping[str, torch.nn.Parameter]:
        """Parameters whose values are not here: none of a whole model's."""
        return {}

    def parameters(self) -> Tensors:
        """Views of the trained parameters; copies of a GPU's, valid until the next call."""
        return self._held_parameters.of(self.trained)

    def state(self) -> Tensors:
        """Views of the buffers that a state_dict holds; copies of a GPU's, as of parameters."""
        return self._held_state.of(self._current_buffers())

    def _current_buffers(self) -> dict[str, torch.Tensor]:
        # Modules may bind a buffer anew in forward, as `self.running = 0.9 * self.running`.
        return {name: self.module.get_buffer(name) for name in self._buffers}

    def copy_into(self, parameters: Mapping[str, Array], state: Mapping[str, Array]) -> None:
        """See `Values`."""
        buffers = self._current_buffers()
        copy_all(
            [(self.trained[name], array) for name, array in parameters.items()]
            + [(buffers[name], array) for name, array in state.items()]
        )

    def load(
        self, parameters: Mapping[str, Array] | None, state: Mapping[str, Array] | None
    ) -> None:
        """Copy values in, by name; None leaves what is there."""
        targets: list[tuple[torch.Tensor, Array]] = []
        if parameters is not None:
            self._check_none_frozen(parameters)
            check_fit("parameters", _stand_ins(self.trained), parameters)
            targets += [(self.trained[name], array) for name, array in parameters.items()]
        if state is not None:
            buffers = self._current_buffers()
            check_fit("state", _stand_ins(buffers), state)
            targets += [(buffers[name], array) for name, array in state.items()]
        fill_all(targets)

    @property
    def frozen_names(self) -> Collection[str]:
        """See `Model`: what is not trained every process makes itself."""
        return ()

    def frozen(self) -> Tensors:
        """See `Model`."""
        return {}

    def load_frozen(self, values: Mapping[str, Array]) -> None:
        """See `Model`."""
        check_fit("state", {}, values)

    def _check_none_frozen(self, parameters: Mapping[str, Array]) -> None:
        if given := [name for name in self._untrained.names if name in parameters]:
            raise CheckpointError(
                f"the parameters of this model do not include {some(given)}: it does not train "
                "them (requires_grad is False), and every process makes those itself: have the "
                "function that makes the module load all of them from the .safetensors that "
                "--output has written, and freeze them there, instead of naming a checkpoint"
            )

    def gradients(self, batch: Batch, seed: int, *, with_metrics: bool = False) -> StepResult:
        """Forward and backward pass in training mode."""
        with reading(self._sources), self._untrained.kept():
            return self._step(batch, seed, with_metrics)

    def _step(self, batch: Batch, seed: int, with_metrics: bool) -> StepResult:
        seed_everything(seed)
        if not self.module.training:
            self.module.train()
        for parameter in self.module.parameters():
            parameter.grad = None
        with (
            recording(self._sources, torch.Tensor.requires_grad_) as reads,
            user_code("the training step"),
        ):
            features, labels = self._on_device(batch)
            predictions = self.module(features)
            loss = _total(self._loss(labels, predictions))
            _check_depends(loss)
            loss.backward()  # type: ignore[no-untyped-call]
        metrics: Sequence[MetricState] = ()
        if with_metrics:
            with torch.no_grad():
                metrics = self._made_metrics().states(labels, predictions, batch.num_examples)
        gradients = {name: _gradient(parameter) for name, parameter in self.trained.items()}
        # Asked of the GPU before it has ended its pass, and answered when they are copied.
        length = _length_of(gradients.values(), self._device)
        return StepResult(
            gradients=self._held_gradients.of(gradients),
            state={name: array.copy() for name, array in self.state().items()},
            loss=float(loss.detach()),
            metrics=metrics,
            rows=row_gradients(reads),
            are_finite=length is not None and math.isfinite(length),
        )

    def lay_gradients_in(self, arrays: Mapping[str, Array]) -> None:
        """See `Model`: where they come from a GPU."""
        self._held_gradients.lie_in(arrays)

    def metrics(self, batch: Batch) -> list[MetricState]:
        """Loss and metrics in evaluation mode."""
        metrics = self._made_metrics()
        self.module.eval()
        features, labels = self._on_device(batch)
        with torch.no_grad():
            with reading(self._sources), user_code("the evaluation step"):
                predictions = self.module(features)
                loss = float(_total(self._loss(labels, predictions)))
            states = metrics.states(labels, predictions, batch.num_examples)
        return [mean_state("loss", loss, batch.num_examples), *states]

    def metric_results(self, states: Sequence[MetricState]) -> dict[str, float]:
        """What the merged states stand for."""
        metrics = self._made_metrics()
        results: dict[str, float] = {}
        for state in states:
            results |= metrics.result(state)
        return results

    def _made_metrics(self) -> TorchMetrics:
        if self._metrics is None:
            self._metrics = TorchMetrics(self._eval_metrics_fn, self._device)
        return self._metrics

    def predict(self, batch: Batch) -> Any:
        """What the module gives in evaluation mode."""
        self.module.eval()
        features, _ = self._on_device(batch)
        with torch.no_grad(), reading(self._sources), user_code("the model's forward pass"):
            outputs = self.module(features)
        return predicted_arrays(outputs, batch.num_examples, _array_of)

    def load_export(self, path: str) -> None:
        """Take the values of a state_dict as safetensors."""
        try:
            tensors = safetensors.torch.load_file(path)
        except (OSError, SafetensorError) as error:
            raise CheckpointError(
                f"--model={path} cannot be read as safetensors: {error}: name a file that a "
                "torch job has written with --output"
            ) from error
        own = {n: t for n, t in self.module.state_dict().items() if isinstance(t, torch.Tensor)}
        check_fit(
            f"tensors of --model={path}",
            {name: to_array(tensor) for name, tensor in own.items()},
            {name: to_array(tensor) for name, tensor in tensors.items()},
        )
        travels = self.trained.keys() | self._buffers.keys()
        # Tied weights have several names, of which one travels.
        travelling = {own[name].data_ptr() for name in travels}
        for name in own.keys() - travels:
            if own[name].data_ptr() not in travelling and not torch.equal(
                own[name].cpu(), tensors[name].cpu()
            ):
                raise CheckpointError(
                    f"--model={path} has other values of {name}, which is not trained and which "
                    "every process makes anew: give the --seed that it was trained with"
                )
        self.module.load_state_dict(tensors, strict=False)

    def export(self, path: str) -> str:
        """Write the state_dict as safetensors."""
        target = export_target(path, "torch").path
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}.partial")
        # Clones, since the format refuses tied weights and every name must be there to be loaded.
        tensors = {
            name: value.detach().cpu().clone().contiguous()
            for name, value in self.module.state_dict().items()
            if isinstance(value, torch.Tensor)
        }
        try:
            safetensors.torch.save_file(tensors, partial)
            partial.replace(target)
        except SafetensorError as error:
            raise disk_error(error, target) from error
        finally:
            partial.unlink(missing_ok=True)
        return str(target)

    def check_forward(self, batch: Batch) -> None:
        """Run model and loss once, so that lazy modules get parameters and errors show early."""
        self.module.eval()
        with self._untrained.kept():
            part_that_runs(batch, _rows, self._run_forward)
        self.module.train()

    def _run_forward(self, batch: Batch) -> None:
        features, labels = self._on_device(batch)
        with user_code("the model's forward pass"):
            predictions = self.module(features)
        if labels is not None:
            with user_code("loss"):
                loss = _total(self._loss(labels, predictions))
            if any(parameter.requires_grad for parameter in self.module.parameters()):
                _check_depends(loss)

    def _on_device(self, batch: Batch) -> tuple[Any, Any]:
        if self._device.type == "cpu":
            return batch.features, batch.labels
        return to_device(batch.features, self._device), to_device(batch.labels, self._device)


def _rows(batch: Batch, start: int, end: int) -> Batch:
    """Some examples of a batch."""
    features, labels = map_tensors(
        (batch.features, batch.labels), lambda t: t[start:end], with_arrays=True
    )
    return Batch(features, labels, end - start)


def _total(losses: Any) -> torch.Tensor:
    """The sum of what the user's loss returned."""
    values = list(leaves(losses))
    for value in values:
        if not isinstance(value, torch.Tensor):
            raise ModelDefError(
                f"loss returned a {type(value).__name__}: return a scalar tensor, or a dict, "
                "list or tuple of them"
            )
        if value.ndim:
            raise ModelDefError(
                f"loss returned a tensor of shape {list(value.shape)}: return a scalar, such as "
                "its mean"
            )
    if not values:
        raise ModelDefError("loss returned nothing: return a scalar tensor")
    total: torch.Tensor = values[0]
    for value in values[1:]:
        total = total + value
    return total


def _check_depends(loss: torch.Tensor) -> None:
    if not loss.requires_grad:
        raise ModelDefError(
            "the loss depends on no trained parameter: compute it from the predictions with torch "
            "operations, without detach() or no_grad()"
        )


def _array_of(output: Any) -> Array | None:
    return to_array(output) if isinstance(output, torch.Tensor) else None


def _gradient(parameter: torch.nn.Parameter) -> torch.Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def _length_of(gradients: Collection[torch.Tensor], device: torch.device) -> torch.Tensor | None:
    """Their length as one vector, which is not finite if one of them is not.

    None on the CPU, where who reads them anyway finds out, and of a gradient that is not dense.
    """
    if device.type == "cpu" or any(each.layout is not torch.strided for each in gradients):
        return None
    lengths = [torch.linalg.vector_norm(each, dtype=torch.float32) for each in gradients]
    together: torch.Tensor = torch.stack([each.to(device) for each in lengths])
    return together.sum()


def _stand_ins(tensors: Mapping[str, torch.Tensor]) -> Tensors:
    return {name: stand_in(tensor) for name, tensor in tensors.items()}


def seed_everything(seed: int) -> None:
    """Set every generator that a module's code commonly draws from."""
    # torch.manual_seed does the same, and looks for accelerators for 0.2 ms of every step.
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)
    random.seed(seed)
    # Users' layers draw from NumPy's global generator, so that one has to be set.
    np.random.seed(seed % 2**32)
