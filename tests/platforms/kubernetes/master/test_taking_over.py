"""A master in a new pod goes on with the workers, the launch numbers and the counts of the last."""

import itertools

import pytest
from support.api_server_in_memory import InMemoryApi
from support.cluster import eventually
from support.fence_contract import FakeFence
from support.owned_job import STATUS, OwnedJob

from elastic.master.status_board import StatusBoard
from elastic.platforms.base import ExitReason, FencedError, ReplicaId, ReplicaPhase
from elastic.platforms.kubernetes.master.runner import KubernetesReplicaRunner
from elastic.policy.fleet import Fleet, FleetRules, Launch, desired_replicas
from elastic.spec.roles import WORKER
from elastic.spec.status import JobPhase, JobStatus, WorkerStatus

FIRST, SECOND = ReplicaId(WORKER, 0, 1), ReplicaId(WORKER, 1, 1)
POD = "elastic-j-worker-0"


class Masters:
    """The masters of one job, each in a pod and on a disk of its own."""

    def __init__(self, api, folder):
        self.job = OwnedJob(api)
        self.fence = FakeFence()
        self._folders = (folder / str(number) for number in itertools.count(1))
        self._runner = None
        self._number = 0

    def next(self):
        """The last one is gone with its pod; gives the runner of the next."""
        if self._runner is not None:
            self._runner.close()
            self.job.lose_master()
        self._number += 1
        folder = next(self._folders)
        folder.mkdir()
        has_predecessor = self._number > 1
        self._runner = KubernetesReplicaRunner(
            self.job.cluster, self.job.job, self.job.make_master(), folder, fence=self.fence,
            has_predecessor=lambda: has_predecessor,
        )  # fmt: skip
        self._runner.start()
        return self._runner

    def close(self):
        self._runner.close()


@pytest.fixture
def api():
    with InMemoryApi() as api:
        yield api


@pytest.fixture
def masters(api, tmp_path):
    masters = Masters(api, tmp_path)
    yield masters
    masters.close()


def running(*launches):
    """A status as a master tells it that sees these run."""
    rows = tuple(WorkerStatus(index=r.index, launch=r.launch, phase="Running") for r in launches)
    return JobStatus(
        job_name="j", phase=JobPhase.RUNNING, started_s=1.0, desired_workers=2, workers=rows,
        worker_failures=2, workers_lost=3, master_restarts=1,
    )  # fmt: skip


def plan(masters, runner):
    """What a master decides when it begins."""
    spec = masters.job.job.spec
    board = StatusBoard.open(spec, runner)
    fleet = Fleet(FleetRules.of(spec), {WORKER: board.worker_failures}, taken=runner.taken_launches)
    observed = runner.observe()
    fleet.adopt_exits(observed, board.has_told_end)
    return fleet.plan(observed, desired_replicas(spec, None, None), 0.0)


def moved_on(runner):
    """Have the runner do what waits, as its manager does all the time."""
    runner.wait(0.1)
    return True


def launched(actions):
    return [action.replica for action in actions if isinstance(action, Launch)]


def test_workers_of_the_last_one_go_on_as_they_are(masters, api):
    runner = masters.next()
    for replica in (FIRST, SECOND):
        runner.launch(replica)
        masters.job.run(f"elastic-j-worker-{replica.index}")
    pods = masters.job.pods()
    masters.job.publish(running(FIRST, SECOND))
    runner = masters.next()
    num_writes = len(api.writes)
    assert [(r.id, r.phase) for r in runner.observe()] == [
        (FIRST, ReplicaPhase.RUNNING), (SECOND, ReplicaPhase.RUNNING),
    ]  # fmt: skip
    assert plan(masters, runner) == []
    assert (masters.job.pods(), len(api.writes)) == (pods, num_writes)
    runner.delete(FIRST, 0.0)
    assert POD not in masters.job.pods(), "they are its own in all respects"


def test_one_that_has_gone_meanwhile_is_noted_once_and_launched_under_the_next_number(masters):
    masters.next().launch(FIRST)
    masters.job.run(POD)
    masters.job.publish(running(FIRST))
    masters.job.lose_pod(POD)
    runner = masters.next()
    [seen] = runner.observe()
    assert (seen.id, seen.exit_reason) == (FIRST, ExitReason.KILLED)
    [exit_, *_] = actions = plan(masters, runner)
    assert (exit_.replica.id, exit_.is_failure) == (FIRST, False)
    assert launched(actions) == [ReplicaId(WORKER, 0, 2), ReplicaId(WORKER, 1, 2)]


