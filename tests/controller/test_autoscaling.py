"""The engine with a policy over all jobs, against an API server over HTTP and nodes with room."""

import re
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace

import pytest
from support.api_server_in_memory import InMemoryApi
from support.fitting_kubelet import FittingKubelet
from support.toy_kind import TEAM, World, is_quiet, soon
from support.train_job_world import JOB, resource
from support.workloads_in_memory import Workloads

from elastic.controller.assembly import assembled, everything
from elastic.controller.autoscaling import SCALED, ClusterScaler, Share
from elastic.controller.resources import elastic_job, tf_job, training_job
from elastic.controller.resources.elastic_train_job import RESOURCE as ETJ
from elastic.controller.resources.tf_job import SHARE_PODS
from elastic.controller.settings import Autoscaling
from elastic.controller.snapshots.objects import AUTOSCALED, HELD
from elastic.platforms.kubernetes.api.resources import CONFIGMAPS, PODS, SECRETS, Resource
from elastic.platforms.kubernetes.objects.manifests import (
    control_of,
    dump_control,
    example_pod,
    spec_of,
    submission_of,
)
from elastic.platforms.kubernetes.objects.names import (
    CONTROL_KEY,
    JOB_LABEL,
    STATUS_KEY,
    replica_pod_name,
)
from elastic.platforms.kubernetes.objects.podspec import Job
from elastic.policy.scaling.dragon import Dragon
from elastic.policy.scaling.fulfillment import Fulfillment
from elastic.policy.scaling.goodput import Goodput
from elastic.spec.status import JobPhase, JobStatus, Progress, ScalingStatus, SizeSpeed

PERIOD_S = 0.1
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet")
CPU = {"limits": {"cpu": "1"}}


