"""`elastic predict` with tables, and the same computed of the exported files alone."""

import keras
import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
from support.local_job import LocalJob, make_spec
from support.single_pass import predicted_rows
from support.thread_job import ZOO
from support.zoo.embedded_regression_torch import NUM_IDS

from elastic.embedding import KerasEmbedding
from elastic.spec.job import JobSpec

STORES = {
    "redis": {"embedding_store": "redis"},
    "servers, encrypted": {"embedding_store": "ps", "num_ps": 2, "tls": True},
}


def torch_predictions(output, rows, ids):
    """Of the exported dense layer, and rows by their ids."""
    dense = safetensors.numpy.load_file(output)
    sums = rows[ids].sum(axis=1)
    return sums @ dense["dense.weight"][0] + dense["dense.bias"][0]


def keras_predictions(output, rows, ids):
    classes = {"elastic>Embedding": KerasEmbedding}
    model = keras.models.load_model(output, custom_objects=classes)
    kernel, bias = model.get_layer("dense").get_weights()
    return rows[ids].sum(axis=1) @ kernel[:, 0] + bias[0]


FRAMEWORKS = {
    "torch": ("embedded_regression_torch.CustomModel", "model.safetensors", torch_predictions),
    "keras": ("embedded_regression_keras.custom_model", "model.keras", keras_predictions),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("framework", "store"), [("torch", "redis"), ("keras", "servers, encrypted")]
)
def test_predictions_are_those_of_the_exported_files(framework, store, tmp_path):
    model_def, name, computed = FRAMEWORKS[framework]
    rng = np.random.default_rng(5)
    ids = rng.integers(0, NUM_IDS, (60, 3))
    data, output = tmp_path / "records.npz", tmp_path / name
    np.savez(data, ids=ids, label=rng.normal(size=60).astype(np.float32))
    spec = make_spec(
        model_def, data, model_zoo=str(ZOO), num_epochs=2, num_workers=2, output=str(output),
        **STORES[store],
    )  # fmt: skip
    with LocalJob(spec, tmp_path / "trained") as job:
        checkpoint = job.succeed().checkpoint
    table = pd.read_parquet(tmp_path / f"{name}.rows" / "items.parquet")
    rows = np.stack(table.set_index("id")["row"].sort_index())
    expected = computed(output, rows, ids)
    for source in ({"model": str(output)}, {"checkpoint_filename_for_init": checkpoint}):
        spec = JobSpec(
            kind="predict", platform="local", job_name="job", model_zoo=str(ZOO),
            model_def=model_def, minibatch_size=8, num_workers=1, prediction_data_dir=str(data),
            prediction_outputs=str(tmp_path / "-".join(source)), **source,
        )  # fmt: skip
        with LocalJob(spec, tmp_path / "predicted" / next(iter(source))) as job:
            job.succeed()
        found = predicted_rows(tmp_path / "-".join(source))
        numbers = [[*row.values()][-1] for row in found.values()]
        np.testing.assert_allclose(np.array(numbers, np.float64), expected, atol=1e-5)
