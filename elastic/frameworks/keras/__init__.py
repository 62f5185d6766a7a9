"""Keras on TensorFlow behind the `Framework` Protocol."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import keras

from elastic.callbacks import Callback
from elastic.errors import ModelDefError
from elastic.frameworks.base import Array, Batch, Model, Updater, Values
from elastic.frameworks.embeddings import reading
from elastic.frameworks.keras.callbacks import served
from elastic.frameworks.keras.embedding import replace_layers, sources_of
from elastic.frameworks.keras.model import KerasModel, total_loss
from elastic.frameworks.keras.tensors import (
    BatchMaker,
    as_tensor,
    keras_code,
    num_examples,
    rows,
    size_of,
)
from elastic.frameworks.keras.updater import KerasShare, KerasUpdater
from elastic.frameworks.user_code import (
    embeddings_alone,
    made_callbacks,
    metric_functions,
    part_that_runs,
    run_batch_fn,
)
from elastic.policy.tasks.records import Columns
from elastic.spec.model_def import ModelDef
from elastic.spec.platforms import Mode


class KerasFramework:
    """Builds with Keras 3 on its TensorFlow backend."""

    name = "keras"

    def __init__(self) -> None:
        self._makers: dict[tuple[Callable[..., Any], Mode], BatchMaker] = {}

    def make_batch(
        self, model_def: ModelDef, records: Sequence[Any] | Columns, mode: Mode
    ) -> Batch:
        """Run `dataset_fn` over a tf.data.Dataset of the records and take all it gives, or
        `batch_fn` over columns.
        """
        if isinstance(records, Columns):
            return run_batch_fn(model_def, records, mode, as_tensor, size_of)
        assert model_def.dataset_fn is not None, "who has none takes columns"
        if not records:
            return Batch(None, None, 0)
        key = (model_def.dataset_fn, mode)
        maker = self._makers.get(key)
        if maker is None:
            maker = self._makers[key] = BatchMaker(*key)
        element = maker.make(records)
        if element is None:
            return Batch(None, None, 0)
        if isinstance(element, tuple) and len(element) == 2:
            return Batch(element[0], element[1], num_examples(element))
        return Batch(element, None, num_examples(element))

    def build_model(
        self,
        model_def: ModelDef,
        model_params: Mapping[str, Any],
        sample: Batch,
        seed: int,
        embedding_threshold: int | None = None,
    ) -> Model:
        """Instantiate the model and run it over the sample once."""
        keras.utils.set_random_seed(seed % 2**32)
        with keras_code(f"making the model with the parameters {dict(model_params)}"):
            model = model_def.model(**model_params)
        if not isinstance(model, keras.Model):
            raise ModelDefError(
                f"the model function returned a {type(model).__name__}: return a keras.Model"
            )
        check = partial(self._check_forward, model, model_def)
        if sample.num_examples:
            sample = part_that_runs(sample, rows, check)
        replacement = None
        if embedding_threshold is not None:
            replacement = replace_layers(model, embedding_threshold)
            if replacement.replaced and sample.num_examples:
                check(sample)
        if not model.trainable_variables and sources_of(model):
            raise embeddings_alone(type(model).__name__)
        if not model.trainable_variables:
            raise ModelDefError(
                f"the model {type(model).__name__} has no variables to train: give it layers, or "
                "set trainable"
            )
        return KerasModel(model, model_def, sample, replacement)

    def build_updater(
        self, model_def: ModelDef, model: Model, total_steps: int | None = None
    ) -> Updater:
        """Instantiate the user's optimizer over the model's trained variables."""
        assert isinstance(model, KerasModel), "models and updaters come from the same framework"
        return KerasUpdater(model_def, model, total_steps)

    def build_share(
        self,
        model_def: ModelDef,
        whole: Mapping[str, Array],  # noqa: ARG002 - Keras' optimizers are given no list
        parameters: Mapping[str, Array],
        state: Mapping[str, Array],
        total_steps: int | None = None,
    ) -> tuple[Values, Updater]:
        """Instantiate the user's optimizer over the share."""
        share = KerasShare(parameters, state)
        return share, KerasUpdater(model_def, share, total_steps)

    def build_callbacks(
        self,
        model_def: ModelDef,
        model: Model,
        updater: Updater,
        *,
        is_local: bool,
        num_epochs: int,
        with_metrics: bool,
        on_servers: bool = False,
    ) -> Sequence[Callback]:
        """Instantiate the user's callbacks, those of Keras included."""
        assert isinstance(model, KerasModel)
        assert isinstance(updater, KerasUpdater)
        told = list(metric_functions(model_def.eval_metrics_fn)) if with_metrics else []
        each = (
            served(
                made,
                model,
                updater,
                is_local=is_local,
                on_servers=on_servers,
                num_epochs=num_epochs,
                told=told,
            )
            for made in made_callbacks(model_def)
        )
        return [callback for callback in each if callback is not None]

    def _check_forward(self, model: Any, model_def: ModelDef, sample: Batch) -> None:
        """Run model and loss once, so that variables are made and errors show early."""
        sources = sources_of(model)
        if sample.labels is None:
            with reading(sources), keras_code("the model's forward pass"):
                model(sample.features, training=False)
            return
        with reading(sources), keras_code("the model's forward pass with its loss"):
            total_loss(model, model_def.loss, sample.features, sample.labels, training=False)