class Scene:
    """Two nodes of ten cores, on which jobs share what there is."""

    def __init__(self, api, nodes=None):
        self.api = api
        self.kubelet = FittingKubelet(api, nodes or {"n0": 10, "n1": 10}).start()
        self.workloads = Workloads(api).start()
        self.world = World(api, self.kubelet)

    def close(self):
        self.workloads.close()
        self.kubelet.close()

    @contextmanager
    def scheduler(self, starve_after_s=3600.0, grow_after_s=3600.0):
        parts = assembled(Autoscaling(tf_scheduler="dragon"))
        kinds = parts.kinds(["tfjob"], everything)
        dragon = Dragon(starve_after_s, grow_after_s)
        scaler = ClusterScaler([Share(frozenset({"tfjob"}), dragon)], period_s=PERIOD_S)
        with self.world.engine(*kinds.values(), scaler=scaler) as engine:
            yield engine

    def share_pods(self):
        """The node and the card of each."""
        items, _ = self.api.objects.list(self.world.place("", TEAM, SHARE_PODS))
        return [
            (each["spec"]["nodeName"], each["metadata"]["annotations"]["kubeshare/GPUID"])
            for each in items
        ]

    def tf_job(self, name, workers, cpu=1, annotations=None, **limits):
        def role(count):
            resources = {"limits": {"cpu": str(cpu)}}
            main = {"name": "tensorflow", "image": "i", "resources": resources}
            template = {"metadata": {"annotations": annotations or {}}}
            return {"replicas": count, "template": template | {"spec": {"containers": [main]}}}

        spec = {"tfReplicaSpecs": {"PS": role(1), "Worker": role(workers)}}
        spec |= {key.replace("_", "-"): value for key, value in limits.items()}
        self._create(tf_job.RESOURCE, name, spec)

    def seats(self, name):
        """Where the pods of a TFJob run: by node, their names without the job's."""
        items, _ = self.api.objects.list(self.world.place("", TEAM, PODS))
        found = {}
        for pod in items:
            metadata = pod["metadata"]
            is_its = metadata["labels"].get("job-name") == name
            if is_its and "deletionTimestamp" not in metadata:
                short = metadata["name"].removeprefix(f"{name}-")
                found.setdefault(pod["spec"]["nodeName"], set()).add(short)
        return found

    @contextmanager
    def engine(self, hold_s=600.0, policy=None, names=None):
        parts = assembled(Autoscaling("fulfillment"))
        kinds = parts.kinds(names or parts.names(), everything)
        scaler = ClusterScaler(
            [Share(SCALED, policy or Fulfillment(max_load=1.0))], hold_s, PERIOD_S
        )
        with self.world.engine(*kinds.values(), scaler=scaler) as engine:
            yield engine

    def training_job(self, name, low=2, high=20, most_servers=1):
        spec = {
            "fault_tolerant": True,
            "pserver": {"min-instance": 1, "max-instance": most_servers, "resources": CPU},
            "trainer": {"min-instance": low, "max-instance": high, "resources": CPU},
        }
        self._create(training_job.RESOURCE, name, spec)

    def elastic_job(self, name, replicas=1, **limits):
        template = {"spec": {"containers": [{"name": "main", "image": "i", "resources": CPU}]}}
        worker = {"replicas": replicas, "template": template}
        spec = {"rdzvEndpoint": "etcd:2379", "replicaSpecs": {"Worker": worker}, **limits}
        self._create(elastic_job.RESOURCE, name, spec)

    def others(self, size):
        """A ReplicaSet of pods that belong to no job."""
        place = self.world.place("web", TEAM, REPLICA_SETS)
        if size and not self.found(REPLICA_SETS, "web"):
            pod = {"containers": [{"name": "main", "image": "i", "resources": CPU}]}
            template = {"metadata": {"labels": {"app": "web"}}, "spec": pod}
            manifest = {"metadata": {"name": "web", "namespace": TEAM}, "kind": "ReplicaSet"}
            manifest |= {"apiVersion": "apps/v1", "spec": {"replicas": size, "template": template}}
            self.api.objects.create(place, manifest)
        else:
            self.api.objects.merge(place, {"spec": {"replicas": size}})

    def _create(self, resource, name, spec):
        manifest = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        manifest["metadata"] = {"name": name, "namespace": TEAM}
        self.api.objects.create(self.world.place(name, TEAM, resource), manifest)

    def found(self, resource, name):
        items, _ = self.api.objects.list(self.world.place("", TEAM, resource))
        return next((each for each in items if each["metadata"]["name"] == name), None)

    def change(self, resource, name, change):
        self.api.objects.merge(self.world.place(name, TEAM, resource), change)

    def running(self, **labels):
        items, _ = self.api.objects.list(self.world.place("", TEAM, PODS))
        return sum(
            labels.items() <= each["metadata"].get("labels", {}).items()
            and each["status"]["phase"] == "Running"
            and "deletionTimestamp" not in each["metadata"]
            for each in items
        )

    def trainers(self, *names):
        return [self.running(**{"paddle-job": name}) for name in names]

    def servers(self, name):
        return self.running(**{"paddle-job-pserver": name})

    def train_job(self, name, **settings):
        """A resource of a job of ours, which the test plays the master of."""
        job = {**JOB, "autoscale": True, **settings}
        manifest = resource(name, job)
        manifest["metadata"]["namespace"] = TEAM
        self.api.objects.create(self.world.place(name, TEAM, ETJ), manifest)
        soon(lambda: f"elastic-{name}-master" in self.world.pods())

    def record(self, name="night"):
        return self.found(CONFIGMAPS, f"elastic-{name}")

    def control(self, name="night"):
        return control_of(self.record(name))

    def worker_pod(self, record):
        """The first worker of a job of ours, as its master makes it."""
        submission = submission_of(record)
        job = Job(spec_of(record), TEAM, submission.uid, submission.image, owner=submission.owner)
        pod = example_pod(job)
        self.api.objects.create(self.world.place(pod["metadata"]["name"], TEAM, PODS), pod)

    def tell(self, speeds, name="night", phase=JobPhase.RUNNING):
        """What the master of a job of ours publishes, by its speeds."""
        sizes = [SizeSpeed(workers=n, nodes=1, samples_per_s=each) for n, each in speeds.items()]
        told = JobStatus(
            job_name=name,
            phase=phase,
            started_s=1.0,
            progress=Progress(records_done=1000, records_total=1_000_000),
            scaling=ScalingStatus(speeds=tuple(sizes), rescale_s=1.0),
        )
        change = {"data": {STATUS_KEY: told.model_dump_json()}}
        self.change(CONFIGMAPS, f"elastic-{name}-status", change)

    def workers(self, name):
        return self.running(**{"job-name": name})

    def annotations(self, name):
        return self.found(elastic_job.RESOURCE, name)["metadata"]["annotations"]

    def told(self, reason):
        return [each["message"] for each in self.world.events(reason)]


@pytest.fixture
def scene():
    with InMemoryApi() as api:
        scene = Scene(api)
        yield scene
        scene.close()


