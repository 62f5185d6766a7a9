"""torch behind the `Framework` Protocol: batches, and what builds models and updaters."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, default_collate

from elastic.callbacks import Callback
from elastic.errors import ModelDefError
from elastic.frameworks.base import Array, Batch, Model, Updater, Values
from elastic.frameworks.torch.arrays import as_tensor, size_of
from elastic.frameworks.torch.compiler import postpone_compiler
from elastic.frameworks.torch.embedding import replace_layers
from elastic.frameworks.torch.model import TorchModel, seed_everything
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
from elastic.spec.kinds import Mode
from elastic.spec.model_def import ModelDef


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
