"""An optimizer that hangs stops the master's event loop, and costs a life of the master."""

from support.local_job import LocalJob
from support.statuses import each_epoch
from support.thread_job import events, obedient_spec, write_records

NUM_RECORDS = 40


def test_a_master_that_stands_still_is_started_again_and_nothing_is_lost(tmp_path):
    data = write_records(tmp_path / "train.npz", num_records=NUM_RECORDS)
    spec = obedient_spec(
        data,
        model_def="stuck.CustomModel",
        model_params={"num_records": NUM_RECORDS, "marker": str(tmp_path / "has-hung")},
        hang_timeout=1,
        minibatch_size=4,
        num_epochs=3,
    )
    with LocalJob(spec, tmp_path) as job:
        status = job.succeed()
        log = job.logs()
    assert (status.master_restarts, status.worker_failures) == (1, 0)
    assert each_epoch(status) == [(NUM_RECORDS, NUM_RECORDS, 0)] * 3
    assert events(status, "MasterRestarted")
    assert "Hanging.step (" in log
    assert "hangs: the master has stood still for 10 s" in log
