"""Jobs of the controller's kinds in queues: in which order what is made, and who is let go."""

import threading
from contextlib import contextmanager

import pytest
from support.api_objects import Place, RefusalError
from support.api_server_in_memory import InMemoryApi
from support.kueue_in_memory import GROUP, LAST, QUEUE, VERSION, Kueue
from support.making_order import order_of_making
from support.toy_kind import PAUSES, is_quiet, soon

from elastic.cli.main import main
from elastic.controller.assembly import assembled
from elastic.controller.inspection.kinds import parse_reference
from elastic.controller.inspection.objects import Objects, kill
from elastic.controller.installing import everything_but_groups, job_rules, queue_rules
from elastic.controller.kinds.common import Queues
from elastic.controller.kinds.elastic_job import ElasticJobs
from elastic.controller.kinds.elastic_train_job import ElasticTrainJobs
from elastic.controller.kinds.training_job import TrainingJobs
from elastic.controller.machinery.engine import Engine
from elastic.controller.machinery.informers import JobKey
from elastic.controller.machinery.writing import Farewell
from elastic.platforms.base import JobControl, ReplicaId
from elastic.platforms.kubernetes.api.cluster import may
from elastic.platforms.kubernetes.api.resources import BATCH_JOBS, CONFIGMAPS, PODS, REPLICA_SETS
from elastic.platforms.kubernetes.objects import names
from elastic.platforms.kubernetes.objects.manifests import (
    dump_control,
    replica_pod,
    spec_of,
    submission_of,
)
from elastic.platforms.kubernetes.objects.names import (
    GROUPS,
    KUEUE_QUEUES,
    KUEUE_WORKLOADS,
    Owner,
    QueueSystem,
    groups_among,
)
from elastic.platforms.kubernetes.objects.podspec import Job

TEAM = "team"
GROUP_SPECS = {
    QueueSystem.NATIVE: ("default", lambda n: {"schedulingPolicy": {"gang": {"minCount": n}}}),
    QueueSystem.VOLCANO: ("team-a", lambda n: {"minMember": n, "queue": "team-a"}),
}


class World:
    """An API server with queues, in the order in which objects are made there."""

    def __init__(self, api):
        self.api = api
        self.made = order_of_making(api)

    @contextmanager
    def engine(self, kind):
        self.api.serve(kind.resource, *kind.children, *kind.unwatched)
        engine = Engine(self.api.cluster(patience_s=0.2), [kind], TEAM, 2, PAUSES)
        engine.start()
        try:
            yield engine
        finally:
            engine.stop()

    def place(self, resource, name="", part=""):
        return Place(resource.group, resource.version, resource.plural, TEAM, name, part)

    def submit(self, kind, spec, queue="team-a"):
        resource = kind.resource
        labels = {QUEUE: queue} if queue else {}
        metadata = {"name": "j", "namespace": TEAM, "labels": labels}
        manifest = {"apiVersion": resource.api_version, "kind": resource.kind}
        self.api.objects.create(
            self.place(resource, "j"), {**manifest, "metadata": metadata, "spec": spec}
        )

    def edit(self, resource, change, name="j", part=""):
        self.api.objects.merge(self.place(resource, name, part), change)

    def status(self, kind):
        return self.api.objects.get(self.place(kind.resource, "j")).get("status") or {}

    def all(self, resource):
        items, _ = self.api.objects.list(self.place(resource))
        return {each["metadata"]["name"]: each for each in items}

    def events(self, reason):
        items, _ = self.api.objects.list(Place("", "v1", "events"))
        return [each["message"] for each in items if each["reason"] == reason]


@pytest.fixture
def world():
    with InMemoryApi() as api:
        yield World(api)


def elastic_job(replicas=3, least=2, policy="OnFailure", **fields):
    container = {"name": "main", "image": "torch"}
    worker = {"replicas": replicas, "restartPolicy": policy}
    worker["template"] = {"spec": {"containers": [container]}}
    spec = {"rdzvEndpoint": "etcd:2379", "minReplicas": least, "maxReplicas": 5}
    return {**spec, "replicaSpecs": {"Worker": worker}, **fields}


