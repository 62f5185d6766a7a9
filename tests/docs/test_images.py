"""The steps of docs/images.md, as a reader would type them."""

import os
import re
import shlex
import subprocess
import sys
import uuid
from contextlib import closing
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[2] / "docs" / "images.md").read_text()

pytestmark = pytest.mark.cluster


def test_step_by_step(tmp_path):
    registry = os.environ.get("ELASTIC_TEST_REGISTRY")
    if not registry:
        pytest.skip("needs a Docker engine and a registry: set ELASTIC_TEST_REGISTRY")
    from docker import APIClient

    (tmp_path / "model_zoo").mkdir()
    (tmp_path / "model_zoo" / "my_model.py").write_text("import torch\n")
    mark = uuid.uuid4().hex
    (block,) = re.findall(r"```bash\n(elastic zoo init.*?)```", TEXT, re.DOTALL)
    block = block.replace("elastic:ci", "elastic-base:ci")
    block = block.replace("registry.example.com/team", f"{registry}/elastic-test/{mark}")
    names = []
    with closing(APIClient()) as client:
        try:
            for line in block.splitlines():
                done = elastic(tmp_path, *shlex.split(line)[1:])
                assert done.returncode == 0, done.stdout + done.stderr
                names += re.findall(r"^image: building (\S+) from", done.stderr, re.MULTILINE)
            name = done.stdout.strip()
            assert name == f"{registry}/elastic-test/{mark}/mnist:v1"
            assert client.inspect_distribution(name)["Descriptor"]["digest"]
            names.append(name)
        finally:
            for name in names:
                client.remove_image(name, force=True)
    recipe = (tmp_path / "model_zoo" / "elastic.Dockerfile").read_text()
    assert "\nARG IMAGE_BASE=elastic-base:ci\n" in recipe
    assert "\nCOPY model_zoo/ /model_zoo/\n" in recipe


def elastic(folder, *arguments):
    program = Path(sys.executable).with_name("elastic")
    return subprocess.run(
        [program, *arguments], cwd=folder, capture_output=True, text=True, timeout=500, check=False
    )
