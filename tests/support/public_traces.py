"""Where the public traces are, which are no part of the project."""

import os
from pathlib import Path

import pytest

_FOLDERS = [folder / "shared" / "traces" for folder in Path(__file__).parents]
PUBLIC = next(filter(Path.is_dir, _FOLDERS), _FOLDERS[0])

SHARED_CLUSTER = Path(os.environ.get("ELASTIC_TEST_TRACES", PUBLIC / "pollux"))
"""Workloads and profiles of the experiment of 64 shared GPUs."""

needs_public = pytest.mark.skipif(
    not PUBLIC.is_dir(),
    reason="the public traces are not here: no shared/traces beside the project",
)
needs_shared_cluster = pytest.mark.skipif(
    not (SHARED_CLUSTER / "traces").is_dir(),
    reason="the published workloads and profiles are not here: ELASTIC_TEST_TRACES names no folder "
    "of them, and there is no shared/traces/pollux beside the project",
)
