"""The obedient Keras model, whose processes note what they find as the module is imported."""

import os
from pathlib import Path

_found = os.environ.get("TF_FORCE_GPU_ALLOW_GROWTH")
_name = os.environ.get("ELASTIC_REPLICA", "master")
Path(os.environ["NOTES"], f"{_name}-{os.getpid()}").write_text(str(_found))

import keras as keras  # noqa: E402 - it is what may come too early
from obedient_keras import *  # noqa: E402, F403 - the rest of the module is that one's
