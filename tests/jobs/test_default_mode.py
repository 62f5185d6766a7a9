"""Several workers and no mode chosen: as many gradients an update as there can be workers."""

from pathlib import Path

import pytest
from support.thread_job import ThreadJob, obedient_spec, write_records

from elastic.master.cuts import read_cut
from elastic.spec.status import JobPhase

NUM_RECORDS = 200
NUM_EPOCHS = 3


@pytest.mark.parametrize("num_workers", [1, 2, 4])
def test_the_updates_are_the_same_however_many_workers_there_are(num_workers, tmp_path):
    data = write_records(tmp_path / "train.npz", num_records=NUM_RECORDS, delay_ms=1)
    spec = obedient_spec(
        data, NUM_RECORDS, minibatch_size=5, num_workers="1:4", num_epochs=NUM_EPOCHS
    )
    job = ThreadJob(spec, tmp_path / "cuts")
    job.runner.ask(num_workers=num_workers)
    status = job.run()
    assert status.phase is JobPhase.SUCCEEDED, status
    assert status.progress.model_version == NUM_EPOCHS * NUM_RECORDS // (5 * 4)
    assert (
        read_cut(Path(status.checkpoint)).parameters["counts"].tolist()
        == [NUM_EPOCHS] * NUM_RECORDS
    )
    # A worker that this machine keeps from its turn for half a second is waited for no longer.
    assert status.progress.computed_again <= 0.02 * NUM_EPOCHS * NUM_RECORDS
