"""Objects that the API server refuses: what can never be made ends a job, what may be waits."""

import json

import pytest
from support.api_objects import Place
from support.handover import add_nodes
from support.toy_kind import TEAM, is_quiet, soon
from support.train_job_world import TEMPLATE, resource

from elastic.controller.kinds.elastic_job import ElasticJobs
from elastic.controller.kinds.elastic_train_job import ElasticTrainJobs
from elastic.controller.kinds.tf_job import TFJobs
from elastic.controller.kinds.training_job import TrainingJobs
from elastic.platforms.kubernetes.api.resources import PODS, SECRETS

CONTAINERS = [{"name": "tensorflow", "image": "a:1"}]
TEMPLATE_OF_PODS = {"spec": {"containers": CONTAINERS}}
WORKERS = {"replicas": 2, "restartPolicy": "OnFailure", "template": TEMPLATE_OF_PODS}
SPECS = {
    ElasticJobs: {
        "rdzvEndpoint": "etcd:2379", "minReplicas": 1, "maxReplicas": 3,
        "replicaSpecs": {"Worker": WORKERS},
    },
    TFJobs: {"tfReplicaSpecs": {"Worker": WORKERS}},
    TrainingJobs: {
        "pserver": {"min-instance": 1, "max-instance": 1},
        "trainer": {"min-instance": 1, "max-instance": 1},
    },
    ElasticTrainJobs: resource()["spec"],
}  # fmt: skip
REFUSED = {TrainingJobs: "replicasets"}
FIELDS = {
    ElasticJobs: "spec.replicaSpecs.Worker.template.spec.containers[0].image",
    TFJobs: "spec.tfReplicaSpecs.Worker.template.spec.containers[0].image",
}
INVALID = 'Thing "x" is invalid: spec.containers[0].image: Invalid value: " a:1": no spaces'
UNREADABLE = 'Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal number'
QUOTA = 'pods "x" is forbidden: exceeded quota: team, requested: pods=1, used: pods=3'
DENIED = 'admission webhook "policy.example.com" denied the request: not on Fridays'


class Scene:
    """One job of a kind, which an API server does not take whole."""

    def __init__(self, world, make):
        self.world = world
        self.kind = make()
        self.refused = REFUSED.get(make, "pods")
        world.api.serve(SECRETS)
        add_nodes(world.api, ["node-0"])

    def submit(self, make):
        of = self.kind.resource
        head = {"apiVersion": of.api_version, "kind": of.kind}
        metadata = {"name": "j", "namespace": TEAM}
        manifest = {**head, "metadata": metadata, "spec": SPECS[make]}
        self.world.api.objects.create(self.world.place("j", TEAM, of), manifest)

    @property
    def status(self):
        found = self.world.api.objects.get(self.world.place("j", TEAM, self.kind.resource))
        return found.get("status") or {}

    @property
    def has_failed(self):
        conditions = self.status.get("conditions") or ()
        holds = any(c["type"] == "Failed" and c["status"] == "True" for c in conditions)
        return holds or str(self.status.get("phase")).lower() == "failed"

    def made(self):
        """What was refused at first."""
        group = "apps" if self.refused == "replicasets" else ""
        items, _ = self.world.api.objects.list(Place(group, "v1", self.refused, TEAM))
        return items

    def failures(self):
        events = self.world.events()
        return [each["message"] for each in events if each["type"] == "Warning"]


@pytest.fixture(params=SPECS, ids=lambda make: make.__name__)
def make(request):
    return request.param


@pytest.mark.parametrize(
    ("code", "reason", "words"),
    [(422, "Invalid", INVALID), (400, "BadRequest", UNREADABLE)],
    ids=["invalid", "unreadable"],
)
def test_what_can_never_be_made_ends_a_job_that_has_not_begun(world, make, code, reason, words):
    scene = Scene(world, make)
    world.api.refuse("create", scene.refused, code, words, reason, times=None)
    with world.engine(scene.kind) as engine:
        scene.submit(make)
        soon(lambda: scene.has_failed)
        is_quiet(engine, world.api)
        told = json.dumps(scene.status)
        assert (FIELDS.get(make, "spec.containers[0].image") if code == 422 else words[:20]) in (
            told.replace('\\"', '"')
        )
        asked = [path for verb, path in world.api.requests if verb == "create"]
        assert len([path for path in asked if path.endswith(f"/{scene.refused}")]) == 1
        world.api.relent()
        is_quiet(engine, world.api)
        assert scene.has_failed, "it is over, whatever becomes of the cluster"


@pytest.mark.parametrize(
    ("code", "reason", "words"),
    [(403, "Forbidden", QUOTA), (400, "BadRequest", DENIED)],
    ids=["quota", "webhook"],
)
def test_what_may_be_made_another_time_is_waited_for_and_told(world, make, code, reason, words):
    scene = Scene(world, make)
    world.api.refuse("create", scene.refused, code, words, reason, times=None)
    with world.engine(scene.kind):
        scene.submit(make)
        soon(lambda: any(words in each for each in scene.failures()))
        tried = len(world.api.requests)
        soon(lambda: len(world.api.requests) > tried + 3)
        assert not scene.has_failed
        world.api.relent()
        soon(scene.made)
        assert not scene.has_failed


@pytest.mark.parametrize("make", [ElasticJobs, TFJobs])
def test_a_job_that_runs_goes_on_without_what_it_cannot_have(world, make):
    scene = Scene(world, make)
    with world.engine(scene.kind):
        scene.submit(make)
        soon(lambda: scene.status.get("phase") == "Running" or holds(scene.status, "Running"))
        soon(lambda: len(world.pods("j")) == 2)
        world.api.refuse("create", "pods", 422, INVALID, "Invalid", times=None)
        world.remove("j-worker-1", PODS, gracePeriodSeconds=0)
        soon(lambda: any(INVALID in each for each in scene.failures()))
        assert not scene.has_failed
        world.api.relent()
        soon(lambda: len(world.pods("j")) == 2)


def holds(status, type_):
    return any(c["type"] == type_ and c["status"] == "True" for c in status.get("conditions", ()))


def test_the_claim_of_a_train_job_is_named_by_its_field(world):
    scene = Scene(world, ElasticTrainJobs)
    words = 'PersistentVolumeClaim "x" is invalid: spec.accessModes: Unsupported value: "Some"'
    world.api.refuse("create", "persistentvolumeclaims", 422, words, "Invalid", times=None)
    with world.engine(scene.kind):
        scene.submit(ElasticTrainJobs)
        soon(lambda: scene.has_failed)
    assert TEMPLATE["spec"]["accessModes"], "the job has a claim"
    assert scene.status["message"] == (
        "PersistentVolumeClaim elastic-j-state cannot be made: "
        'PersistentVolumeClaim "x" is invalid: spec.state.volumeClaimTemplate.spec.accessModes: '
        'Unsupported value: "Some"'
    )
