"""torch behind the `Framework` Protocol: batches, and what builds models and updaters."""

import importlib
import importlib.util
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from types import ModuleType
from typing import Any, Final

import torch
from torch.utils.data import DataLoader, default_collate

from elastic.callbacks import Callback
from elastic.errors import ModelDefError
from elastic.frameworks.base import Array, Batch, Model, Updater, Values
from elastic.frameworks.torch.embedding import replace_layers
from elastic.frameworks.torch.model import TorchModel, seed_everything
from elastic.frameworks.torch.tensors import as_tensor, size_of
from elastic.frameworks.torch.updater import TorchShare, TorchUpdater
from elastic.frameworks.user_code import (
    check_pair,
    dataset_code,
    embeddings_alone,
    made_callbacks,
    max_examples,
    own_callback,
    run_batch_fn,
    too_many_examples,
    user_code,
)
from elastic.policy.tasks.records import Columns
from elastic.spec.model_def import ModelDef
from elastic.spec.platforms import Mode


class TorchFramework:
    """Builds on the GPU where there is one, else on the CPU."""

    name = "torch"

    def __init__(self) -> None:
        """Begin without torch's compiler, which whoever uses it brings in."""
        postpone_compiler()

    def make_batch(
        self, model_def: ModelDef, records: Sequence[Any] | Columns, mode: Mode
    ) -> Batch:
        """Run `dataset_fn` over a list of the records and stack what it gives, or `batch_fn`."""
        if isinstance(records, Columns):
            return run_batch_fn(model_def, records, mode, as_tensor, size_of)
        assert model_def.dataset_fn is not None, "who has none takes columns"
        most = max_examples(len(records))
        with dataset_code(records):
            made = _iterate(model_def.dataset_fn(list(records), mode))
            examples = list(islice(made, most + 1))
        if len(examples) > most:
            raise too_many_examples(len(records))
        if not examples:
            return Batch(None, None, 0)
        for example in examples:
            check_pair(example, mode)
        try:
            stacked = default_collate(examples)
        except (TypeError, RuntimeError) as error:
            raise ModelDefError(
                "the examples of one minibatch cannot be stacked: make tensors of equal shapes in "
                f"dataset_fn ({error})"
            ) from error
        if isinstance(examples[0], tuple) and len(examples[0]) == 2:
            features, labels = stacked
            return Batch(features, labels, len(examples))
        return Batch(stacked, None, len(examples))

    def build_model(
        self,
        model_def: ModelDef,
        model_params: Mapping[str, Any],
        sample: Batch,
        seed: int,
        embedding_threshold: int | None = None,
    ) -> Model:
        """Instantiate the module and run it over the sample once."""
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        seed_everything(seed)
        with user_code(f"making the model with the parameters {dict(model_params)}"):
            module = model_def.model(**model_params)
        if not isinstance(module, torch.nn.Module):
            raise ModelDefError(
                f"the model function returned a {type(module).__name__}: return a torch.nn.Module"
            )
        module.to(device)
        if sample.num_examples:
            TorchModel(module, model_def, device).check_forward(sample)
        replacement = None
        if embedding_threshold is not None:
            replacement = replace_layers(module, embedding_threshold)
            if replacement.replaced and sample.num_examples:
                TorchModel(module, model_def, device).check_forward(sample)
        model = TorchModel(module, model_def, device, replacement)
        if not model.trained and model.tables:
            raise embeddings_alone(type(module).__name__)
        if not model.trained:
            raise ModelDefError(
                f"the model {type(module).__name__} has no parameters to train: give it layers, "
                "or set requires_grad"
            )
        return model

    def build_updater(
        self, model_def: ModelDef, model: Model, total_steps: int | None = None
    ) -> Updater:
        """Instantiate the user's optimizer over the module's trained parameters."""
        assert isinstance(model, TorchModel), "models and updaters come from the same framework"
        return TorchUpdater(model_def, model, total_steps)

    def build_share(
        self,
        model_def: ModelDef,
        whole: Mapping[str, Array],
        parameters: Mapping[str, Array],
        state: Mapping[str, Array],
        total_steps: int | None = None,
    ) -> tuple[Values, Updater]:
        """Instantiate the user's optimizer over the share."""
        share = TorchShare(whole, parameters, state)
        return share, TorchUpdater(model_def, share, total_steps)

    def build_callbacks(
        self,
        model_def: ModelDef,
        model: Model,  # noqa: ARG002 - these callbacks see metrics only
        updater: Updater,  # noqa: ARG002
        *,
        is_local: bool,  # noqa: ARG002
        num_epochs: int,  # noqa: ARG002
        with_metrics: bool,  # noqa: ARG002
        on_servers: bool = False,  # noqa: ARG002
    ) -> Sequence[Callback]:
        """Instantiate the user's callbacks."""
        return [own_callback(made) for made in made_callbacks(model_def)]


def _iterate(dataset: Any) -> Iterable[Any]:
    """The elements of what `dataset_fn` returned."""
    if isinstance(dataset, DataLoader):
        raise ModelDefError(
            "dataset_fn returned a DataLoader: return its dataset, minibatches are made of it"
        )
    if hasattr(dataset, "__iter__"):
        elements: Iterable[Any] = dataset
        return elements
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        # A map-style Dataset need not raise IndexError past its end.
        return (dataset[index] for index in range(len(dataset)))
    raise ModelDefError(
        f"dataset_fn returned a {type(dataset).__name__}: return an iterable of (features, labels)"
    )


# torch's compiler, imported when somebody uses it and not before.
#
# The first optimizer that is made imports `torch._dynamo`, to tell it not to compile the
# optimizer's bookkeeping. Of torch 2.13 that takes nearly as long as torch itself, and 70 MB, in a
# master and in each parameter server, of which hardly any compiles.

_COMPILER: Final = "torch._dynamo"
_DISABLED: Final = "__dynamo_disable"
"""Under this name torch keeps, of a function, what `disable` has made of it."""


class _Postponed(ModuleType):
    """Stands where the compiler would be, and answers what an optimizer asks of it.

    Whatever else is asked of it imports the compiler, which then takes its place.
    """

    def __init__(self, file: str | None) -> None:
        super().__init__(_COMPILER)
        # Whoever goes over all modules looks at these of each.
        self.__file__ = file
        self._lock = threading.RLock()
        self._left_alone: list[Any] = []

    def graph_break(self, msg: str = "") -> None:
        """Nothing is compiled, so there is no graph to break."""

    def disable(self, fn: Any = None, *arguments: Any, **options: Any) -> Any:
        """Leave an optimizer's function as it is: who does not compile need not leave it out."""
        if str(getattr(fn, "__module__", "")).startswith("torch.optim."):
            self._left_alone.append(fn)
            return fn
        return self._compiler().disable(fn, *arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiler(), name)

    def _compiler(self) -> ModuleType:
        with self._lock:
            if sys.modules.get(_COMPILER) is self:
                del sys.modules[_COMPILER]
                for function in self._left_alone:
                    # torch asks again, and is answered by the compiler.
                    function.__dict__.pop(_DISABLED, None)
            return importlib.import_module(_COMPILER)


def postpone_compiler() -> None:
    """Have the compiler imported by its first use, unless it is there already."""
    if _COMPILER in sys.modules:
        return
    spec = importlib.util.find_spec(_COMPILER)
    if spec is None:
        return
    postponed = _Postponed(spec.origin)
    sys.modules[_COMPILER] = postponed
    # As its import would have done.
    vars(torch)["_dynamo"] = postponed
