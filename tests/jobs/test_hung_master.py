"""An optimizer that hangs stops training, and costs a life of the master."""

from contextlib import ExitStack

from support.local_job import LocalJob
from support.statuses import each_epoch
from support.thread_job import events, obedient_spec, write_records

from elastic.master.parameters.store import INLINE_BYTES

NUM_RECORDS = 40


BALLAST = {"on the event loop": 0, "in a thread": INLINE_BYTES}
"""Where the optimizer hangs depends on the size of the model."""


def _hanging_once(folder, ballast):
    """A job whose optimizer hangs in the first life of its master."""
    data = write_records(folder / "train.npz", num_records=NUM_RECORDS)
    spec = obedient_spec(
        data,
        model_def="stuck.CustomModel",
        model_params={
            "num_records": NUM_RECORDS,
            "marker": str(folder / "has-hung"),
            "ballast": ballast,
        },
        hang_timeout=1,
        minibatch_size=4,
        num_epochs=3,
    )
    # Where a process hangs is told by its stack, which is that of a process as users start it.
    return LocalJob(spec, folder, is_cold=True)


def test_a_master_that_stands_still_is_started_again_and_nothing_is_lost(tmp_path):
    """Both jobs side by side, since each stands still for ten seconds."""
    with ExitStack() as stack:
        jobs = {}
        for where, ballast in BALLAST.items():
            folder = tmp_path / where
            folder.mkdir()
            jobs[where] = stack.enter_context(_hanging_once(folder, ballast))
        for where, job in jobs.items():
            # The stacks of all its threads are in it.
            status, log = job.succeed(), job.logs(tail=1000)
            assert (status.master_restarts, status.worker_failures) == (1, 0), where
            assert each_epoch(status) == [(NUM_RECORDS, NUM_RECORDS, 0)] * 3, where
            assert events(status, "MasterRestarted"), where
            assert "Hanging.step (" in log, where
            assert "hangs: training has stood still for 10 s" in log, where
