"""The counting model; tells what its process was given and could write, and writes where asked.

What is told lies in `/control/JOB-ROLE.json`.
"""

import json
import os
import tempfile
from pathlib import Path

import torch
from counting.counting_torch import (
    CustomModel as CountingModel,
)
from counting.counting_torch import dataset_fn, eval_metrics_fn, loss, optimizer  # noqa: F401

CONTROL = Path("/control")


def _is_written(folder):
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"1")
    except OSError as error:
        return error.strerror
    return True


def _tell():
    role = os.environ["ELASTIC_REPLICA"].split("-")[0]
    folders = {
        "tmp": Path(tempfile.gettempdir()),
        "cache": Path.home() / ".cache" / "library",
        "kernels": Path(torch._inductor.runtime.runtime_utils.default_cache_dir()),
        "shared memory": Path("/dev/shm"),
        "root": Path("/var/tmp"),
        "beside": Path(__file__).parent,
    }
    told = {
        "variables": {name: os.environ.get(name) for name in ("KEY", "BOTH", "HOME")},
        "written": {name: _is_written(folder) for name, folder in folders.items()},
    }
    path = CONTROL / f"{os.environ['ELASTIC_JOB_NAME']}-{role}.json"
    path.write_text(json.dumps(told))


class CustomModel(CountingModel):
    """Counts, and perhaps keeps notes."""

    def __init__(self, notes="", **settings):
        super().__init__(**settings)
        self.notes = notes
        _tell()

    def forward(self, index):
        if self.notes:
            Path(self.notes).write_text("seen")
        return super().forward(index)
