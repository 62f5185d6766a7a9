"""Jobs whose rows are on parameter servers, and go on with others or with another store."""

import pytest
from support.datasets import prepared_dir
from support.local_job import LocalJob, make_spec
from support.rows import check_counts
from support.thread_job import ZOO

NUM_RECORDS = 90
WAYS = {
    "2-servers": {"embedding_store": "ps", "num_ps": 2},
    "3-servers": {"embedding_store": "ps", "num_ps": 3},
    "memory": {"embedding_store": "memory"},
}


def trained(folder, way, **settings):
    """The checkpoint of a job, and its cut."""
    spec = make_spec(
        "embedded_counting_torch.CustomModel",
        prepared_dir("counting", num_records=NUM_RECORDS) / "train.npz",
        model_zoo=str(ZOO),
        model_params={"num_records": NUM_RECORDS},
        **WAYS[way],
        **settings,
    )
    with LocalJob(spec, folder) as job:
        status = job.succeed()
        [size] = status.tables
        assert size.rows == NUM_RECORDS
        return status.checkpoint, job.cut()


@pytest.mark.parametrize(
    ("before", "after"),
    [("2-servers", "3-servers"), ("memory", "2-servers"), ("2-servers", "memory")],
)
def test_a_checkpoint_is_loaded_wherever_rows_are_then(before, after, tmp_path):
    checkpoint, cut = trained(tmp_path / "first", before)
    check_counts(cut, NUM_RECORDS, 1)
    _, cut = trained(tmp_path / "second", after, checkpoint_filename_for_init=checkpoint)
    check_counts(cut, NUM_RECORDS, 2)
