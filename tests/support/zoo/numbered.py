"""The obedient model over records that its own reader makes, named alike wherever a job runs."""

from collections.abc import Iterator, Mapping
from typing import Any

from obedient import *  # noqa: F403 - the rest of the module is that one's


class Numbers:
    """Record i is `index` = i, which counts."""

    def __init__(self, num_records: int) -> None:
        self.num_records = num_records

    def create_shards(self) -> Mapping[str, tuple[int, int]]:
        """One."""
        return {"numbers": (0, self.num_records)}

    def read_records(self, task: Any) -> Iterator[Mapping[str, float]]:
        """Those of one task."""
        for index in range(task.start, task.end):
            yield {"index": index, "deed": 0, "delay_ms": 0.0}


def custom_data_reader(data_origin: str, records_per_task: int, **params: Any) -> Numbers:
    """The reader that makes as many as `num_records`."""
    return Numbers(params["num_records"])
