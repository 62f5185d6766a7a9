"""A program that is the first process of its container ends when it is asked to, however early."""

import os
import signal
import subprocess
import sys

import psutil
import pytest
from support.local_jobs import eventually

NAMESPACE = ["unshare", "--pid", "--fork", "--kill-child"]
SLOW = """
import pathlib, time
pathlib.Path({path!r}).touch()
time.sleep(600)
"""


@pytest.fixture
def slow_import(tmp_path):
    """A folder with a package in place of pydantic whose import never ends, and the file that it
    makes when it has begun.
    """
    if subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("only root may make a process the first one of a namespace")
    (tmp_path / "pydantic").mkdir()
    begun = tmp_path / "begun"
    (tmp_path / "pydantic" / "__init__.py").write_text(SLOW.format(path=str(begun)))
    return tmp_path, begun


@pytest.mark.parametrize("module", ["elastic.worker", "elastic.ps", "elastic.redis_server"])
def test_one_that_still_imports_ends_at_once(module, slow_import):
    folder, begun = slow_import
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    program = [sys.executable, "-P", "-m", module, "--kubernetes", "--index", "0", "--launch", "1"]
    with subprocess.Popen([*NAMESPACE, *program], env=os.environ | {"PYTHONPATH": path}) as outer:
        try:
            eventually(begun.exists)
            [first] = psutil.Process(outer.pid).children()
            first.send_signal(signal.SIGTERM)
            assert outer.wait(30) == 128 + signal.SIGTERM
        finally:
            outer.kill()
