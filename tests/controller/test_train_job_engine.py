"""ElasticTrainJobs and the whole engine, against an API server over HTTP."""

import pytest
from support.toy_kind import TEAM, is_quiet, soon
from support.train_job_world import resource

from elastic.controller.kinds.elastic_train_job import ElasticTrainJobs
from elastic.controller.resources.elastic_train_job import RESOURCE
from elastic.errors import JobExistsError
from elastic.platforms.kubernetes.api.resources import (
    CONFIGMAPS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    SECRETS,
    SERVICES,
)
from elastic.platforms.kubernetes.job.platform import KubernetesPlatform
from elastic.platforms.kubernetes.objects.names import STATUS_KEY
from elastic.spec.job import JobSpec
from elastic.spec.status import JobPhase, JobStatus, Progress

MASTER = "elastic-night-master"
OWNED = {
    PODS: [MASTER],
    SERVICES: [MASTER],
    CONFIGMAPS: ["elastic-night", "elastic-night-status"],
    SECRETS: ["elastic-night-token"],
    PERSISTENT_VOLUME_CLAIMS: ["elastic-night-state"],
}


class Scene:
    """Jobs of the kind in the toy's world."""

    def __init__(self, world):
        self.world = world
        self.platform = KubernetesPlatform(world.api.cluster(), TEAM)

    def engine(self):
        self.world.api.serve(SECRETS)
        return self.world.engine(ElasticTrainJobs())

    def apply(self, **fields):
        self.world.api.objects.create(self.place(), resource(**fields))

    def place(self, of=RESOURCE, name="night", part=""):
        return self.world.place(name, TEAM, of, part)

    def names(self, of):
        items, _ = self.world.api.objects.list(self.place(of, ""))
        return sorted(item["metadata"]["name"] for item in items)

    def get(self, of, name):
        return self.world.api.objects.get(self.place(of, name))

    @property
    def status(self):
        return self.get(RESOURCE, "night").get("status") or {}

    def is_in(self, phase):
        return self.status.get("phase") == phase

    @property
    def control(self):
        return self.get(CONFIGMAPS, "elastic-night")["data"]["control.json"]

    def master_uid(self):
        return self.get(PODS, MASTER)["metadata"]["uid"] if MASTER in self.names(PODS) else None

    def publish(self, phase=JobPhase.RUNNING, **fields):
        """A master tells of the job."""
        base = {"job_name": "night", "phase": phase, "started_s": 1.0}
        data = {STATUS_KEY: JobStatus(**base | fields).model_dump_json()}
        place = self.place(CONFIGMAPS, "elastic-night-status")
        self.world.api.objects.merge(place, {"data": data})

    def begin(self, **fields):
        self.apply(**fields)
        soon(self.master_uid)
        self.publish()
        soon(lambda: self.is_in("Running"))


@pytest.fixture
def scene(world):
    return Scene(world)


def test_a_job_is_made_told_and_goes_with_all_that_belongs_to_it(scene):
    with scene.engine() as engine:
        scene.begin()
        for of, names in OWNED.items():
            assert scene.names(of) == names
            for name in names:
                [owner] = scene.get(of, name)["metadata"]["ownerReferences"]
                assert (owner["kind"], owner["controller"]) == ("ElasticTrainJob", True)
        assert scene.platform.status("night").phase is JobPhase.RUNNING
        is_quiet(engine, scene.world.api)
        writes = len(scene.world.api.writes)
        change = {"metadata": {"labels": {"look": "again"}}}
        scene.world.api.objects.merge(scene.place(), change)
        is_quiet(engine, scene.world.api)
        assert len(scene.world.api.writes) == writes
        scene.world.api.objects.delete(scene.place(), {})
        soon(lambda: all(scene.names(of) == [] for of in OWNED))


def test_a_master_that_is_lost_is_made_again_each_time_and_once(scene):
    with scene.engine() as engine:
        scene.begin()
        for num in range(3):
            lost = scene.master_uid()
            scene.world.api.objects.delete(scene.place(PODS, MASTER), {"gracePeriodSeconds": 0})
            soon(lambda lost=lost: scene.master_uid() not in (None, lost))
            scene.publish(master_restarts=num + 1)
            soon(lambda num=num: scene.status["master_restarts"] == num + 1)
            is_quiet(engine, scene.world.api)
        secret = scene.get(SECRETS, "elastic-night-token")
        assert len(secret["stringData"]["token"]) == 64
    created = [path for verb, path in scene.world.api.writes if verb == "create"]
    assert len([path for path in created if path.endswith("/pods")]) == 4
    # Equal ones are counted up.
    assert [event["count"] for event in scene.world.events("SuccessfulCreateSecret")] == [1]
    assert [event["count"] for event in scene.world.events("MasterLost")] == [3]


def test_a_controller_that_is_restarted_touches_nothing(scene):
    with scene.engine():
        scene.begin()
    uid = scene.master_uid()
    with scene.engine() as engine:
        soon(lambda: engine.sample().passes.get("ElasticTrainJob", 0) > 0)
        is_quiet(engine, scene.world.api)
        writes = len(scene.world.api.writes)
        scene.publish(progress=Progress(records_done=5))
        is_quiet(engine, scene.world.api)
    assert scene.master_uid() == uid
    assert {path.rsplit("/")[-1] for _, path in scene.world.api.writes[writes:]} <= {"status"}


def test_elastic_scale_and_kill_reach_it(scene):
    with scene.engine():
        scene.begin()
        scene.platform.scale("night", 2)
        scene.world.api.objects.merge(scene.place(), {"spec": {"job": {"num_workers": 3}}})
        soon(lambda: '"num_workers":3' in scene.control)
        scene.platform.kill("night", 2.0)
        soon(lambda: scene.is_in("Cancelled"))
        assert scene.names(PODS) == []


def test_a_job_of_the_same_name_that_has_no_resource_is_left_alone_and_named(scene):
    spec = JobSpec(
        job_name="night", model_zoo="zoo", model_def="a.b", training_data_dir="/d",
        minibatch_size=1, image="a:1", num_workers=1,
    )  # fmt: skip
    scene.platform.submit(spec)
    uid = scene.master_uid()
    with scene.engine():
        scene.apply()
        soon(lambda: scene.world.events("FailedCreateConfigMap"))
        [event] = scene.world.events("FailedCreateConfigMap")
        assert "'night' was submitted without a resource, and is left alone" in event["message"]
        assert "elastic kill night -n team --forget" in event["message"]
        assert scene.is_in("Pending")
        assert scene.master_uid() == uid
        assert "ownerReferences" not in scene.get(CONFIGMAPS, "elastic-night")["metadata"]
        scene.platform.kill("night", 2.0)
        scene.platform.forget("night")
        soon(lambda: scene.master_uid() not in (None, uid))


def test_a_job_of_the_command_line_does_not_take_its_name(scene):
    spec = JobSpec(
        job_name="night", model_zoo="zoo", model_def="a.b", training_data_dir="/d",
        minibatch_size=1, image="a:1", num_workers=1,
    )  # fmt: skip
    with scene.engine():
        scene.begin()
        with pytest.raises(JobExistsError):
            scene.platform.submit(spec)


def test_one_that_takes_the_place_of_another_waits_for_its_objects_to_go(scene):
    """The token of the one before is none of its own, and goes with that."""
    with scene.engine():
        scene.begin()
        token = scene.get(SECRETS, "elastic-night-token")["stringData"]
        scene.world.api.objects.delete(scene.place(), {})
        scene.apply()
        soon(lambda: scene.status.get("master_pod") == MASTER)
        soon(lambda: scene.get(SECRETS, "elastic-night-token")["stringData"] != token)


def test_a_missing_right_is_named_once_and_the_rest_goes_on(scene):
    scene.world.api.deny("persistentvolumeclaims")
    with scene.engine():
        scene.apply()
        soon(lambda: scene.world.events("MissingRight"))
        assert scene.names(PODS) == []
        scene.world.api.allow("persistentvolumeclaims")
        soon(scene.master_uid)


def test_secrets_are_never_listed(scene):
    with scene.engine():
        scene.begin()
    assert not [
        path for verb, path in scene.world.api.requests
        if "/secrets" in path and verb in ("list", "watch", "delete", "patch")
    ]  # fmt: skip
