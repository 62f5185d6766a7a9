"""Which Events a job gets: each occurrence told once, a storm in a few."""

import itertools
import time
from datetime import UTC, datetime

import pytest
from support.cluster import eventually, needs_cluster
from support.fake_api import Answer, FakeApi, refusal

from elastic.platforms.kubernetes.api.cluster import connect
from elastic.platforms.kubernetes.api.resources import EVENTS
from elastic.platforms.kubernetes.master.publishing import (
    BURST,
    EVENT_INTERVAL_S,
    MAX_MESSAGE,
    REFILL_S,
    Backlog,
    EventRecorder,
    event,
)
from elastic.platforms.kubernetes.objects.names import Owner
from elastic.spec.status import JobEvent, JobPhase, JobStatus

MASTER = Owner("elastic-job-master", "uid-1")
LOST = JobEvent(time_s=100.0, kind="WorkerLost", message="worker-0 was killed: deleted")


def lost(index, time_s=100.0):
    return JobEvent(time_s=time_s, kind="WorkerLost", message=f"worker-{index} was killed")


def status(*events, phase=JobPhase.RUNNING, **more):
    return JobStatus(job_name="job", phase=phase, events=events, **more)


def take_all(backlog, now_s=0.0):
    taken = []
    while (group := backlog.take(now_s)) is not None:
        taken.append((group.kind, group.messages))
    return taken


class TestWhatIsTold:
    def test_an_occurrence_is_told_once_however_often_it_is_published(self):
        backlog = Backlog(since_s=0.0)
        backlog.add(status(LOST))
        assert take_all(backlog) == [("WorkerLost", (LOST.message,))]
        backlog.add(status(LOST))
        assert take_all(backlog) == []
        again = LOST.model_copy(update={"time_s": 101.0})
        backlog.add(status(LOST, again))
        assert take_all(backlog) == [("WorkerLost", (LOST.message,))]

    def test_what_an_earlier_life_has_told_is_not_told_again(self):
        backlog = Backlog(since_s=200.0)
        restarted = JobEvent(time_s=201.0, kind="MasterRestarted", message="m")
        backlog.add(status(LOST, restarted))
        assert take_all(backlog) == [("MasterRestarted", ("m",))]

    def test_the_end_is_told_with_its_reason_and_once(self):
        backlog = Backlog(since_s=0.0)
        failure = JobEvent(time_s=1.0, kind="JobFailed", message="too many")
        end = status(
            failure, phase=JobPhase.FAILED, reason="WorkerFailures", message="too many", ended_s=2.0
        )
        backlog.add(end)
        backlog.add(end)
        assert take_all(backlog) == [("Failed", ("WorkerFailures: too many",))]

    def test_success_is_not_said_twice_in_one_line(self):
        backlog = Backlog(since_s=0.0)
        backlog.add(
            status(phase=JobPhase.SUCCEEDED, reason="Succeeded", message="every record has counted")
        )
        assert take_all(backlog) == [("Succeeded", ("every record has counted",))]

    def test_progress_is_the_status_to_tell(self):
        backlog = Backlog(since_s=0.0)
        epochs = [JobEvent(time_s=t, kind="EpochEnded", message="e") for t in range(5)]
        backlog.add(status(*epochs))
        assert backlog.is_empty


class TestHowOften:
    def test_a_storm_is_one_event_that_counts(self):
        backlog = Backlog(since_s=0.0)
        for index in range(50):
            backlog.add(status(*[lost(i, i) for i in range(index + 1)]))
        group = backlog.take(0.0)
        manifest = event(group, MASTER, "team", "name")
        assert (manifest["count"], backlog.is_empty) == (50, True)
        assert manifest["message"].startswith("worker-0 was killed; worker-1 was killed; ")
        assert manifest["message"].endswith(" more")
        assert len(manifest["message"]) < MAX_MESSAGE + 20

    def test_one_a_second_and_fewer_in_the_long_run(self):
        backlog, now_s, times = Backlog(since_s=0.0), 0.0, []
        for number in range(1000):
            backlog.add(status(lost(number, float(number))))
            due_s = backlog.due_s(now_s)
            now_s = max(now_s, due_s)
            assert backlog.take(now_s) is not None
            times.append(now_s)
        gaps = [later - sooner for sooner, later in itertools.pairwise(times)]
        assert min(gaps) >= EVENT_INTERVAL_S
        assert gaps[BURST + 5 :] == pytest.approx([REFILL_S] * len(gaps[BURST + 5 :]))

    def test_nothing_is_due_where_there_is_nothing_to_tell(self):
        assert Backlog(since_s=0.0).due_s(5.0) is None


@pytest.mark.parametrize(
    ("kind", "expected"), [("WorkerLost", "Warning"), ("Resumed", "Normal"), ("Failed", "Warning")]
)
def test_trouble_is_a_warning(kind, expected):
    backlog = Backlog(since_s=0.0)
    backlog.add(status(JobEvent(time_s=1.0, kind=kind, message="m")))
    assert event(backlog.take(0.0), MASTER, "team", "n")["type"] == expected


