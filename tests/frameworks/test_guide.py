import re
from pathlib import Path

import numpy as np
import pytest

from elastic.data.base import columns_of
from elastic.frameworks import load_framework
from elastic.spec.model_check import check_source
from elastic.spec.model_def import (
    KERAS_OPTIMIZER,
    RULES,
    TORCH_OPTIMIZER,
    SymbolNames,
    load_model_def,
)
from elastic.spec.platforms import Mode

GUIDE = Path(__file__).parents[2] / "docs" / "model_def.md"


def records(count):
    random = np.random.default_rng(0)
    for _ in range(count):
        x = random.normal(size=4).astype(np.float32)
        yield {"x": x, "y": np.int64(x[:3].argmax())}


def example(*words):
    (code,) = re.findall(rf"```python {' '.join(words)}\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    return code


def guide_model(framework, tmp_path, monkeypatch, changed=None, symbol="CustomModel"):
    """The module of the guide's example; a later piece may take a symbol's place."""
    code = example(framework) + (example(framework, changed) if changed else "")
    name = f"guide_{framework}_{changed or 'whole'}"
    (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    arguments = (tmp_path, f"{name}.{symbol}", SymbolNames())
    check_source(*arguments)
    return load_model_def(*arguments)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("framework", ["keras", "torch"])
@pytest.mark.parametrize(
    ("changed", "symbol"),
    [
        (None, "CustomModel"),
        ("schedule", "CustomModel"),
        ("total_steps", "CustomModel"),
        ("functional", "custom_model"),
        ("columns", "CustomModel"),
    ],
)
def test_the_examples_of_the_guide_learn(framework, changed, symbol, tmp_path, monkeypatch):
    model_def = guide_model(framework, tmp_path, monkeypatch, changed, symbol)
    assert model_def.framework == framework
    built = load_framework(framework)
    given = list(records(64))
    batch = built.make_batch(
        model_def, columns_of(given) if model_def.takes_columns else given, Mode.TRAINING
    )
    model = built.build_model(model_def, {"width": 32}, batch, seed=0)
    num_steps = 150 if changed in ("schedule", "total_steps") else 60
    updater = built.build_updater(model_def, model, num_steps)
    before = model.metric_results(model.metrics(batch))
    for step in range(num_steps):
        updater.apply(model.gradients(batch, step).gradients)
    after = model.metric_results(model.metrics(batch))
    assert after["loss"] < before["loss"] / 2
    assert after["accuracy"] > 0.9


def test_the_guide_names_every_symbol_of_the_contract():
    table = re.findall(r"^\| `(\w+)` \| (yes|no) \| (.*) \| (.*) \|$", GUIDE.read_text(), re.M)
    rows = {name: (needed, keras, torch) for name, needed, keras, torch in table}
    of_jobs = {getattr(SymbolNames(), field) for field in SymbolNames.__slots__}
    # The last is for `elastic data convert`, which takes it from the same module.
    assert set(rows) == of_jobs | {"prepare_data"}
    for rule in RULES:
        needed, keras, torch = rows[getattr(SymbolNames(), rule.field)]
        assert (needed == "yes") == rule.required
        assert f"`{rule.call}`" in keras + torch
    assert f"`{KERAS_OPTIMIZER.call}`" in rows["optimizer"][1]
    assert f"`{TORCH_OPTIMIZER.call}`" in rows["optimizer"][2]


def test_the_metric_object_of_the_guide(tmp_path, monkeypatch):
    model_def = guide_model("torch", tmp_path, monkeypatch, "metric")
    built = load_framework("torch")
    batch = built.make_batch(model_def, list(records(64)), Mode.TRAINING)
    model = built.build_model(model_def, {}, batch, seed=0)
    assert 0.0 <= model.metric_results(model.metrics(batch))["recall"] <= 1.0
