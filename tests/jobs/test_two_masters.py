"""Two masters of one job at once, as where the node of the older one is cut off and lives on."""

import asyncio
import contextlib
import threading
import time
import uuid

import pytest
from support.api_server_in_memory import InMemoryApi
from support.cluster import eventually
from support.datasets import prepared_dir
from support.lease_fences import MastersLease
from support.local_job import make_spec
from support.thread_job import ThreadRunner

from elastic.checkpoints.cuts import list_cuts, read_cut
from elastic.errors import RpcError
from elastic.master.run import Master
from elastic.platforms.base import FencedError
from elastic.platforms.registry import Departure, MasterEnvironment
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.client import MasterClient
from elastic.spec.status import JobPhase

NUM_RECORDS = 200
NUM_EPOCHS = 6
TOKEN = "the-token-of-this-job"


class NotingFence:
    """A fence that notes how often it was asked, and when it last let its master through."""

    def __init__(self, fence):
        self._fence = fence
        self.asked = 0
        self.last_passed_s = 0.0

    def check(self):
        self.asked += 1
        self._fence.check()
        self.last_passed_s = time.monotonic()


class FencedRunner:
    """The replicas that both masters have, as one of them may change them."""

    def __init__(self, runner, fence):
        self._runner = runner
        self._fence = fence

    def __getattr__(self, name):
        return getattr(self._runner, name)

    def launch(self, replica):
        self._fence.check()
        self._runner.launch(replica)

    def delete(self, replica, grace_s):
        self._fence.check()
        self._runner.delete(replica, grace_s)

    def publish_status(self, status):
        self._fence.check()
        self._runner.publish_status(status)


class RunningMaster:
    """A master on a thread, with a lease of its own; `stop` ends it as a process ends."""

    def __init__(self, api, identity, spec, runner, run_id, folder):
        self.lease = MastersLease(api, identity)
        self.fence = NotingFence(self.lease.fence)
        self.departure = Departure()
        self._environment = MasterEnvironment(
            spec, TOKEN, run_id, FencedRunner(runner, self.fence), folder, "127.0.0.1",
            departure=self.departure, fence=self.fence,
        )  # fmt: skip
        self._runner = runner
        self._loop = self._task = None
        self.phase = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self):
        """Serve; returns the address."""
        known = len(self._runner.addresses)
        self._thread.start()
        return eventually(lambda: self._runner.addresses[known:])[0]

    def wait(self):
        self._thread.join()
        return self.phase

    def stop(self):
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._task.cancel)
            self._thread.join()
        self.lease.close()

    def _run(self):
        async def run():
            self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
            self.phase = await Master.open(self._environment).run()

        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(run())


@pytest.fixture
def job(tmp_path):
    """Makes masters of one submission, which share its volume and its workers."""
    spec = make_spec(
        "counting.counting_torch.CustomModel",
        prepared_dir("counting", num_records=NUM_RECORDS) / "train.npz",
        model_params={"num_records": NUM_RECORDS, "delay_ms": 5.0},
        num_workers=2,
        num_epochs=NUM_EPOCHS,
        minibatch_size=2,
        records_per_task=20,
        recovery_interval=0.05,
    )
    folder = tmp_path / "cuts"
    runner = ThreadRunner(spec, TOKEN)
    made, run_id = [], uuid.uuid4().hex
    with InMemoryApi() as api:

        def make(identity):
            made.append(RunningMaster(api, identity, spec, runner, run_id, folder))
            return made[-1]

        make.folder, make.runner = folder, runner
        yield make
        for master in made:
            master.stop()
        runner.join()


def volume(folder):
    """What anybody sees of the cuts: which there are, and when each was put there."""
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in list_cuts(folder)}


def test_the_older_one_shows_no_cut_and_answers_nobody_once_it_can_be_replaced(job):
    older, newer = job("pod-1"), job("pod-2")
    older.lease.fence.acquire()
    address = older.start()
    eventually(lambda: len(list_cuts(job.folder)) > 1)
    older.lease.lose_contact()

    newer.lease.fence.acquire()
    acquired_s, seen, num_asked = time.monotonic(), volume(job.folder), older.fence.asked
    # It lives: its workers call, it has a status to tell, and its pod is asked to leave.
    eventually(lambda: older.fence.asked > num_asked + 20)
    assert not older.departure.ask(1.0), "what it has in memory is not kept any more"
    assert older.fence.last_passed_s < acquired_s
    assert volume(job.folder) == seen
    told = len(job.runner.statuses)
    client = MasterClient(lambda: address, TOKEN, 0.0)
    with pytest.raises(RpcError, match="fenced"):
        client.register(pb.RegisterRequest(worker_index=0, launch=1, host="test", pid=1))
    client.close()
    with pytest.raises(FencedError):
        older.fence.check()
    assert len(job.runner.statuses) == told

    newer.start()
    assert newer.wait() is JobPhase.SUCCEEDED
    assert older.fence.last_passed_s < acquired_s
    cut = read_cut(list_cuts(job.folder)[0])
    assert cut.parameters["counts"].tolist() == [float(NUM_EPOCHS)] * NUM_RECORDS
    older.lease.regain_contact()
    eventually(older.lease.ended.is_set)


def test_a_master_that_was_cut_off_for_a_while_goes_on_where_nobody_took_its_place(job):
    only = job("pod-1")
    only.lease.fence.acquire()
    only.start()
    eventually(lambda: len(list_cuts(job.folder)) > 1)
    only.lease.lose_contact()
    eventually(lambda: time.monotonic() - only.fence.last_passed_s > 1.0)
    only.lease.regain_contact()
    assert only.wait() is JobPhase.SUCCEEDED
    cut = read_cut(list_cuts(job.folder)[0])
    assert cut.parameters["counts"].tolist() == [float(NUM_EPOCHS)] * NUM_RECORDS
    status = job.runner.statuses[-1]
    assert status.master_restarts == 0
    assert status.worker_failures == 0
