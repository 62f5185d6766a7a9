"""The obedient model, whose processes note which GPUs they find as the module is imported."""

import os
from pathlib import Path

_found = os.environ.get("CUDA_VISIBLE_DEVICES")
_name = os.environ.get("ELASTIC_REPLICA", "master")
Path(os.environ["NOTES"], f"{_name}-{os.getpid()}").write_text(str(_found))

from obedient import *  # noqa: E402, F403 - the rest of the module is that one's
