"""Each model of the zoo learns, when trained as a job with two workers."""

import pytest
from support.datasets import prepared_dir
from support.local_job import LocalJob, make_spec

SMALL_LM = {"d_model": 64, "n_layers": 2, "n_heads": 4, "context": 32}


def train(tmp_path, model_def, data_dir, **settings):
    spec = make_spec(
        model_def,
        data_dir / "train.npz",
        evaluation_data_dir=str(data_dir / "test.npz"),
        minibatch_size=16,
        records_per_task=160,
        num_workers=2,
        **settings,
    )
    with LocalJob(spec, tmp_path) as job:
        return job.succeed().metrics


@pytest.mark.parametrize(
    ("model_def", "epochs", "accuracy"),
    [
        pytest.param("digits.digits_torch.CustomModel", 12, 0.95, id="digits-torch"),
        pytest.param("digits.digits_keras.custom_model", 12, 0.95, id="digits-keras"),
        pytest.param("mnist_subclass.mnist_torch.CustomModel", 6, 0.93, id="mnist-torch"),
        pytest.param("mnist_subclass.mnist_subclass.CustomModel", 6, 0.93, id="mnist-keras"),
    ],
)
def test_classifier_reaches_its_accuracy(model_def, epochs, accuracy, tmp_path):
    data_dir = prepared_dir(model_def.split(".")[0])
    metrics = train(tmp_path, model_def, data_dir, num_epochs=epochs, grads_to_wait=2)
    assert metrics["accuracy"] >= accuracy, metrics


@pytest.mark.parametrize("framework", ["torch", "keras"])
def test_language_model_learns_more_than_byte_frequencies(framework, tmp_path):
    data_dir = prepared_dir("char_lm", context=32, num_windows=3200, num_test_windows=320)
    metrics = train(
        tmp_path,
        f"char_lm.char_lm_{framework}.CustomModel",
        data_dir,
        model_params=SMALL_LM,
        # Two, since what one teaches depends on how stale the gradients are.
        num_epochs=2,
        use_async=True,
    )
    # A model of byte frequencies alone stays above 3.1 nats; the untrained one is at 5.5.
    assert metrics["loss"] < 2.9, metrics
