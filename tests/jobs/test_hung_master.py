"""An optimizer that hangs stops training, and costs a life of the master."""

import pytest
from support.local_job import LocalJob
from support.statuses import each_epoch
from support.thread_job import events, obedient_spec, write_records

from elastic.master.parameters import INLINE_BYTES

NUM_RECORDS = 40


@pytest.mark.parametrize(
    "ballast",
    [pytest.param(0, id="on-the-event-loop"), pytest.param(INLINE_BYTES, id="in-a-thread")],
)
def test_a_master_that_stands_still_is_started_again_and_nothing_is_lost(tmp_path, ballast):
    data = write_records(tmp_path / "train.npz", num_records=NUM_RECORDS)
    spec = obedient_spec(
        data,
        model_def="stuck.CustomModel",
        model_params={
            "num_records": NUM_RECORDS,
            "marker": str(tmp_path / "has-hung"),
            "ballast": ballast,
        },
        hang_timeout=1,
        minibatch_size=4,
        num_epochs=3,
    )
    # Where a process hangs is told by its stack, which is that of a process as users start it.
    with LocalJob(spec, tmp_path, is_cold=True) as job:
        status = job.succeed()
        log = job.logs()
    assert (status.master_restarts, status.worker_failures) == (1, 0)
    assert each_epoch(status) == [(NUM_RECORDS, NUM_RECORDS, 0)] * 3
    assert events(status, "MasterRestarted")
    assert "Hanging.step (" in log
    assert "hangs: training has stood still for 10 s" in log
