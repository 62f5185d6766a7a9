"""Keras models of the zoo can be saved and loaded once their module is imported."""

import keras
import numpy as np
import pytest
from support.datasets import zoo_module

CLICKS = {"ids": np.arange(8).reshape(2, 4), "numbers": np.ones((2, 3), np.float32)}


@pytest.mark.parametrize(
    ("module_name", "symbol", "model_params", "features"),
    [
        pytest.param(
            "digits.digits_keras",
            "custom_model",
            {"channels": 4},
            np.ones((2, 8, 8, 1), np.float32),
            id="digits",
        ),
        pytest.param(
            "mnist_subclass.mnist_subclass",
            "CustomModel",
            {"channels": 4},
            np.ones((2, 28, 28, 1), np.float32),
            id="mnist",
        ),
        pytest.param(
            "char_lm.char_lm_keras",
            "CustomModel",
            {"d_model": 8, "n_layers": 2, "n_heads": 2, "context": 6},
            np.arange(12).reshape(2, 6),
            id="char-lm",
        ),
        pytest.param(
            "counting.counting_keras",
            "CustomModel",
            {"num_records": 3},
            np.array([0, 2]),
            id="counting",
        ),
        pytest.param(
            "iris.iris_keras",
            "custom_model",
            {"hidden": 4},
            np.ones((2, 4), np.float32),
            id="iris",
        ),
        pytest.param(
            "breast_cancer.breast_cancer_keras",
            "custom_model",
            {"hidden": 4},
            np.ones((2, 30), np.float32),
            id="breast-cancer",
        ),
        pytest.param(
            "digits_cnn.digits_cnn_keras",
            "custom_model",
            {"channels": 4, "shift": 2},
            np.ones((2, 8, 8, 1), np.float32),
            id="digits-cnn",
        ),
        pytest.param(
            "clicks.deepfm_keras",
            "CustomModel",
            {"dim": 2, "hidden": 4},
            CLICKS,
            id="deepfm",
        ),
        pytest.param(
            "clicks.wide_deep_keras",
            "CustomModel",
            {"dim": 2, "hidden": 4},
            {**CLICKS, "crossed": np.arange(4).reshape(2, 2)},
            id="wide-deep",
        ),
        pytest.param(
            "text_classifier.text_classifier_keras",
            "custom_model",
            {"dim": 4},
            np.arange(160).reshape(2, 80),
            id="text-classifier",
        ),
    ],
)
def test_saved_model_computes_the_same(module_name, symbol, model_params, features, tmp_path):
    model = getattr(zoo_module(module_name), symbol)(**model_params)
    model(features)
    rng = np.random.default_rng(0)
    model.set_weights([rng.random(value.shape, np.float32) for value in model.get_weights()])
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    # Augmentation is for training alone, and Keras trains unless told otherwise.
    computed = [each(features, training=False) for each in (loaded, model)]
    np.testing.assert_array_equal(*computed)
