"""The examples of docs/python.md, as one script in a process of its own, with real jobs."""

import os
import re
import shutil
from pathlib import Path

import pytest
from support import warm

from elastic.platforms.local.platform import LocalPlatform

ROOT = Path(__file__).parents[2]
EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.DOTALL)


@pytest.mark.sampled(2)
def test_the_examples_train_scale_wait_and_read_metrics(tmp_path):
    shutil.copytree(ROOT / "model_zoo", tmp_path / "model_zoo")
    (tmp_path / "script.py").write_text("\n".join(EXAMPLES))
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    known = {k: v for k, v in os.environ.items() if k not in ("ELASTIC_PLATFORM", "KUBECONFIG")}
    environment = known | {"ELASTIC_HOME": str(tmp_path / "home"), "PYTHONPATH": path}
    try:
        done = warm.run(["script.py"], tmp_path, environment)
    finally:
        # Nothing is left of it where an example failed.
        platform = LocalPlatform(tmp_path / "home")
        for name in platform.jobs():
            platform.kill(name, 60.0)
    assert done.returncode == 0, done.stdout + done.stderr
    accuracy = float(re.search(r"^Succeeded (\d\.\d+)$", done.stdout, re.MULTILINE)[1])
    assert accuracy > 0.9
    assert "20 epochs of 1438 records, 1438 committed each" in done.stdout
    assert "master-0" in done.stdout
    assert "digits Succeeded" in done.stdout
    assert "did you mean num_epochs?" in done.stdout
    assert re.search(r"no job 'digits' in ", done.stdout)