def training_job(trainers=2):
    roles = {"pserver": 1, "trainer": trainers}
    return {name: {"min-instance": n, "max-instance": n} for name, n in roles.items()}


def train_job(workers="2:3", **fields):
    job = {"model_def": "m.C", "training_data_dir": "/d", "minibatch_size": 1}
    return {"image": "digits:1", "job": {**job, "num_workers": workers}, **fields}


KINDS = [(ElasticJobs, elastic_job), (TrainingJobs, training_job), (ElasticTrainJobs, train_job)]


def kind_with(make, *systems):
    queues = Queues(systems, KUEUE_WORKLOADS[0] if QueueSystem.KUEUE in systems else None)
    return make(queues=queues)


@pytest.mark.parametrize("system", GROUPS)
def test_the_group_of_an_elastic_job_is_there_before_its_pods_and_follows_its_minimum(
    world, system
):
    kind, (queue, spec) = kind_with(ElasticJobs, system), GROUP_SPECS[system]
    with world.engine(kind) as engine:
        world.submit(kind, elastic_job(), queue)
        soon(lambda: len(world.all(PODS)) == 3)
        is_quiet(engine, world.api)
        [(name, group)] = world.all(GROUPS[system]).items()
        assert group["spec"] == spec(2)
        plurals = [plural for plural, _ in world.made]
        assert plurals.index("podgroups") < plurals.index("pods")
        assert all(name in str(pod) for pod in world.all(PODS).values())
        world.edit(kind.resource, {"spec": {"minReplicas": 3}})
        soon(lambda: world.all(GROUPS[system])[name]["spec"] == spec(3))
        is_quiet(engine, world.api)
    assert plurals.count("podgroups") == 1


@pytest.mark.parametrize("system", GROUPS)
def test_the_group_of_trainers_is_there_before_their_job(world, system):
    kind, (queue, spec) = kind_with(TrainingJobs, system), GROUP_SPECS[system]
    with world.engine(kind):
        world.submit(kind, training_job(), queue)
        job = until_trainers_are_made(world)
    [(name, group)] = world.all(GROUPS[system]).items()
    assert group["spec"] == spec(2)
    plurals = [plural for plural, _ in world.made]
    assert plurals.index("podgroups") < plurals.index("jobs")
    assert name in str(job["spec"]["template"])
    assert "suspend" not in job["spec"]


def until_trainers_are_made(world):
    """Have the parameter server run, and wait for the Job."""
    soon(lambda: "j-pserver" in world.all(REPLICA_SETS))
    [servers] = world.all(REPLICA_SETS).values()
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "j-pserver"}
    owner |= {"uid": servers["metadata"]["uid"], "controller": True}
    metadata = {"name": "p", "labels": {"paddle-job-pserver": "j"}, "ownerReferences": [owner]}
    world.api.objects.create(world.place(PODS, "p"), {"metadata": metadata, "spec": {}})
    ready = [{"type": "Ready", "status": "True"}]
    status = {"phase": "Running", "conditions": ready}
    world.edit(PODS, {"status": status}, "p", "status")
    return soon(lambda: world.all(BATCH_JOBS).get("j-trainer"))


def test_in_kueue_trainers_wait_by_suspend_and_the_field_is_kueues_from_then_on(world):
    kind = kind_with(TrainingJobs, QueueSystem.KUEUE)
    with world.engine(kind) as engine:
        world.submit(kind, training_job())
        job = until_trainers_are_made(world)
        assert job["spec"]["suspend"] is True
        assert job["metadata"]["labels"][QUEUE] == "team-a"
        assert "kueue" not in str(job["spec"]["template"]), "its pods would be gated once more"
        assert QUEUE not in str(world.all(REPLICA_SETS))
        for suspend in (False, True):
            world.edit(BATCH_JOBS, {"spec": {"suspend": suspend}}, "j-trainer")
            world.edit(kind.resource, {"spec": training_job(3 + suspend)})
            soon(lambda n=3 + suspend: trainers(world)["parallelism"] == n)
            assert trainers(world)["suspend"] is suspend
        is_quiet(engine, world.api)
        assert world.status(kind)["phase"] == "creating"


