"""The torch and the Keras module of one model are the same model."""

import numpy as np
import pytest
import tensorflow as tf
import torch
from support.datasets import zoo_module

LM_PARAMS = {"d_model": 32, "n_layers": 2, "n_heads": 4, "context": 16}


def count_parameters(torch_model):
    return sum(parameter.numel() for parameter in torch_model.parameters())


@pytest.mark.parametrize(
    ("torch_module", "keras_module", "symbol", "image_shape"),
    [
        ("digits.digits_torch", "digits.digits_keras", "custom_model", (1, 8, 8, 1)),
        (
            "mnist_subclass.mnist_torch",
            "mnist_subclass.mnist_subclass",
            "CustomModel",
            (1, 28, 28, 1),
        ),
    ],
)
def test_classifiers_have_as_many_parameters(torch_module, keras_module, symbol, image_shape):
    keras_model = getattr(zoo_module(keras_module), symbol)()
    keras_model(np.zeros(image_shape, np.float32))
    trained = sum(int(np.prod(v.shape)) for v in keras_model.trainable_variables)
    assert trained == count_parameters(zoo_module(torch_module).CustomModel())


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
