"""The torch and the Keras module of one model are the same model."""

import numpy as np
import pytest
import tensorflow as tf
import torch
from support.datasets import zoo_module

from elastic.cli.zoo import find_model

LM_PARAMS = {"d_model": 32, "n_layers": 2, "n_heads": 4, "context": 16}


def count_parameters(torch_model):
    return sum(parameter.numel() for parameter in torch_model.parameters())


@pytest.mark.parametrize(
    ("name", "features"),
    [
        ("starter", np.zeros((1, 2), np.float32)),
        ("iris", np.zeros((1, 4), np.float32)),
        ("breast_cancer", np.zeros((1, 30), np.float32)),
        ("digits", np.zeros((1, 8, 8, 1), np.float32)),
        ("digits_cnn", np.zeros((1, 8, 8, 1), np.float32)),
        ("mnist_subclass", np.zeros((1, 28, 28, 1), np.float32)),
        ("text_classifier", np.ones((1, 80), np.int64)),
    ],
)
def test_classifiers_have_as_many_parameters(name, features):
    models = find_model(name).entry.models
    torch_model, keras_model = (made(f"{name}.{models[each]}") for each in ("torch", "keras"))
    keras_model(features)
    trained = sum(int(np.prod(v.shape)) for v in keras_model.trainable_variables)
    assert trained == count_parameters(torch_model)


def made(model_def):
    module, _, symbol = model_def.rpartition(".")
    return getattr(zoo_module(module), symbol)()


def test_breast_cancer_twins_standardise_alike():
    """One training step on the same minibatch moves their statistics to the same values."""
    values = np.random.default_rng(0).normal(100.0, 25.0, (16, 30)).astype(np.float32)
    keras_model, torch_model = (
        made(f"breast_cancer.{model}")
        for model in ("breast_cancer_keras.custom_model", "breast_cancer_torch.CustomModel")
    )
    keras_model(values, training=True)
    torch_model.train()(torch.as_tensor(values))
    moved = {v.name: np.asarray(v) for v in keras_model.layers[1].non_trainable_variables}
    np.testing.assert_allclose(
        moved["moving_mean"], torch_model.standardise.running_mean, rtol=1e-5
    )
    # torch divides by n - 1, Keras by n.
    torch_variance = 0.9 + (torch_model.standardise.running_var.numpy() - 0.9) * 15 / 16
    np.testing.assert_allclose(moved["moving_variance"], torch_variance, rtol=1e-4)


def test_only_what_is_trained_on_is_moved():
    module = zoo_module("digits_cnn.digits_cnn_torch")
    image = np.arange(64, dtype=np.float32).reshape(8, 8)
    records = [{"image": image, "label": np.int64(0)}] * 20
    torch.manual_seed(0)
    seen = [features.numpy()[0] for features, _ in module.dataset_fn(records, "training")]
    assert len({each.tobytes() for each in seen}) > 4
    for each in seen:
        # Whatever the move, the middle of the image is still whole in it.
        assert set(image[1:-1, 1:-1].ravel()) <= set(each.ravel())
    for features, _ in module.dataset_fn(records, "evaluation"):
        np.testing.assert_array_equal(features.numpy()[0], image)


@pytest.fixture
def torch_lm():
    torch.manual_seed(0)
    return zoo_module("char_lm.char_lm_torch").CustomModel(**LM_PARAMS).eval()


def test_language_models_compute_the_same_loss(torch_lm):
    torch_module, keras_module = (
        zoo_module("char_lm.char_lm_torch"),
        zoo_module("char_lm.char_lm_keras"),
    )
    windows = np.random.default_rng(0).integers(0, 256, (3, 17))
    tokens, labels = windows[:, :-1], windows[:, 1:]
    keras_lm = keras_module.CustomModel(**LM_PARAMS)
    keras_lm(tokens)
    linears = {id(m.weight) for m in torch_lm.modules() if isinstance(m, torch.nn.Linear)}
    values = [
        (p.T if id(p) in linears else p).detach().numpy() + np.float32(0.1)
        for p in torch_lm.parameters()
    ]
    with torch.no_grad():
        # Biases start at zero and scales at one; moved, each of them shows in the output.
        for parameter in torch_lm.parameters():
            parameter += 0.1
        torch_logits = torch_lm(torch.as_tensor(tokens))
    keras_lm.set_weights(values)
    keras_logits = keras_lm(tokens)
    np.testing.assert_allclose(keras_logits, torch_logits, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(
        keras_module.loss(tf.constant(labels), keras_logits),
        torch_module.loss(torch.as_tensor(labels), torch_logits),
        rtol=1e-4,
    )


def test_language_model_sees_no_later_byte(torch_lm):
    tokens = torch.arange(16).unsqueeze(0)
    changed = tokens.clone()
    changed[0, 10] = 200
    with torch.no_grad():
        before, after = torch_lm(tokens)[0], torch_lm(changed)[0]
    torch.testing.assert_close(before[:10], after[:10])
    assert not torch.allclose(before[10:], after[10:])


def test_default_language_model_is_smaller_than_4_mb():
    assert 4 * count_parameters(zoo_module("char_lm.char_lm_torch").CustomModel()) < 4e6


@pytest.mark.parametrize("module_name", ["char_lm.char_lm_torch", "char_lm.char_lm_keras"])
def test_heads_must_divide_the_width(module_name):
    with pytest.raises(ValueError, match="d_model=30 must be a multiple of n_heads=4"):
        zoo_module(module_name).CustomModel(d_model=30, n_heads=4)
