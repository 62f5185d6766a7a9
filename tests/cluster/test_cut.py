"""The master's connections to the API server are cut: it notices what happened meanwhile."""

import pytest
from support.cluster import eventually, needs_cluster
from support.faults import Breaker
from support.pod_history import PodHistory, unexplained
from support.whole_jobs import Workshop

pytestmark = needs_cluster

NUM_RECORDS = 400
NUM_EPOCHS = 20
CUT_S = 3.0


@pytest.fixture(scope="module")
def workshop():
    workshop = Workshop(NUM_RECORDS, "cut")
    yield workshop
    workshop.close()


def test_a_worker_that_is_deleted_while_the_watch_is_cut_is_replaced(workshop):
    job = workshop.submit(
        "cut",
        num_workers="2",
        num_epochs=NUM_EPOCHS,
        model_params={"num_records": NUM_RECORDS, "delay_ms": 400},
    )
    job.until(lambda s: [w.records_done > 0 for w in s.workers] == [True, True])
    # Who works already may not be told to run yet by a busy node.
    eventually(lambda: len(job.worker_pods()) == 2)
    breaker = Breaker(job, seed=0)
    with PodHistory(job) as history:
        assert breaker.cut(CUT_S)
        status = job.until(lambda s: all(w.phase == "Running" for w in s.workers))
        [fault] = breaker.faults
        assert sum(w.launch for w in status.workers) == 3
        told = [(event.kind, event.message) for event in status.events]
        print(told)
        assert any(k == "WorkerLost" and m.startswith(fault.replica) for k, m in told)
        # One outage, told once as it began and once as it ended.
        kinds = [kind for kind, _ in told]
        assert (kinds.count("PlatformAway"), kinds.count("PlatformBack")) == (1, 1)
        assert unexplained(history.lives(), breaker.faults) == []
        assert len(history.lives()) == 3
    job.hurry()
    status = job.succeed()
    assert job.counts() == [float(NUM_EPOCHS)] * NUM_RECORDS
    assert (status.workers_lost, status.worker_failures, status.master_restarts) == (1, 0, 0)
