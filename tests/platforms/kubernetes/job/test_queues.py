"""A job is put into a queue: who has it, what is made before the first pod, what is refused."""

import pytest
from support.api_objects import Place, RefusalError
from support.api_server_in_memory import InMemoryApi
from support.kueue_in_memory import VERSION, Kueue
from support.making_order import order_of_making

from elastic.errors import JobSpecError, PlatformError
from elastic.platforms.base import ReplicaId
from elastic.platforms.kubernetes.api.resources import CONFIGMAPS, PODS, Resource
from elastic.platforms.kubernetes.job.platform import KubernetesPlatform
from elastic.platforms.kubernetes.objects.manifests import replica_pod, submission_of
from elastic.platforms.kubernetes.objects.names import (
    KAI_QUEUES,
    KUEUE_QUEUES,
    NATIVE_GROUPS,
    VOLCANO_GROUPS,
    Owner,
    QueueSystem,
)
from elastic.platforms.kubernetes.objects.podspec import Job
from elastic.spec.job import JobSpec

LABEL = "kueue.x-k8s.io/queue-name"
QUEUES = KUEUE_QUEUES[0]
WORKLOADS = Resource("kueue.x-k8s.io", VERSION, "workloads", "Workload")


class World:
    """A namespace, in the order in which objects are made there."""

    def __init__(self, api):
        self.api = api
        self.made = order_of_making(api)
        self.platform = KubernetesPlatform(api.cluster(), "team")

    def submit(self, queue="team-a", **settings):
        spec = JobSpec(
            job_name="j", model_zoo="z", model_def="m.C", training_data_dir="d", minibatch_size=1,
            num_workers="2:3", image="image", queue=queue, **settings,
        )  # fmt: skip
        self.platform.submit(spec)

    def all(self, resource):
        place = Place(resource.group, resource.version, resource.plural, "team")
        return {each["metadata"]["name"]: each for each in self.api.objects.list(place)[0]}

    def add_queue(self, name="team-a"):
        place = Place(QUEUES.group, QUEUES.version, QUEUES.plural, "team", name)
        self.api.objects.create(place, {"metadata": {"name": name}})


@pytest.fixture
def world():
    with InMemoryApi() as api:
        yield World(api)


@pytest.mark.parametrize(
    ("groups", "queue", "spec"),
    [
        (NATIVE_GROUPS, "default", {"schedulingPolicy": {"gang": {"minCount": 2}}}),
        (VOLCANO_GROUPS, "team-a", {"minMember": 2, "queue": "team-a"}),
    ],
    ids=["native", "volcano"],
)
def test_the_group_is_there_before_any_pod_and_goes_with_the_master(world, groups, queue, spec):
    world.api.serve(groups)
    world.submit(queue)
    [group] = world.all(groups).values()
    plurals = [plural for plural, _ in world.made]
    assert plurals.index("podgroups") < plurals.index("pods")
    assert group["spec"] == spec
    assert group["metadata"]["labels"][LABEL] == queue
    [owner] = group["metadata"]["ownerReferences"]
    assert owner["uid"] == world.all(PODS)["elastic-j-master"]["metadata"]["uid"]


@pytest.mark.parametrize(
    ("served", "queue", "system"),
    [
        ([QUEUES, VOLCANO_GROUPS, NATIVE_GROUPS], "team-a", QueueSystem.KUEUE),
        ([KUEUE_QUEUES[1]], "team-a", QueueSystem.KUEUE),
        ([VOLCANO_GROUPS, NATIVE_GROUPS], "default", QueueSystem.VOLCANO),
        ([KAI_QUEUES], "team-a", QueueSystem.KAI),
        ([NATIVE_GROUPS], "default", QueueSystem.NATIVE),
    ],
)
def test_discovery_decides_and_the_master_is_told(world, served, queue, system):
    world.api.serve(*served)
    world.api.deny("localqueues")
    world.submit(queue)
    record = world.all(CONFIGMAPS)["elastic-j"]
    assert submission_of(record).queue_system is system
    labels = [each["metadata"]["labels"] for each in (record, *world.all(PODS).values())]
    assert [each[LABEL] for each in labels] == [queue] * 2


def test_without_a_queue_nothing_is_asked_and_nothing_is_said(world):
    world.api.serve(QUEUES, VOLCANO_GROUPS, NATIVE_GROUPS)
    world.submit("")
    assert [plural for plural, _ in world.made] == ["configmaps", "secrets", "services", "pods"]
    assert LABEL not in str([*world.all(PODS).values(), *world.all(CONFIGMAPS).values()])


@pytest.mark.parametrize(
    ("served", "queue", "words"),
    [
        ([], "team-a", "--queue=team-a is not known here: this cluster has no queues"),
        ([NATIVE_GROUPS], "team-a", "ask for 'default'"),
        ([QUEUES], "team-b", "namespace 'team' has no LocalQueue of that name"),
    ],
)
def test_refusals_leave_nothing_behind(world, served, queue, words):
    world.api.serve(*served)
    world.add_queue()
    world.made.clear()
    with pytest.raises(JobSpecError, match=words):
        world.submit(queue)
    assert world.made == []


def test_a_group_that_may_not_be_made_is_told_and_leaves_nothing_behind(world):
    world.api.serve(VOLCANO_GROUPS)
    world.api.deny("podgroups", "create")
    with pytest.raises(PlatformError, match="not permitted: podgroups is forbidden"):
        world.submit()
    assert [world.all(each) for each in (CONFIGMAPS, PODS)] == [{}, {}]


@pytest.mark.parametrize("has_room", [True, False], ids=["running", "waiting"])
def test_a_job_whose_master_is_lost_is_killed_and_none_of_its_pods_is_held(world, has_room):
    world.api.serve(QUEUES, WORKLOADS)
    world.add_queue()
    kueue = Kueue(world.api)
    world.submit()
    kueue.settle()
    kueue.has_room = has_room
    [master] = world.all(PODS).values()
    uid = submission_of(world.all(CONFIGMAPS)["elastic-j"]).uid
    spec = world.platform.spec("j")
    job = Job(spec, "team", uid, "image", queue_system=QueueSystem.KUEUE)
    for index in range(2):
        pod = replica_pod(job, ReplicaId("worker", index, 1), Owner.of(master))
        world.api.cluster().create(PODS.path("team"), pod)
    kueue.settle()
    kueue.fail("elastic-j-master")
    world.platform.kill("j", 20.0, on_wait=lambda _: kueue.settle())
    assert world.all(PODS) == {}
    workload = Place(WORKLOADS.group, VERSION, "workloads", "team", f"elastic-j-{uid[:8]}")
    with pytest.raises(RefusalError):
        world.api.objects.get(workload)