def test_a_number_that_no_status_told_of_is_not_given_again(masters):
    """The last master has replaced a worker and died before it could tell."""
    runner = masters.next()
    masters.job.publish(running(FIRST))
    for launch in (1, 2, 3):
        runner.launch(ReplicaId(WORKER, 0, launch))
        assert masters.job.pods() == {POD: launch}
        masters.job.lose_pod(POD)
        eventually(lambda: runner.observe()[-1].phase.is_final)
        assert runner.observe()[-1].id.launch == launch
    runner = masters.next()
    assert launched(plan(masters, runner)) == [ReplicaId(WORKER, 0, 4), ReplicaId(WORKER, 1, 2)]


def test_a_number_is_kept_before_its_pod_is_made(masters, api):
    runner = masters.next()
    api.refuse("patch", "configmaps", 500, "no", times=None)
    second = ReplicaId(WORKER, 0, 2)
    runner.launch(second)
    assert masters.job.pods() == {}
    api.relent()
    eventually(lambda: moved_on(runner) and masters.job.pods())
    assert masters.job.cluster.get(STATUS)["data"]["launch.worker-0"] == "2"
    assert masters.job.pods() == {POD: 2}


def test_the_first_master_begins_with_number_one_and_keeps_nothing_for_it(masters, api):
    runner = masters.next()
    assert launched(plan(masters, runner)) == [FIRST, SECOND]
    num_writes = len(api.writes)
    runner.launch(FIRST)
    assert api.writes[num_writes:] == [("create", "/api/v1/namespaces/team/pods")]


def test_counts_go_on_from_what_was_published(masters):
    masters.next()
    masters.job.publish(running())
    board = StatusBoard.open(masters.job.job.spec, masters.next())
    assert (board.worker_failures, board.lost[WORKER], board.master_restarts) == (2, 3, 2)


def test_what_was_published_of_another_job_of_the_name_is_none(masters):
    masters.next()
    masters.job.publish(running(FIRST))
    labels = {"metadata": {"labels": {"elastic-submission": "earlier"}}}
    masters.job.cluster.patch(STATUS, labels)
    runner = masters.next()
    assert runner.last_status() is None
    assert runner.observe() == []


def test_a_fenced_master_makes_and_removes_no_pod_and_tells_no_status(masters, api):
    runner = masters.next()
    runner.launch(FIRST)
    masters.job.run(POD)
    masters.fence.is_open = False
    num_writes = len(api.writes)
    runner.launch(SECOND)
    with pytest.raises(FencedError):
        runner.delete(FIRST, 0.0)
    with pytest.raises(FencedError):
        runner.publish_status(running().entering(JobPhase.SUCCEEDED, "", "", ended_s=2.0))
    runner.wait(0.1)
    assert api.writes[num_writes:] == []
    masters.fence.is_open = True
    eventually(lambda: moved_on(runner) and len(masters.job.pods()) == 2)
    masters.fence.is_open = False
    num_writes = len(api.writes)
    runner.end_all()
    assert api.writes[num_writes:] == []
    assert len(masters.job.pods()) == 2


def test_a_master_that_leaves_and_has_ended_all_makes_no_pod_any_more(masters):
    """Its fleet sees them gone as long as the process still runs, and launches the next."""
    runner = masters.next()
    runner.launch(FIRST)
    masters.job.run(POD)
    runner.end_all()
    assert masters.job.pods() == {}
    runner.launch(ReplicaId(WORKER, 0, 2))
    runner.launch(SECOND)
    runner.wait(0.1)
    assert masters.job.pods() == {}


def test_a_pod_of_another_resource_of_the_name_is_left_alone(masters):
    """One was deleted, and made again under its name, before its workers were gone."""
    masters.next().launch(FIRST)
    path = f"/api/v1/namespaces/team/pods/{POD}"
    masters.job.cluster.patch(path, {"metadata": {"labels": {"elastic-submission": "earlier"}}})
    runner = masters.next()
    assert runner.observe() == []
    runner.launch(ReplicaId(WORKER, 0, 2))
    [waiting] = runner.observe()
    assert waiting.message.startswith("waits until")
    assert masters.job.pods() == {POD: 1}


def test_workers_are_collected_when_resource_and_master_are_gone(masters):
    runner = masters.next()
    runner.launch(FIRST)
    masters.job.lose_master()
    assert masters.job.pods() == {POD: 1}
    masters.job.cluster.delete("/apis/elastic.dev/v1/namespaces/team/elastictrainjobs/j")
    eventually(lambda: masters.job.names() == [])
