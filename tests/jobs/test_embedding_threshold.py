"""Jobs whose models have ordinary embedding layers that `--embedding_threshold` replaces."""

from pathlib import Path

import numpy as np
import pytest
from support.local_job import make_spec
from support.rows import rows_of
from support.thread_job import ZOO, ThreadJob, events
from support.zoo.embedded_regression_torch import NUM_IDS, TABLE

from elastic.checkpoints.cuts import read_cut
from elastic.spec.job import JobSpec
from elastic.spec.platforms import JobKind
from elastic.spec.status import JobPhase

SIZE = NUM_IDS * TABLE.dim * 4
MODELS = {"torch": "embedded_regression_torch.CustomModel"}
MODELS["keras"] = "embedded_regression_keras.custom_model"


@pytest.fixture
def data(tmp_path):
    rng = np.random.default_rng(5)
    path = tmp_path / "records.npz"
    ids = rng.integers(0, NUM_IDS, (60, 3))
    np.savez(path, ids=ids, label=rng.normal(size=60).astype(np.float32))
    return path


def trained(framework, data, folder, **settings):
    spec = make_spec(
        MODELS[framework], data, model_zoo=str(ZOO), num_epochs=3, num_workers=1,
        model_params={"is_ordinary": True}, **settings,
    )  # fmt: skip
    status = ThreadJob(spec, folder).run()
    assert status.phase is JobPhase.SUCCEEDED, status.message
    return status


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("framework", "parameter"), [("torch", "items.weight"), ("keras", "items/embeddings")]
)
def test_a_model_trains_as_with_its_ordinary_layer(framework, parameter, data, tmp_path):
    """Which begins with the very rows that the table does; an export predicts what training had."""
    plain = trained(framework, data, tmp_path / "plain")
    output = tmp_path / ("model.safetensors" if framework == "torch" else "model.keras")
    status = trained(
        framework, data, tmp_path / "tables", embedding_threshold=SIZE, output=str(output)
    )
    (told,) = events(status, "EmbeddingReplaced")
    assert told == "the layer items is a table of rows, which begin by normal(0.5)"
    before, cut = read_cut(Path(plain.checkpoint)), read_cut(Path(status.checkpoint))
    rows = rows_of(cut.rows, "items")
    found = np.stack([rows[index] for index in range(NUM_IDS)])
    np.testing.assert_allclose(found, before.parameters.pop(parameter), atol=1e-6)
    for name, values in before.parameters.items():
        np.testing.assert_allclose(cut.parameters[name], values, atol=1e-6)
    spec = JobSpec(
        kind=JobKind.EVALUATE, platform="local", job_name="job", model_zoo=str(ZOO),
        model_def=MODELS[framework], model_params={"is_ordinary": True}, minibatch_size=8,
        evaluation_data_dir=str(data), model=str(output), embedding_threshold=SIZE,
    )  # fmt: skip
    evaluated = ThreadJob(spec, tmp_path / "evaluated").run()
    assert evaluated.phase is JobPhase.SUCCEEDED, evaluated.message
    forgotten = spec.model_copy(update={"embedding_threshold": None})
    evaluated = ThreadJob(forgotten, tmp_path / "forgotten").run()
    assert evaluated.message == (
        f"--model={output} has tables of embeddings, in {output}.rows, and this model "
        "has none: give the --embedding_threshold that it was trained with"
    )


def test_a_threshold_above_all_layers_leaves_them_and_says_so(data, tmp_path):
    status = trained("torch", data, tmp_path / "cuts", embedding_threshold=SIZE + 1)
    assert not status.tables
    assert events(status, "EmbeddingLeft") == [
        "no embedding layer of the model is as large as --embedding_threshold"
    ]
