"""The pods of a job in a queue, from the first worker to the last: with Kueue, and with groups."""

import pytest
from support.api_objects import Place, RefusalError
from support.api_server_in_memory import InMemoryApi
from support.cluster import eventually
from support.kueue_in_memory import VERSION, Kueue

from elastic.platforms.base import ExitReason, ReplicaId, ReplicaPhase
from elastic.platforms.kubernetes.api.resources import Resource
from elastic.platforms.kubernetes.master.runner import KubernetesReplicaRunner
from elastic.platforms.kubernetes.objects.manifests import master_pod
from elastic.platforms.kubernetes.objects.names import Owner, QueueSystem
from elastic.platforms.kubernetes.objects.podspec import Job
from elastic.spec.job import JobSpec
from elastic.spec.status import JobPhase, JobStatus

SPEC = JobSpec(
    job_name="j", model_zoo="z", model_def="m.C", training_data_dir="d", minibatch_size=1,
    num_workers="2:3", queue="team-a",
)  # fmt: skip
JOB = Job(SPEC, "team", "0123456789", "image", queue_system=QueueSystem.KUEUE)
GROUP = "elastic-j-01234567"
WORKLOADS = Resource("kueue.x-k8s.io", VERSION, "workloads", "Workload")


def worker(index, launch=1):
    return ReplicaId("worker", index, launch)


class World:
    """A master in a cluster that has Kueue."""

    def __init__(self, api, tmp_path):
        api.serve(WORKLOADS)
        self.api = api
        self.kueue = Kueue(api)
        master = api.objects.create(_place("elastic-j-master"), master_pod(JOB))
        owner = Owner.of(master)
        self.runner = KubernetesReplicaRunner(api.cluster(), JOB, owner, tmp_path)
        self.runner.start()

    def start_workers(self):
        for index in range(3):
            self.runner.launch(worker(index))
        self.settle()

    def settle(self):
        self.kueue.settle()
        self.runner.wait(0.05)
        self.kueue.settle()

    def phases(self):
        return {each.id: each.phase for each in self.runner.observe()}

    def until(self, **phases):
        """Wait until the master sees these phases, by `w0_2`: index and launch."""
        wanted = {
            worker(*map(int, name.removeprefix("w").split("_"))): phase
            for name, phase in phases.items()
        }

        def is_so():
            self.settle()
            return wanted.items() <= self.phases().items()

        eventually(is_so)

    def names(self):
        names = [pod["metadata"]["name"] for pod in self.kueue.pods()]
        return sorted(name.removeprefix("elastic-j-") for name in names)

    def has_workload(self):
        try:
            place = Place("kueue.x-k8s.io", VERSION, "workloads", "team", GROUP)
            return bool(self.api.objects.get(place))
        except RefusalError:
            return False


def _place(name=""):
    return Place("", "v1", "pods", "team", name)


@pytest.fixture
def world(tmp_path):
    with InMemoryApi() as api:
        world = World(api, tmp_path)
        yield world
        world.runner.close()


def test_the_minimum_starts_together_and_the_rest_by_itself(world):
    world.runner.launch(worker(2))
    world.runner.launch(worker(1))
    world.until(w2_1=ReplicaPhase.RUNNING)
    assert world.phases()[worker(1)] is ReplicaPhase.PENDING, "half of a group is not admitted"
    world.runner.launch(worker(0))
    world.until(w0_1=ReplicaPhase.RUNNING, w1_1=ReplicaPhase.RUNNING)
    assert world.names() == ["master", "worker-0-1", "worker-1-1", "worker-2"]


def test_what_waits_says_so_and_in_which_queue(world):
    world.kueue.has_room = False
    world.start_workers()
    seen = world.runner.observe()
    assert [each.is_queued for each in seen] == [True] * 3
    assert {each.message for each in seen} == {"waits in queue team-a"}


def test_one_of_the_group_is_replaced_under_another_name_and_lets_the_old_one_go(world):
    world.start_workers()
    world.until(w0_1=ReplicaPhase.RUNNING)
    world.kueue.fail("elastic-j-worker-0-1")
    world.until(w0_1=ReplicaPhase.FAILED)
    world.runner.launch(worker(0, 2))
    world.until(w0_2=ReplicaPhase.RUNNING)
    assert world.names() == ["master", "worker-0-2", "worker-1-1", "worker-2"]
    assert world.phases()[worker(1)] is ReplicaPhase.RUNNING


def test_one_beyond_it_is_replaced_under_its_own(world):
    world.start_workers()
    world.until(w2_1=ReplicaPhase.RUNNING)
    world.kueue.fail("elastic-j-worker-2")
    world.until(w2_1=ReplicaPhase.FAILED)
    world.runner.launch(worker(2, 2))
    world.until(w2_2=ReplicaPhase.RUNNING)
    assert world.names() == ["master", "worker-0-1", "worker-1-1", "worker-2"]


def test_an_evicted_group_waits_as_at_first_and_its_end_is_the_clusters_doing(world):
    world.start_workers()
    world.until(w0_1=ReplicaPhase.RUNNING, w1_1=ReplicaPhase.RUNNING)
    world.kueue.evict(GROUP)
    world.until(w0_1=ReplicaPhase.FAILED, w1_1=ReplicaPhase.FAILED)
    ended = {each.id: each for each in world.runner.observe()}
    for index in (0, 1):
        assert ended[worker(index)].exit_reason is ExitReason.KILLED
        assert ended[worker(index)].message.startswith("Preempted: to make room")
        world.runner.launch(worker(index, 2))
    world.settle()
    assert world.names() == ["master", "worker-0-2", "worker-1-2", "worker-2"]
    waiting = {each.id: each for each in world.runner.observe()}
    assert [waiting[worker(index, 2)].is_queued for index in (0, 1)] == [True, True]
    world.kueue.has_room = True
    world.until(w0_2=ReplicaPhase.RUNNING, w1_2=ReplicaPhase.RUNNING)


@pytest.mark.parametrize("has_room", [True, False], ids=["running", "waiting"])
def test_workers_whose_master_leaves_are_not_held(world, has_room):
    world.kueue.has_room = has_room
    world.start_workers()
    world.runner.end_all()
    world.settle()
    assert world.names() == ["master"]
    assert not world.has_workload()


@pytest.mark.parametrize(
    ("phase", "is_held"), [(JobPhase.FAILED, False), (JobPhase.SUCCEEDED, True)]
)
def test_a_job_that_has_not_succeeded_gives_its_room_back_at_once(world, phase, is_held):
    world.start_workers()
    world.until(w0_1=ReplicaPhase.RUNNING)
    world.runner.publish_status(JobStatus(job_name="j", phase=phase))
    assert world.has_workload() is is_held
    for index in (0, 1):
        world.kueue.fail(f"elastic-j-worker-{index}-1", 0) if is_held else None
    world.settle()
    # What ended well is counted by Kueue itself, and its pods stay for their logs.
    assert ("worker-0-1" in world.names()) is is_held
    assert (GROUP in world.kueue.finished) is is_held
