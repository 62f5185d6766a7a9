"""Several workers and no mode chosen: as many gradients an update as there can be workers."""

from pathlib import Path

import pytest
from support.thread_job import ThreadJob, events, obedient_spec, write_records

from elastic.checkpoints.cuts import read_cut
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


@pytest.mark.parametrize(
    ("asked", "group", "told"),
    [
        pytest.param(
            {}, 2,
            ["grads_to_wait=2 as before, whatever num_workers=4: --grads_to_wait 4 has an update "
             "made of as many gradients as there can be workers now"],
            id="kept",
        ),
        pytest.param({"grads_to_wait": 4}, 4, [], id="named"),
        pytest.param({"elastic_batch": "20:40"}, 4, [], id="chosen"),
        pytest.param({"use_async": True}, 1, [], id="another-mode"),
    ],
)  # fmt: skip
def test_a_resumed_job_keeps_its_number_of_gradients_with_more_workers(
    asked, group, told, tmp_path
):
    data = write_records(tmp_path / "train.npz", num_records=NUM_RECORDS)
    settings = {"minibatch_size": 5, "checkpoint_dir": str(tmp_path / "kept")}
    first = obedient_spec(data, NUM_RECORDS, num_workers=2, num_epochs=1, **settings)
    begun = ThreadJob(first, tmp_path / "cuts").run()
    assert begun.progress.model_version == NUM_RECORDS // (5 * 2)
    resumed = obedient_spec(
        data, NUM_RECORDS, num_workers=4, num_epochs=2, resume=True, **settings, **asked
    )
    status = ThreadJob(resumed, tmp_path / "cuts").run()
    assert status.phase is JobPhase.SUCCEEDED, status
    updates = status.progress.model_version - begun.progress.model_version
    assert updates == NUM_RECORDS // (5 * group)
    assert events(status, "GroupKept") == told
    assert read_cut(Path(status.checkpoint)).parameters["counts"].tolist() == [2.0] * NUM_RECORDS