def test_equal_jobs_share_equally_and_a_third_gets_its_minimum_and_then_its_part(scene):
    with scene.engine():
        scene.training_job("a")
        scene.training_job("b")
        # Twenty cores, less one for the server of each.
        soon(lambda: scene.trainers("a", "b") == [9, 9])
        scene.training_job("c")
        soon(lambda: sorted(scene.trainers("a", "b", "c")) == [5, 6, 6])
    status = scene.found(training_job.RESOURCE, "a")["status"]["scale_status"]["trainer"]
    assert "score" in status["reason"]
    assert any("since +" in text and "idle on n" in text for text in scene.told("Scaled"))


def test_jobs_give_way_to_pods_of_others_and_come_back(scene):
    with scene.engine():
        scene.training_job("a")
        scene.training_job("b")
        soon(lambda: scene.trainers("a", "b") == [9, 9])
        scene.others(8)
        soon(lambda: scene.running(app="web") == 8 and scene.trainers("a", "b") == [5, 5])
        scene.others(0)
        soon(lambda: scene.trainers("a", "b") == [9, 9])


def test_servers_with_a_range_follow_the_trainers_up_and_down(scene):
    def has(trainers, servers):
        return (scene.trainers("a"), scene.servers("a")) == ([trainers], servers)

    with scene.engine():
        scene.training_job("a", 2, 14, most_servers=4)
        soon(lambda: has(14, 4))
        # Of the twelve cores that are left, three are those of servers: nine trainers are seven
        # twelfths of their range, and two servers above one nearest to that part of theirs.
        scene.others(8)
        soon(lambda: has(9, 3))
        scene.others(16)
        soon(lambda: has(3, 1))
        scene.others(0)
        soon(lambda: has(14, 4))
    assert any(text.startswith("a-pserver: replicas from 3 to 1") for text in scene.told("Scaled"))


def test_an_elastic_job_grows_and_each_change_is_an_event_with_its_reason(scene):
    with scene.engine():
        scene.elastic_job("ddp", 1, minReplicas=1, maxReplicas=6)
        soon(lambda: scene.workers("ddp") == 6)
    [text] = scene.told("Autoscaled")
    # Six, where its first worker had no node yet.
    assert re.match(r"from 1 to 6 workers, \+[56]: ", text)
    job = scene.found(elastic_job.RESOURCE, "ddp")
    assert job["metadata"]["annotations"] == {AUTOSCALED: "6"}


def test_a_limit_that_was_left_out_stays_where_it_was(scene):
    with scene.engine():
        scene.elastic_job("ddp", 2, maxReplicas=6)
        soon(lambda: scene.workers("ddp") == 6)
    assert scene.found(elastic_job.RESOURCE, "ddp")["spec"]["minReplicas"] == 2


SMALL = {"spec": {"replicaSpecs": {"Worker": {"replicas": 2}}}}


def test_a_size_that_a_user_has_set_is_left_alone(scene):
    with scene.engine() as engine:
        scene.elastic_job("ddp", 1, minReplicas=1, maxReplicas=6)
        soon(lambda: scene.workers("ddp") == 6)
        scene.change(elastic_job.RESOURCE, "ddp", SMALL)
        soon(lambda: scene.told("Held"))
        # For several looks.
        is_quiet(engine, scene.api, 10 * PERIOD_S)
    assert scene.workers("ddp") == 2


def test_after_a_while_it_may_change_again(scene):
    with scene.engine(hold_s=1.0):
        scene.elastic_job("ddp", 1, minReplicas=1, maxReplicas=6)
        soon(lambda: scene.workers("ddp") == 6)
        scene.change(elastic_job.RESOURCE, "ddp", SMALL)
        soon(lambda: scene.told("Held"))
        # It may be told before any of the six has gone.
        soon(lambda: HELD not in scene.annotations("ddp") and scene.workers("ddp") == 6)
    assert scene.told("Held")[0].startswith("2 workers, as a user has set them, until 20")


def test_who_looks_and_loses_a_race_decides_again(scene):
    writes = []

    def race(asked):
        # Somebody else changes the job just before the first size is written.
        place = scene.world.place("ddp", TEAM, elastic_job.RESOURCE)
        if (asked.verb, asked.place) == ("patch", place):
            writes.append(asked)
            if len(writes) == 1:
                scene.change(elastic_job.RESOURCE, "ddp", {"metadata": {"labels": {"a": "b"}}})

    scene.api.on_request = race
    with scene.engine():
        scene.elastic_job("ddp", 1, minReplicas=1, maxReplicas=6)
        soon(lambda: scene.workers("ddp") == 6)
    # The first was refused, and the second decided on what there was then.
    assert len(writes) == 2
    assert len(scene.told("Autoscaled")) == 1


