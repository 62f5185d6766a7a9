"""A model that cannot be made in a worker, though the master can make it."""

import ctypes
import os

from obedient import *  # noqa: F403 - the rest of the module is that one's
from obedient import CustomModel as Obedient


class CustomModel(Obedient):
    """Fail as `how` says, in workers only."""

    def __init__(self, num_records: int, how: str) -> None:
        super().__init__(num_records)
        if os.environ.get("ELASTIC_REPLICA", "").startswith("worker"):
            if how == "segfault":
                ctypes.string_at(0)
            raise RuntimeError("no accelerator in this process")