def trainers(world):
    return world.all(BATCH_JOBS)["j-trainer"]["spec"]


class Queued:
    """An ElasticJob in Kueue, whose pods a node runs."""

    def __init__(self, world, **fields):
        self.world = world
        self.kueue = Kueue(world.api)
        self.kind = kind_with(ElasticJobs, QueueSystem.KUEUE)
        world.submit(self.kind, elastic_job(**fields))
        uid = world.api.objects.get(world.place(self.kind.resource, "j"))["metadata"]["uid"]
        self.group = f"j-{uid[:8]}"

    def until(self, is_so):
        def look():
            self.kueue.settle()
            return is_so()

        return soon(look)

    def phases(self):
        pods = self.world.all(PODS)
        return {name.removeprefix("j-"): pod["status"]["phase"] for name, pod in pods.items()}

    def until_phases(self, **phases):
        wanted = {name.replace("_", "-"): phase for name, phase in phases.items()}
        self.until(lambda: self.phases() == wanted)


def test_a_worker_of_the_group_is_replaced_though_kueue_holds_the_old_one(world):
    job = Queued(world)
    with world.engine(job.kind):
        job.until_phases(worker_0="Running", worker_1="Running", worker_2="Running")
        job.kueue.fail("j-worker-1")
        job.kueue.fail("j-worker-2")
        job.until_phases(worker_0="Running", worker_1_1="Running", worker_2="Running")
    assert world.status(job.kind)["restartCount"] == 2


def test_an_evicted_job_waits_as_at_first_and_is_charged_nothing(world):
    job = Queued(world, backoffLimit=0)
    with world.engine(job.kind):
        job.until_phases(worker_0="Running", worker_1="Running", worker_2="Running")
        job.kueue.evict(job.group)
        job.until_phases(worker_0_1="Pending", worker_1_1="Pending", worker_2="Running")
        gated = [pod for pod in job.kueue.pods() if pod["spec"].get("schedulingGates")]
        assert len(gated) == 2
        job.kueue.has_room = True
        job.until_phases(worker_0_1="Running", worker_1_1="Running", worker_2="Running")
        soon(lambda: world.status(job.kind)["phase"] == "Running")
    assert world.status(job.kind).get("restartCount", 0) == 0


def test_a_job_that_has_failed_gives_its_room_back_and_keeps_its_pods(world):
    job = Queued(world, backoffLimit=0, replicas=2)
    with world.engine(job.kind):
        job.until_phases(worker_0="Running", worker_1="Running")
        for index in (0, 1):
            job.kueue.fail(f"j-worker-{index}")
        job.until(lambda: job.group in job.kueue.finished)
    assert world.status(job.kind)["phase"] == "Failed"
    assert job.phases() == {"worker-0": "Failed", "worker-1": "Failed"}
    told = [pod["metadata"]["annotations"].get(LAST) for pod in job.kueue.pods()]
    assert "false" in told
    assert not any(pod["metadata"].get("finalizers") for pod in job.kueue.pods())


@pytest.mark.parametrize("has_room", [True, False], ids=["running", "waiting"])
@pytest.mark.parametrize("is_away", [False, True], ids=["watched", "while the controller is away"])
@pytest.mark.parametrize("made", ["elastic job", "train job"])
def test_a_deleted_job_leaves_no_pods_that_kueue_holds(world, made, is_away, has_room):
    job = Queued(world) if made == "elastic job" else Trained(world, QueueSystem.KUEUE)
    world.api.serve(KUEUE_WORKLOADS[0])
    with world.engine(job.kind):
        if made == "train job":
            soon(lambda: job.master)
            job.launch(0, 1)
        job.until(lambda: len(job.phases()) == 3 and set(job.phases().values()) == {"Running"})
        if not has_room:
            job.kueue.evict(groups_among(job.kueue.pods())[0])
            job.kueue.settle()
        if not is_away:
            world.api.objects.delete(world.place(job.kind.resource, "j"), {})
            job.until(lambda: job.phases() == {})
            return
    world.api.objects.delete(world.place(job.kind.resource, "j"), {})
    job.kueue.settle()
    assert job.phases() != {}, "they are held, and nobody lets go of them"
    with world.engine(job.kind):
        job.until(lambda: job.phases() == {})


