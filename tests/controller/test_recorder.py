"""Events as the API server gets them; whatever goes wrong, who tells is not held up."""

import time

import pytest
from support.toy_kind import soon

from elastic.controller.machinery import recorder as module
from elastic.controller.machinery.recorder import Backlog, EventRecorder
from elastic.controller.reconciling import EventType, Note


@pytest.fixture
def job(world):
    return world.make("job", 0)


@pytest.fixture
def make_recorder(world):
    made = []

    def make(**settings):
        made.append(EventRecorder(world.api.cluster(), "elastic-controller-0", **settings))
        made[-1].start()
        return made[-1]

    yield make
    for recorder in made:
        recorder.close()


def tell(recorder, job, message="Created pod: job-0", reason="SuccessfulCreatePod"):
    recorder.tell(job, "toy-controller", Note(reason, message))


def test_an_event_has_what_kubectl_describe_shows(world, job, make_recorder):
    make_recorder().tell(job, "toy-controller", Note("Lost", "gone", EventType.WARNING))
    (event,) = soon(world.events)
    assert event["metadata"]["namespace"] == "team"
    assert event["metadata"]["name"].startswith("job.")
    assert event["involvedObject"] == {
        "apiVersion": "tests.elastic.dev/v1",
        "kind": "Toy",
        "namespace": "team",
        "name": "job",
        "uid": job["metadata"]["uid"],
    }
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "Lost", "gone")
    assert (event["count"], event["source"]) == (1, {"component": "toy-controller"})
    assert event["firstTimestamp"] == event["lastTimestamp"]
    assert event["reportingInstance"] == "elastic-controller-0"


def test_equal_notes_are_one_event_that_is_counted_up(world, job, make_recorder):
    recorder = make_recorder()
    for count in range(1, 6):
        tell(recorder, job)
        soon(lambda count=count: [each["count"] for each in world.events()] == [count])
    tell(recorder, job, "Created pod: job-1")
    soon(lambda: len(world.events()) == 2)


def test_an_event_that_could_not_be_counted_up_once_is_counted_up_later(
    world, job, make_recorder, caplog
):
    caplog.set_level("INFO")
    recorder = make_recorder()
    tell(recorder, job)
    soon(world.events)
    world.api.refuse("patch", "events", 422, "not now", reason="Invalid")
    tell(recorder, job)
    soon(lambda: "not now" in caplog.text)
    tell(recorder, job)
    soon(lambda: [each["count"] for each in world.events()] == [2])


def test_an_event_that_the_cluster_has_forgotten_is_told_anew(world, job, make_recorder):
    recorder = make_recorder()
    tell(recorder, job)
    (event,) = soon(world.events)
    place = world.place(event["metadata"]["name"], resource=module.EVENTS)
    world.api.objects.delete(place, {})
    tell(recorder, job)
    (again,) = soon(world.events)
    assert again["metadata"]["name"] != event["metadata"]["name"]


def test_after_a_while_an_equal_note_is_another_event(world, job, make_recorder, monkeypatch):
    monkeypatch.setattr(module, "WINDOW_S", -1.0)
    recorder = make_recorder()
    for count in (1, 2):
        tell(recorder, job)
        soon(lambda count=count: len(world.events()) == count)


def test_what_was_told_while_the_api_server_was_away_is_told_later(
    world, job, make_recorder, monkeypatch
):
    monkeypatch.setattr(module, "AWAY_PAUSE_S", 0.05)
    recorder = make_recorder()
    with world.api.away():
        began_s = time.monotonic()
        for _ in range(100):
            tell(recorder, job)
        assert time.monotonic() - began_s < 0.5
        soon(lambda: recorder._is_writing)
    soon(lambda: sum(each["count"] for each in world.events()) == 100)


def test_a_right_that_is_lacking_is_named_once_and_harms_nobody(world, job, make_recorder, caplog):
    world.api.deny("events", "create")
    recorder = make_recorder()
    for number in range(5):
        tell(recorder, job, f"pod {number}")
    soon(lambda: recorder._backlog.is_empty and not recorder._is_writing)
    named = [each for each in caplog.records if "are not written" in each.getMessage()]
    assert len(named) == 1
    world.api.allow("events")
    tell(recorder, job, "at last")
    soon(lambda: [each["message"] for each in world.events()] == ["at last"])


def test_more_than_there_is_room_for_is_dropped_and_that_is_said(world, job, make_recorder, caplog):
    world.api.is_away = True
    recorder = make_recorder(backlog=Backlog(burst=1000, max_waiting=10))
    for number in range(500):
        tell(recorder, job, f"pod {number}")
    dropped = [each for each in caplog.records if "dropped so far" in each.getMessage()]
    assert len(dropped) == 1
    assert len(recorder._backlog._ready) == 10


def test_closing_tells_what_waits_and_does_not_wait_for_ever(
    world, job, make_recorder, monkeypatch
):
    recorder = make_recorder(backlog=Backlog(burst=1, refill_s=1000.0))
    for number in range(4):
        tell(recorder, job, "x", reason=f"R{number}")
    recorder.close()
    assert len(world.events()) == 4
    monkeypatch.setattr(module, "FAREWELL_S", 0.2)
    world.api.is_away = True
    stuck = make_recorder()
    tell(stuck, job)
    began_s = time.monotonic()
    stuck.close()
    assert time.monotonic() - began_s < 2.0


def test_an_answer_that_was_lost_does_not_tell_twice(world, job, make_recorder):
    world.api.refuse("create", "events", 500, "etcd is busy", times=2)
    tell(make_recorder(), job)
    soon(world.events)
    assert len(world.events()) == 1
