"""An ElasticTrainJob loses its master's pod, and goes on: every record counts exactly once."""

import contextlib
import signal
import time

import psutil
import pytest
from support.cluster import eventually, needs_custom_resources
from support.controlled import Controller
from support.controlled_jobs import TrainJob
from support.whole_jobs import CONTROL, Workshop

NUM_RECORDS = 800

pytestmark = needs_custom_resources


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    workshop = Workshop(NUM_RECORDS, "trainjobs")
    controller = Controller(workshop.namespace, tmp_path_factory.mktemp("controller") / "log")
    controller.start()
    yield workshop
    controller.end()
    assert "Traceback" not in controller.log()
    workshop.close()


@pytest.mark.parametrize("num_losses", [1, pytest.param(3, marks=pytest.mark.soak)])
def test_its_masters_pod_is_deleted_again_and_again(workshop, num_losses):
    job = TrainJob(workshop, f"deleted-{num_losses}")
    job.until_at_work()
    workers = job.worker_uids()
    assert len(workers) == 2
    for loss in range(num_losses):
        master = job.pod("master")
        # As with its node, without a grace; and as `kubectl delete`, with it.
        job.delete_pod(master, 0 if loss == 0 else None)
        job.until_at_work(master["metadata"]["uid"])
    assert job.worker_uids() == workers, "no worker was touched"
    job.succeed_exactly()
    eventually(lambda: job.resource.holds("Succeeded"))
    assert job.resource.status["phase"] == "Succeeded"
    job.resource.delete()
    eventually(lambda: not job.pods())


@contextlib.contextmanager
def node_that_stands_still():
    """The node's agent does nothing; what runs there runs on."""
    [agent] = [
        process
        for process in psutil.process_iter(["name", "cmdline"])
        if process.info["name"] == "kubelet" and process.info["cmdline"]
    ]
    agent.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        agent.send_signal(signal.SIGCONT)


@pytest.mark.alone
@pytest.mark.soak
def test_its_master_is_forgotten_while_it_lives_on(workshop):
    """As on a node that is cut off from its cluster: of two masters one is heard."""
    commits = workshop.shared / "commits-forgotten.jsonl"
    job = TrainJob(workshop, "forgotten", commit_log=f"{CONTROL}/commits-forgotten.jsonl")
    job.until_at_work()
    old = job.pod("master")
    with node_that_stands_still():
        job.delete_pod(old, 0)
        forgotten_s = time.monotonic()
        eventually(lambda: (job.pod("master") or old)["metadata"]["uid"] != old["metadata"]["uid"])
        # Its container lives, and nothing of it is seen any more.
        assert job.process_id(old) is not None
        eventually(lambda: not _grows(commits, 5.0), 60.0)
        # It ends by itself when it is to renew its lease, and finds its pod gone.
        print(f"nothing new {time.monotonic() - forgotten_s:.1f} s after it was forgotten")
    job.until_at_work(old["metadata"]["uid"])
    job.succeed_exactly()


def _grows(path, within_s):
    before = path.stat().st_size
    time.sleep(within_s)
    return path.stat().st_size != before