def test_a_pod_that_is_deleted_is_replaced_and_no_reason_to_leave_the_queue(world):
    job = Queued(world)
    with world.engine(job.kind) as engine:
        job.until_phases(worker_0="Running", worker_1="Running", worker_2="Running")
        world.api.objects.delete(world.place(PODS, "j-worker-1"), {"gracePeriodSeconds": 30})
        job.until_phases(worker_0="Running", worker_1_1="Running", worker_2="Running")
        is_quiet(engine, world.api)
    deleted = [path for verb, path in world.api.requests if verb == "delete"]
    assert not [path for path in deleted if "workloads" in path]


@pytest.mark.parametrize(("make", "spec"), KINDS)
@pytest.mark.parametrize(
    ("systems", "queue", "words"),
    [
        ((), "team-a", "this cluster has no queues"),
        ((QueueSystem.NATIVE,), "team-a", "ask for 'default'"),
    ],
)
def test_a_queue_that_is_not_there_fails_a_new_job_and_says_why(
    world, make, spec, systems, queue, words
):
    kind = kind_with(make, *systems)
    with world.engine(kind) as engine:
        world.submit(kind, spec(), queue)
        soon(lambda: str(world.status(kind).get("phase")).lower() == "failed")
        is_quiet(engine, world.api)
    told = str(world.status(kind))
    assert f"metadata.labels.{QUEUE}={queue} " in told
    assert words in told
    assert [plural for plural, _ in world.made if plural != "events"] == [kind.resource.plural]


@pytest.mark.parametrize(("make", "spec"), KINDS)
def test_a_job_that_has_begun_does_not_end_with_its_queue(world, make, spec):
    kind = kind_with(make, QueueSystem.KUEUE)
    with world.engine(kind):
        world.submit(kind, spec())
        soon(lambda: {plural for plural, _ in world.made} - {kind.resource.plural, "events"})
        soon(lambda: world.status(kind).get("phase") not in (None, ""))
    later = kind_with(make)
    with world.engine(later) as engine:
        is_quiet(engine, world.api)
    assert str(world.status(kind)["phase"]).lower() != "failed"


class Trained:
    """An ElasticTrainJob in a queue, whose master is the test."""

    def __init__(self, world, system, **fields):
        self.world = world
        self.kind = kind_with(ElasticTrainJobs, system)
        world.api.serve(KUEUE_WORKLOADS[0])
        self.kueue = Kueue(world.api) if system is QueueSystem.KUEUE else None
        queue = "default" if system is QueueSystem.NATIVE else "team-a"
        world.submit(self.kind, train_job(queue=queue, **fields), "")

    def look(self):
        if self.kueue is not None:
            self.kueue.settle()

    def until(self, is_so):
        def look():
            self.look()
            return is_so()

        return soon(look)

    @property
    def master(self):
        return self.world.all(PODS).get("elastic-j-master")

    def job(self):
        """As its master has it."""
        record = self.world.all(CONFIGMAPS)["elastic-j"]
        submission = submission_of(record)
        return Job(
            spec_of(record), TEAM, submission.uid, submission.image, owner=submission.owner,
            queue_system=submission.queue_system,
        )  # fmt: skip

    def launch(self, *indexes, launch=1):
        for index in indexes:
            pod = replica_pod(self.job(), ReplicaId("worker", index, launch), Owner.of(self.master))
            self.world.api.cluster().create(PODS.path(TEAM), pod)

    def phases(self):
        pods = self.world.all(PODS)
        return {
            name.removeprefix("elastic-j-"): pod["status"]["phase"] for name, pod in pods.items()
        }


