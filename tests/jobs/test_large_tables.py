"""Tables that are larger than what the master and the workers may have."""

import numpy as np
import pytest
from support.local_job import LocalJob, make_spec
from support.thread_job import ZOO
from support.zoo.large_table_torch import DIM, IDS_A_RECORD

NUM_RECORDS = 40_000
ROOM_BYTES = 400 << 20
POSSIBLE_IDS = 10**8


STORES = {
    "ps": {"embedding_store": "ps", "num_ps": 2},
    "redis": {"embedding_store": "redis"},
}


def large_spec(tmp_path, store):
    rng = np.random.default_rng(1)
    data = tmp_path / "records.npz"
    ids = rng.integers(0, POSSIBLE_IDS, (NUM_RECORDS, IDS_A_RECORD))
    np.savez(data, ids=ids, label=rng.normal(size=NUM_RECORDS).astype(np.float32))
    spec = make_spec(
        "large_table_torch.CustomModel",
        data,
        model_zoo=str(ZOO),
        model_params={"room_bytes": ROOM_BYTES},
        minibatch_size=200,
        num_workers=1,
        recovery_interval=3600.0,
        **STORES[store],
    )
    return spec, len(np.unique(ids))


@pytest.mark.soak
@pytest.mark.parametrize("store", STORES)
def test_a_table_is_trained_that_has_no_room_in_master_and_workers(store, tmp_path):
    """Of 10⁸ possible ids 640,000 come; a row and its slot are 1 KiB.

    In a Redis it takes minutes: all of it is written there, to its file, and to the checkpoint.
    """
    spec, num_rows = large_spec(tmp_path, store)
    assert num_rows * DIM * 8 > 1.5 * ROOM_BYTES
    with LocalJob(spec, tmp_path) as job:
        (size,) = job.succeed().tables
    assert size.rows == num_rows
    assert size.size_bytes <= num_rows * (DIM * 8 + 8)
