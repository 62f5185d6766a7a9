import re
from pathlib import Path

import numpy as np
import pytest

from elastic.frameworks import load_framework
from elastic.spec.mode import Mode
from elastic.spec.model_check import check_source
from elastic.spec.model_def import SymbolNames, load_model_def

GUIDE = Path(__file__).parents[2] / "docs" / "model_def.md"


def records(count):
    random = np.random.default_rng(0)
    for _ in range(count):
        x = random.normal(size=4).astype(np.float32)
        yield {"x": x, "y": np.int64(x[:3].argmax())}


@pytest.mark.parametrize("framework", ["keras", "torch"])
def test_the_examples_of_the_guide_learn(framework, tmp_path, monkeypatch):
    code = re.search(rf"```python {framework}\n(.*?)```", GUIDE.read_text(), re.DOTALL)[1]
    (tmp_path / f"guide_{framework}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    arguments = (tmp_path, f"guide_{framework}.CustomModel", SymbolNames())
    check_source(*arguments)
    model_def = load_model_def(*arguments)
    assert model_def.framework == framework
    built = load_framework(framework)
    batch = built.make_batch(model_def, list(records(64)), Mode.TRAINING)
    model = built.build_model(model_def, {"width": 32}, batch, seed=0)
    updater = built.build_updater(model_def, model)
    before = model.metric_results(model.metrics(batch))
    for step in range(60):
        updater.apply(model.gradients(batch, step).gradients)
    after = model.metric_results(model.metrics(batch))
    assert after["loss"] < before["loss"] / 2
    assert after["accuracy"] > 0.9