def test_who_waits_is_told_though_the_first_write_is_refused(scene):
    refused = []

    def race(asked):
        # Whoever writes its status, its controller or what scales it, comes too late at first.
        place = scene.world.place("a", TEAM, tf_job.RESOURCE)
        if asked.verb == "patch" and asked.place == replace(place, part="status"):
            refused.append(asked)
            if len(refused) <= 5:
                labels = {"a": str(len(refused))}
                scene.change(tf_job.RESOURCE, "a", {"metadata": {"labels": labels}})

    scene.tf_job("large", 2, cpu=19)
    scene.tf_job("a", 4)
    scene.api.on_request = race
    with scene.scheduler():
        soon(lambda: scene.seats("a") == {"n0": {"ps-0", *workers(4)}})
        soon(lambda: any("lacks" in text for text in scene.told("Waiting")))
    assert len(refused) > 5


def test_a_tf_job_is_placed_on_one_node_and_others_pass_one_that_does_not_fit(scene):
    with scene.scheduler():
        scene.tf_job("a", 4)
        soon(lambda: scene.seats("a") == {"n0": {"ps-0", *workers(4)}})
        scene.tf_job("large", 2, cpu=9)
        scene.tf_job("b", 3)
        soon(lambda: scene.seats("b") == {"n0": {"ps-0", *workers(3)}})
        soon(lambda: any("lacks" in text for text in scene.told("Waiting")))
    assert scene.seats("large") == {}
    assert "from 0 to 4 workers, +4: there is room on n0" in scene.told("Autoscaled")
    conditions = scene.found(tf_job.RESOURCE, "large")["status"]["conditions"]
    [scheduled] = (each for each in conditions if each["type"] == "Scheduled")
    assert scheduled["status"] == "False"


def test_a_tf_job_that_starves_gets_its_room_from_lonely_workers_first(scene):
    with scene.scheduler(starve_after_s=2.0):
        # One server and nine workers on n0, and on n1 what is away from its server.
        scene.tf_job("a", 14, min_instances=2, max_instances=14)
        soon(lambda: sum(map(len, scene.seats("a").values())) == 15)
        lonely = max(scene.seats("a").items(), key=lambda each: "ps-0" not in each[1])
        assert lonely[0] == "n1"
        scene.tf_job("b", 6)
        soon(lambda: sum(map(len, scene.seats("b").values())) == 7)
        soon(lambda: sum(map(len, scene.seats("a").values())) == 13)
    assert scene.seats("b") == {"n1": {"ps-0", *workers(6)}}
    assert {"ps-0", "worker-0"} <= scene.seats("a")["n0"]
    assert len(scene.seats("a")["n0"]) == 10
    assert any("b has waited for" in text for text in scene.told("Autoscaled"))


def test_tf_jobs_grow_next_to_their_server_when_nothing_has_happened_for_a_while(scene):
    with scene.scheduler(grow_after_s=2.0):
        scene.tf_job("a", 2, max_instances=6)
        soon(lambda: scene.seats("a") == {"n0": {"ps-0", *workers(2)}})
        soon(lambda: scene.seats("a") == {"n0": {"ps-0", *workers(6)}})
    assert scene.found(tf_job.RESOURCE, "a")["status"]["size"] == 6


def test_a_scheduler_that_begins_anew_touches_no_pod(scene):
    with scene.scheduler():
        scene.tf_job("a", 4)
        soon(lambda: scene.seats("a") == {"n0": {"ps-0", *workers(4)}})
    before = scene.world.uids("a")
    with scene.scheduler() as engine:
        soon(lambda: engine.is_synced)
        is_quiet(engine, scene.api)
    assert scene.world.uids("a") == before


def test_parts_of_one_card_are_given_out_before_another_is_begun(scene):
    scene.kubelet.change("n0", {"nvidia.com/gpu": "2"})
    parts = {"kubeshare/gpu_request": "0.4", "kubeshare/gpu_limit": "1.0", "kubeshare/gpu_mem": "1"}
    with scene.scheduler():
        scene.tf_job("a", 3, annotations=parts)
        soon(lambda: len(scene.share_pods()) == 4)
    # A server and three workers, each with two fifths of a card.
    assert {node for node, _ in scene.share_pods()} == {"n0"}
    assert sorted(Counter(card for _, card in scene.share_pods()).values()) == [2, 2]