@pytest.mark.parametrize("system", GROUPS)
def test_the_group_of_a_train_job_is_there_before_its_master_and_as_it_is_to_be(world, system):
    _, spec = GROUP_SPECS[system]
    job = Trained(world, system)
    with world.engine(job.kind) as engine:
        soon(lambda: job.master)
        [(name, group)] = world.all(GROUPS[system]).items()
        assert group["spec"] == spec(2)
        [owner] = group["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("ElasticTrainJob", "j")
        plurals = [plural for plural, _ in world.made]
        assert plurals.index("configmaps") < plurals.index("podgroups") < plurals.index("pods")
        job.launch(0)
        assert name in str(world.all(PODS)["elastic-j-worker-0"])
        world.edit(GROUPS[system], {"spec": spec(7)}, name)
        soon(lambda: world.all(GROUPS[system])[name]["spec"] == spec(2))
        world.api.objects.delete(world.place(GROUPS[system], name), {})
        soon(lambda: world.all(GROUPS[system]))
        is_quiet(engine, world.api)
        assert world.status(job.kind)["phase"] == "Pending"


@pytest.mark.parametrize("system", QueueSystem)
def test_a_train_job_is_recorded_with_its_queue_and_its_master_is_in_it(world, system):
    job = Trained(world, system)
    with world.engine(job.kind):
        soon(lambda: job.master)
        queue = "default" if system is QueueSystem.NATIVE else "team-a"
        assert job.job().queue_system is system
        assert job.master["metadata"]["labels"][QUEUE] == queue
        schedulers = {QueueSystem.VOLCANO: "volcano", QueueSystem.KAI: "kai-scheduler"}
        assert job.master["spec"].get("schedulerName") == schedulers.get(system)
        assert GROUP not in job.master["metadata"]["labels"], "it is admitted alone"


@pytest.mark.parametrize("field", ["spec.queue", "spec.job.queue", "label"])
def test_a_train_job_names_its_queue_in_one_of_three_places(world, field):
    kind, spec = kind_with(ElasticTrainJobs), train_job()
    if field == "spec.queue":
        spec["queue"] = "team-a"
    elif field == "spec.job.queue":
        spec["job"]["queue"] = "team-a"
    named = f"metadata.labels.{QUEUE}" if field == "label" else field
    with world.engine(kind):
        world.submit(kind, spec, "team-a" if field == "label" else "")
        soon(lambda: world.status(kind).get("phase") == "Failed")
    assert world.status(kind)["message"].startswith(f"{named}=team-a is not known here")


def test_a_train_job_that_names_two_queues_is_failed_with_both(world):
    kind = kind_with(ElasticTrainJobs, QueueSystem.KUEUE)
    with world.engine(kind):
        world.submit(kind, train_job(queue="team-b"), "team-a")
        soon(lambda: world.status(kind).get("phase") == "Failed")
    told = world.status(kind)["message"]
    assert "spec.queue is 'team-b'" in told
    assert f"{QUEUE} is 'team-a'" in told


QUEUES = KUEUE_QUEUES[0]
SEEING = Queues((QueueSystem.KUEUE,), KUEUE_WORKLOADS[0], QUEUES)


def told_missing(status):
    """What the status of a job says of a queue that is not there; None where it says nothing."""
    conditions = {each["type"]: each for each in status.get("conditions", ())}
    if condition := conditions.get("QueueMissing"):
        return condition["message"] if condition["status"] == "True" else None
    return status.get("reason") if "LocalQueue" in status.get("reason", "") else None


@pytest.mark.parametrize(("make", "spec"), KINDS)
def test_a_job_whose_queue_is_not_there_is_told_so_and_goes_on_when_it_comes(world, make, spec):
    world.api.serve(QUEUES)
    kind = make(queues=SEEING)

    def told():
        return told_missing(world.status(kind))

    with world.engine(kind) as engine:
        world.submit(kind, spec())
        soon(lambda: world.events("QueueMissing") and told())
        [text] = world.events("QueueMissing")
        assert text == told()
        is_quiet(engine, world.api)
        metadata = {"name": "team-a", "namespace": TEAM}
        world.api.objects.create(world.place(QUEUES), {"metadata": metadata})
        soon(lambda: world.events("QueueFound") and not told())
        is_quiet(engine, world.api)
        world.api.objects.delete(world.place(QUEUES, "team-a"), {})
        soon(told)
    assert set(world.events("QueueMissing")) == {text}
    assert text.startswith("queue=team-a is not there: namespace team has no LocalQueue")
    assert "kubectl get localqueues -n team" in text


@pytest.mark.parametrize(("make", "spec"), KINDS)
@pytest.mark.parametrize("queue", ["", "team-a"])
def test_a_job_whose_queue_is_there_or_that_asks_for_none_is_told_nothing(world, make, spec, queue):
    world.api.serve(QUEUES)
    world.api.objects.create(world.place(QUEUES), {"metadata": {"name": "team-a"}})
    kind = make(queues=SEEING)
    with world.engine(kind) as engine:
        world.submit(kind, spec(), queue)
        soon(lambda: world.status(kind).get("phase"))
        is_quiet(engine, world.api)
    assert told_missing(world.status(kind)) is None
    assert world.events("QueueMissing") == world.events("QueueFound") == []


@pytest.mark.parametrize(("make", "spec"), KINDS)
def test_who_may_not_see_queues_looks_after_jobs_and_tells_nothing_of_them(world, make, spec):
    world.api.serve(QUEUES)
    world.api.deny("localqueues")
    kind = make(queues=SEEING)
    with world.engine(kind) as engine:
        world.submit(kind, spec())
        soon(lambda: world.all(PODS) or world.all(REPLICA_SETS))
        assert list(engine.sample().missing) == ["localqueues.kueue.x-k8s.io"]
        assert world.events("QueueMissing") == []
        # None is there, which no change of a queue tells.
        world.api.allow("localqueues")
        soon(lambda: world.events("QueueMissing"))


def test_a_wrong_edit_comes_before_a_queue_that_is_not_there_until_it_is_mended(world):
    world.api.serve(QUEUES)
    kind = TrainingJobs(queues=SEEING)
    with world.engine(kind):
        world.submit(kind, training_job())
        soon(lambda: told_missing(world.status(kind)))
        world.edit(kind.resource, {"spec": {"trainer": {"min-instance": 0}}})
        soon(lambda: "goes on as it was" in world.status(kind)["reason"])
        world.edit(kind.resource, {"spec": {"trainer": {"min-instance": 2}}})
        soon(lambda: told_missing(world.status(kind)))


def test_without_the_right_to_groups_no_pod_of_a_train_job_is_made(world):
    world.api.deny("podgroups", "create")
    job = Trained(world, QueueSystem.VOLCANO)
    with world.engine(job.kind):
        soon(lambda: world.events("FailedCreatePodGroup"))
        assert "forbidden" in world.events("FailedCreatePodGroup")[0]
        assert world.all(PODS) == {}
        world.api.allow("podgroups")
        soon(lambda: job.master)


def test_a_train_job_that_is_suspended_leaves_kueue_and_comes_back(world):
    job = Trained(world, QueueSystem.KUEUE)
    with world.engine(job.kind):
        soon(lambda: job.master)
        job.launch(0, 1)
        running = {"master": "Running", "worker-0-1": "Running", "worker-1-1": "Running"}
        job.until(lambda: job.phases() == running)
        world.edit(job.kind.resource, {"spec": {"suspend": True}})
        job.until(lambda: job.phases() == {})
        soon(lambda: world.status(job.kind)["phase"] == "Suspended")
        world.edit(job.kind.resource, {"spec": {"suspend": False}})
        soon(lambda: job.master)
        job.launch(0, 1, launch=2)
        again = {"master": "Running", "worker-0-2": "Running", "worker-1-2": "Running"}
        job.until(lambda: job.phases() == again)


def test_workers_that_a_lost_master_left_behind_are_not_held_by_kueue(world):
    job = Trained(world, QueueSystem.KUEUE)
    with world.engine(job.kind):
        soon(lambda: job.master)
        job.launch(0, 1)
        job.until(lambda: len(job.phases()) == 3 and set(job.phases().values()) == {"Running"})
        control = {names.CONTROL_KEY: dump_control(JobControl(cancelled=True))}
        world.edit(CONFIGMAPS, {"data": control}, "elastic-j")
        world.api.objects.delete(world.place(PODS, "elastic-j-master"), {})
        job.until(lambda: job.phases() == {})
        assert world.status(job.kind)["phase"] == "Cancelled"
    workload = Place("kueue.x-k8s.io", VERSION, "workloads", TEAM, "")
    assert world.api.objects.list(workload)[0] == []


@pytest.mark.parametrize("used", [(), (QueueSystem.VOLCANO,), tuple(GROUPS)])
def test_rights_to_groups_are_given_where_they_are_used_alone(used):
    parts = assembled()
    kinds = parts.kinds(parts.names(), everything_but_groups(used))
    groups = {
        group
        for rule in job_rules(kinds.values())
        for group in rule["apiGroups"]
        if "podgroups" in rule["resources"]
    }
    assert groups == {GROUPS[system].group for system in used}


def test_elastic_kill_lets_go_of_the_pods_that_kueue_holds_without_a_controller(world):
    job = Queued(world)
    world.api.serve(KUEUE_WORKLOADS[0])
    with world.engine(job.kind):
        job.until_phases(worker_0="Running", worker_1="Running", worker_2="Running")
    objects = Objects(world.api.cluster(), TEAM, tell=lambda _: None)
    reference = parse_reference("elasticjob/j")
    kill(objects, reference, 20.0, on_wait=lambda _: job.kueue.settle())
    assert job.phases() == {}


@pytest.mark.parametrize("queues", [(), ("--queues=kueue",)])
def test_the_command_that_installs_a_controller_gives_the_right_to_end_groups(queues, capsys):
    assert main(["install", "--controller", "-n", TEAM, "--dry_run", *queues]) == 0
    assert ("workloads" in capsys.readouterr().out) is bool(queues)


class Heard:
    """What is heard of pods before anything is of their jobs, as when a controller begins."""

    def __init__(self, world):
        self._world = world

    def leaving_pods(self, _key):
        pods = self._world.all(PODS).values()
        return [pod for pod in pods if "deletionTimestamp" in pod["metadata"]]


def test_a_group_is_ended_only_once_the_api_server_says_that_its_job_is_gone(world):
    job = Queued(world)
    with world.engine(job.kind):
        job.until_phases(worker_0="Running", worker_1="Running", worker_2="Running")
    world.api.objects.delete(world.place(PODS, "j-worker-1"), {"gracePeriodSeconds": 30})
    workload = Place("kueue.x-k8s.io", VERSION, "workloads", TEAM, job.group)
    world.api.serve(KUEUE_WORKLOADS[0])
    farewell = Farewell(world.api.cluster(), Heard(world))
    key = JobKey(job.kind.resource, TEAM, "j")
    farewell.say(key)
    assert world.api.objects.get(workload)
    world.api.objects.delete(world.place(job.kind.resource, "j"), {})
    farewell.say(key)
    with pytest.raises(RefusalError):
        world.api.objects.get(workload)


@pytest.mark.parametrize("used", [(), ("volcano",), ("kueue", "volcano")])
def test_the_rights_that_kueue_takes_are_given_where_it_is_used_alone(used):
    rights = {plural: rule["verbs"] for rule in queue_rules(used) for plural in rule["resources"]}
    wanted = {"workloads": ["delete"], "localqueues": ["list", "watch"]}
    assert rights == (wanted if "kueue" in used else {})


@pytest.mark.parametrize(("allowed", "namespace"), [(True, TEAM), (False, None)])
def test_a_right_is_asked_for_where_the_jobs_are(allowed, namespace):
    asked, answered = [], threading.Event()

    class Asked:
        def create(self, path, review):
            asked.append((path, review["spec"]["resourceAttributes"]))
            answered.set()
            return {"status": {"allowed": allowed}}

    group = GROUPS[QueueSystem.VOLCANO]
    assert may(Asked(), "list", group, namespace) is allowed
    [(path, attributes)] = asked
    assert path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert attributes.get("namespace") == namespace
    assert (attributes["group"], attributes["resource"]) == (group.group, "podgroups")