class TestTheRecorder:
    """Against a server of this process."""

    @pytest.fixture
    def api(self):
        with FakeApi(Answer(201)) as api:
            yield api

    @pytest.fixture
    def recorder(self, api):
        recorder = EventRecorder(api.cluster(patience_s=0.2), "team", MASTER)
        recorder.start()
        yield recorder
        recorder.close()

    def test_an_event_is_on_the_masters_pod(self, api, recorder):
        now_s = time.time()
        recorder.tell(status(lost(3, now_s)))
        eventually(lambda: api.requests)
        [seen] = api.requests
        assert (seen.method, seen.path) == ("POST", "/api/v1/namespaces/team/events")
        assert seen.body["involvedObject"] == {
            "apiVersion": "v1", "kind": "Pod", "namespace": "team",
            "name": "elastic-job-master", "uid": "uid-1",
        }  # fmt: skip
        assert seen.body["message"] == "worker-3 was killed"
        stamp = datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        assert (seen.body["firstTimestamp"], seen.body["lastTimestamp"]) == (stamp, stamp)

    def test_a_storm_costs_a_request_a_second_at_the_most(self, api, recorder):
        began_s = time.monotonic()
        events = []
        while time.monotonic() - began_s < 1.5:
            events.append(lost(len(events), time.time()))
            recorder.tell(status(*events[-50:]))
            time.sleep(0.01)
        recorder.tell(status(*events[-50:], phase=JobPhase.SUCCEEDED, message="done"))
        # The first at once, the next after a second, and what is left with the end.
        assert len(api.requests) <= 4
        counts = [s.body["count"] for s in api.requests if s.body["reason"] == "WorkerLost"]
        assert sum(counts) == len(events)
        assert api.requests[-1].body["reason"] == "Succeeded"

    def test_the_end_is_told_before_the_call_returns(self, api, recorder):
        recorder.tell(status(lost(1, time.time())))
        recorder.tell(status(phase=JobPhase.FAILED, reason="R", message="m", ended_s=time.time()))
        assert [s.body["reason"] for s in api.requests] == ["WorkerLost", "Failed"]


def test_who_may_not_write_events_is_refused_once_and_holds_nothing_up():
    with FakeApi(refusal(403, "events is forbidden: User cannot create")) as api:
        recorder = EventRecorder(api.cluster(), "team", MASTER)
        recorder.start()
        recorder.tell(status(lost(1, time.time())))
        eventually(lambda: api.requests)
        began_s = time.monotonic()
        recorder.tell(status(lost(2, time.time()), phase=JobPhase.SUCCEEDED))
        assert time.monotonic() - began_s < 1.0
        assert len(api.requests) == 1


def test_a_server_that_is_silent_holds_the_end_up_for_a_moment_only(monkeypatch):
    monkeypatch.setattr("elastic.platforms.kubernetes.master.publishing.FAREWELL_S", 0.2)
    with FakeApi(Answer(silent=True)) as api:
        recorder = EventRecorder(api.cluster(), "team", MASTER)
        recorder.start()
        began_s = time.monotonic()
        recorder.tell(status(phase=JobPhase.SUCCEEDED, message="done"))
        assert time.monotonic() - began_s < 2.0


def test_an_event_whose_answer_was_lost_is_told_once(monkeypatch):
    monkeypatch.setattr("elastic.platforms.kubernetes.master.publishing.AWAY_PAUSE_S", 0.1)
    taken = {}

    def answer(seen):
        name = seen.body["metadata"]["name"] if seen.body else ""
        if seen.method != "POST":
            return refusal(403, "cannot look")
        if name in taken:
            return refusal(409, "already exists", "AlreadyExists")
        taken[name] = seen.body
        return Answer(cut=True)

    with FakeApi(answer=answer) as api:
        recorder = EventRecorder(api.cluster(patience_s=0.0), "team", MASTER)
        recorder.start()
        recorder.tell(status(lost(1, time.time())))
        eventually(lambda: len(api.requests) >= 3)
        recorder.tell(status(phase=JobPhase.SUCCEEDED, message="done"))
        assert [body["reason"] for body in taken.values()] == ["WorkerLost", "Succeeded"]


class TestInTheCluster:
    pytestmark = needs_cluster

    def test_what_happens_to_a_job_is_on_its_masters_pod(self, jobs, job_name, kubeconfig_of):
        """Written with the rights of a master, and none besides."""
        jobs.submit(job_name)
        master = Owner.of(jobs.objects(job_name).find_master())
        cluster = connect(str(kubeconfig_of("elastic-master")))
        recorder = EventRecorder(cluster, jobs.namespace, master)
        recorder.start()
        now_s = time.time()
        recorder.tell(status(lost(0, now_s), lost(1, now_s)))
        recorder.tell(status(phase=JobPhase.SUCCEEDED, message="every record has counted"))
        recorder.close()
        query = {"fieldSelector": f"involvedObject.uid={master.uid},source=elastic"}
        found = jobs.cluster.get(EVENTS.path(jobs.namespace), query)["items"]
        told = {e["reason"]: (e["type"], e["message"], e["count"]) for e in found}
        assert told == {
            "WorkerLost": ("Warning", "worker-0 was killed; worker-1 was killed", 2),
            "Succeeded": ("Normal", "every record has counted", 1),
        }