def test_what_is_lost_is_made_again(scene):
    with scene.scheduler():
        scene.tf_job("a", 4)
        soon(lambda: scene.seats("a") == {"n0": {"ps-0", *workers(4)}})
        lost = scene.world.uids("a")["a-worker-2"]
        scene.world.remove("a-worker-2", PODS)
        soon(lambda: scene.world.uids("a").get("a-worker-2", lost) != lost)
        scene.kubelet.end(TEAM, "a-ps-0", reason="Evicted")
        soon(lambda: scene.seats("a") == {"n0": {"ps-0", *workers(4)}})


def workers(count):
    return {f"worker-{index}" for index in range(count)}


def test_a_job_of_ours_is_asked_for_the_workers_it_is_given_and_its_resource_tells_so(scene):
    scene.api.serve(SECRETS)
    job = {**JOB, "autoscale": True, "num_workers": "1:4", "worker_resource_request": "cpu=2"}
    manifest = resource("night", job)
    manifest["metadata"]["namespace"] = TEAM
    with scene.engine() as engine:
        scene.api.objects.create(scene.world.place("night", TEAM, ETJ), manifest)
        soon(lambda: "elastic-night-master" in scene.world.pods())
        scene.worker_pod(scene.record())
        soon(lambda: scene.control().num_workers == 4)
        assert scene.control().autoscaled_for.startswith("+")
        # As `elastic scale` does.
        asked = dump_control(scene.control().by_user(2))
        scene.change(CONFIGMAPS, "elastic-night", {"data": {CONTROL_KEY: asked}})
        soon(lambda: scene.told("Held"))
        is_quiet(engine, scene.api, 10 * PERIOD_S)
        assert scene.control().num_workers == 2
    [event] = scene.world.events("Held")
    assert event["involvedObject"]["kind"] == "ElasticTrainJob"
    assert scene.told("Autoscaled")[0].startswith("from 1 to 4 workers, +")


def test_goodput_learns_from_what_a_job_of_ours_tells(scene):
    scene.api.serve(SECRETS)
    job = {**JOB, "autoscale": True, "num_workers": "1:4", "worker_resource_request": "cpu=2"}
    manifest = resource("night", job)
    manifest["metadata"]["namespace"] = TEAM
    with scene.engine(policy=Goodput()):
        scene.api.objects.create(scene.world.place("night", TEAM, ETJ), manifest)
        soon(lambda: "elastic-night-master" in scene.world.pods())
        scene.worker_pod(scene.record())
        # Two are no faster than one, so it has to have no more.
        scene.tell({1: 10.0, 2: 20.0, 3: 20.0, 4: 20.0})
        soon(lambda: scene.control().num_workers == 2)


def test_a_job_that_may_have_none_stands_still_for_a_short_one_and_comes_back():
    """A node that holds one worker."""
    settings = {"num_workers": "0:1", "worker_resource_request": "cpu=8"}
    with InMemoryApi() as api:
        api.serve(SECRETS)
        scene = Scene(api, {"n0": 10})
        # No kind that places its own pods is there, for which alone the cluster was looked at anew.
        with scene.engine(policy=Goodput(), names=["elastictrainjob"]):
            scene.train_job("night", **settings)
            scene.worker_pod(scene.record())
            # A day of work is left.
            scene.tell({1: 10.0})
            scene.train_job("short", **settings)
            scene.worker_pod(scene.record("short"))
            soon(lambda: scene.control().num_workers == 0)
            assert scene.control().autoscaled_for == "-1: its room goes to jobs with less work left"
            soon(lambda: scene.told("Autoscaled"))
            # Its master has the worker leave.
            scene.world.remove(replica_pod_name("night", "worker", 0), PODS)
            soon(lambda: scene.running(**{JOB_LABEL: "short"}) == 2)
            scene.tell({1: 10.0}, "short", JobPhase.SUCCEEDED)
            scene.world.remove(replica_pod_name("short", "worker", 0), PODS)
            soon(lambda: scene.control().num_workers == 1)
        scene.close()


def test_without_a_policy_all_stay_at_their_smallest_size(scene):
    parts = assembled()
    kinds = parts.kinds(parts.names(), everything)
    assert parts.make_scaler(parts.names()) is None
    with scene.world.engine(*kinds.values()):
        scene.training_job("a")
        soon(lambda: scene.trainers("a") == [2])
        soon(lambda: scene.found(training_job.RESOURCE, "a")["status"]["phase"] == "running")
    assert scene.trainers("a") == [2]
