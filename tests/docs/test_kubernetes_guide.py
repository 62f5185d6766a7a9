"""The walk-through of `docs/kubernetes.md`, command by command, on a real cluster."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.cluster import (
    KUBECONFIG,
    eventually,
    exists,
    needs_cluster,
    open_cluster,
    remove_namespace,
)

from elastic.cli.main import main
from elastic.platforms.kubernetes.job.installing import MASTER_RIGHTS
from elastic.platforms.kubernetes.job.platform import KubernetesPlatform

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "kubernetes.md").read_text()
NAMESPACE = f"laptop-guide-{os.getpid()}"
REGISTRY = os.environ.get("ELASTIC_TEST_REGISTRY", "")


def test_the_guide_names_the_rights_that_masters_have():
    for resource, verbs in MASTER_RIGHTS.items():
        assert f"| {resource} | {', '.join(verbs)} |" in GUIDE


EXAMPLES = sorted((ROOT / "manifests" / "examples").glob("*.yaml"))
JOB_FILES = [path for path in EXAMPLES if "\napiVersion:" not in f"\n{path.read_text()}"]


@pytest.mark.parametrize("path", JOB_FILES, ids=lambda path: path.stem)
def test_every_example_is_a_job(path, capsys, monkeypatch):
    monkeypatch.delenv("ELASTIC_PLATFORM", raising=False)
    assert main(["train", "--config", str(path), "--dry_run"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert yaml.safe_load(out)["job_name"]


class TestWalkThrough:
    pytestmark = needs_cluster

    @pytest.fixture
    def namespace(self):
        yield NAMESPACE
        cluster = open_cluster()
        if exists(cluster, f"/api/v1/namespaces/{NAMESPACE}"):
            remove_namespace(cluster, NAMESPACE)

    @pytest.mark.sampled(2)
    def test_every_command_does_what_the_guide_says(self, namespace):
        blocks = re.findall(r"^```bash\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
        assert len(blocks) >= 7
        outputs = []
        for block in blocks:
            if "elastic logs" in block:
                self._wait_until_it_runs(namespace)
            outputs.append(self._run(block.replace("-n team", f"-n {namespace}")))
        install, doctor, train, again, look, logs, kill, forget = outputs
        assert "kind: RoleBinding" in install
        assert "fail" not in doctor
        assert "job digits: Succeeded" in train
        accuracy = float(re.search(r"accuracy ([\d.]+)", train)[1])
        assert accuracy >= 0.85
        assert "built" not in again.replace("is built already", "")
        assert re.search(r"longer +(Pending|Starting|Running)", look)
        assert re.search(r"job longer: \d → 2 workers", look)
        assert "[master-0]" in logs
        assert "job longer has been stopped: Cancelled" in kill
        assert forget.endswith("no jobs\n")

    def _wait_until_it_runs(self, namespace):
        platform = KubernetesPlatform(open_cluster(), namespace)
        eventually(lambda: platform.status("longer").phase == "Running", 300.0)

    def _run(self, block):
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "KUBECONFIG": KUBECONFIG,
            "REPOSITORY": f"{REGISTRY}/guide",
            "COLUMNS": "120",
        }
        environment.pop("ELASTIC_PLATFORM", None)
        done = subprocess.run(
            ["bash", "-e", "-c", block],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr
