"""What the writer relies on when it writes: the state that was decided on, and the very object."""

import pytest
from support.toy_kind import PODS, TEAM, TOYS, ToyKind, soon

from elastic.controller.machinery.informers import Informers
from elastic.controller.machinery.meter import Meter
from elastic.controller.machinery.recorder import EventRecorder
from elastic.controller.machinery.writing import LeavingError, Writer
from elastic.controller.reconciling import Delete, Note, Outcome
from elastic.platforms.kubernetes.api.cluster import RefusedError


class Scene:
    def __init__(self, world):
        self.world = world
        self.kind = ToyKind()
        self.is_leaving = False
        cluster = world.api.cluster()
        world.api.serve(TOYS)
        self.recorder = EventRecorder(cluster)
        self.recorder.start()
        self.informers = Informers(cluster, [self.kind], TEAM, lambda _key, _in_s: None)
        self.writer = Writer(
            cluster, self.informers, self.recorder, Meter(), lambda: self.is_leaving
        )

    def write(self, job, outcome):
        self.writer.carry_out(self.kind, job, outcome)

    def phase(self):
        return self.world.job("job").get("status", {}).get("phase")


@pytest.fixture
def scene(world):
    scene = Scene(world)
    yield scene
    scene.informers.close()
    scene.recorder.close()


def test_a_status_that_was_decided_on_an_older_state_is_not_written_nor_told(scene, world):
    old = world.make("job", 1)
    world.change("job", {"spec": {"size": 2}})
    outcome = Outcome(status={"phase": "Done"}, notes=[Note("Done", "it is")])
    with pytest.raises(RefusedError):
        scene.write(old, outcome)
    assert scene.phase() is None
    scene.write(world.job("job"), outcome)
    assert scene.phase() == "Done"
    soon(lambda: len(world.events("Done")) == 1)


def test_a_status_does_not_reach_another_job_of_the_same_name(scene, world):
    old = world.make("job", 1)
    world.remove("job")
    world.make("job", 1)
    with pytest.raises(RefusedError):
        scene.write(old, Outcome(status={"phase": "Done"}))
    assert scene.phase() is None


def test_a_status_of_which_only_the_answer_was_lost_counts_as_written(scene, world):
    old = world.make("job", 1)
    world.change("job", {"status": {"phase": "Done"}}, part="status")
    scene.write(old, Outcome(status={"phase": "Done"}, notes=[Note("Done", "it is")]))
    soon(lambda: len(world.events("Done")) == 1)


def test_of_two_pods_of_one_name_only_the_one_that_was_meant_is_removed(scene, world):
    job = world.make("job", 1)
    first = world.make_pod("job-0")
    world.remove("job-0", PODS)
    second = world.make_pod("job-0")
    for pod, is_left in [(first, True), (second, False)]:
        scene.write(job, Outcome([Delete(PODS, "job-0", pod["metadata"]["uid"], grace_s=0)]))
        assert ("job-0" in world.pods()) == is_left


def test_who_leaves_begins_no_write(scene, world):
    job = world.make("job", 1)
    pod = world.make_pod("job-0")
    scene.is_leaving = True
    delete = Delete(PODS, "job-0", pod["metadata"]["uid"], grace_s=0)
    for outcome in (Outcome([delete]), Outcome(status={"phase": "Done"})):
        with pytest.raises(LeavingError):
            scene.write(job, outcome)
    assert world.api.writes == []
