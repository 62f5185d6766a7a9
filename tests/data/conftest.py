"""Reading as the master and the workers do it."""

import pytest

from elastic.data import open_reader
from elastic.data.base import ReadTask


@pytest.fixture
def read_all():
    """Read every record of a source: shards from one reader, records from another one."""

    def read(origin, records_per_task=2, custom=None, **params):
        shards = open_reader(str(origin), records_per_task, params, custom).create_shards()
        worker = open_reader(str(origin), records_per_task, params, custom)
        return [
            record
            for shard in shards
            for record in worker.read_records(ReadTask(shard, shard.start, shard.end))
        ]

    return read
