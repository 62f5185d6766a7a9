"""The published status, and last words that travel with it, against a server of this process."""

import json

import pytest
from support.cluster import eventually
from support.fake_api import Answer, FakeApi, refusal
from support.fake_objects import FakeObjects
from support.pods import pod, terminated

from elastic.errors import PlatformError
from elastic.platforms.base import StatusRefusedError
from elastic.platforms.kubernetes.api.resources import CONFIGMAPS
from elastic.platforms.kubernetes.job.objects import JobObjects
from elastic.platforms.kubernetes.master.publishing import MAX_LAST_WORDS, StatusStore
from elastic.platforms.kubernetes.masters import end_of
from elastic.platforms.kubernetes.objects import manifests
from elastic.platforms.kubernetes.objects.manifests import Submission
from elastic.platforms.kubernetes.objects.names import LAST_WORDS_KEY, STATUS_KEY
from elastic.platforms.kubernetes.objects.podspec import Job
from elastic.spec.job import JobSpec
from elastic.spec.status import EpochAudit, JobEvent, JobPhase, JobStatus

SPEC = JobSpec(
    job_name="mnist", model_zoo="z", model_def="m.C", training_data_dir="d", minibatch_size=1
)
JOB = Job(SPEC, "team", "uid", "image")
END = JobStatus(job_name="mnist", phase=JobPhase.FAILED)
PATH = "/api/v1/namespaces/team/configmaps/elastic-mnist-status"


def words(seen):
    """The last words in a request, or None where it leaves them as they are."""
    text = seen.body["data"].get(LAST_WORDS_KEY)
    return None if text is None else json.loads(text)


def test_last_words_travel_with_the_next_status_and_with_no_other():
    with FakeApi() as api:
        store = StatusStore(api.cluster(), JOB)
        store.keep_last_words("worker-0", "ValueError: bad")
        assert api.requests == []
        store.publish(END)
        store.publish(END)
        first, second = api.requests
        assert first.path == PATH
        assert words(first) == {"worker-0": "ValueError: bad"}
        assert words(second) is None
        assert STATUS_KEY in second.body["data"]


def test_they_are_tried_again_with_the_status():
    with FakeApi(refusal(409), Answer()) as api:
        store = StatusStore(api.cluster(), JOB)
        store.keep_last_words("worker-0", "ValueError: bad")
        with pytest.raises(PlatformError):
            store.publish(END)
        store.publish(END)
        assert words(api.requests[1]) == {"worker-0": "ValueError: bad"}


def test_only_the_newest_are_kept():
    with FakeApi() as api:
        store = StatusStore(api.cluster(), JOB)
        for index in range(MAX_LAST_WORDS):
            store.keep_last_words(f"worker-{index}", "old")
        store.keep_last_words("worker-0", "new")
        store.keep_last_words("worker-99", "newest")
        store.publish(END)
        kept = words(api.requests[0])
        assert len(kept) == MAX_LAST_WORDS
        assert list(kept)[-2:] == ["worker-0", "worker-99"]
        assert "worker-1" not in kept


def test_a_restarted_master_keeps_those_of_its_earlier_life():
    earlier = manifests.status(JOB, END, {"worker-3": "KeyError"})
    with FakeApi(Answer(body=earlier), Answer()) as api:
        store = StatusStore(api.cluster(), JOB)
        assert store.last() == END
        store.keep_last_words("worker-0", "ValueError")
        store.publish(END)
        assert words(api.requests[1]) == {"worker-3": "KeyError", "worker-0": "ValueError"}


LONG = END.model_copy(
    update={
        "events": (JobEvent(time_s=1.0, kind="EpochEnded", message="epoch 0"),),
        "audits": (EpochAudit(epoch=0, num_epochs=3, records=4, committed=4, skipped=0),),
    }
)


def sent(seen):
    return JobStatus.model_validate_json(seen.body["data"][STATUS_KEY])


def refuse(code):
    """A server that takes no status, by `code`, unless it is short."""

    def answer(seen):
        return Answer() if not sent(seen).events else refusal(code, "Too long")

    return answer


@pytest.mark.parametrize("code", [400, 403, 413, 422])
def test_an_end_that_is_refused_for_good_is_published_without_its_lists(code):
    with FakeApi(answer=refuse(code)) as api:
        store = StatusStore(api.cluster(), JOB)
        store.keep_last_words("worker-0", "ValueError: bad")
        store.publish(LONG)
        whole, short = api.requests
        assert sent(whole) == LONG
        assert sent(short).phase is END.phase
        assert (sent(short).audits, sent(short).audits_left_out) == ((), 3)
        assert words(short) is None
        store.publish(END)
        assert words(api.requests[2]) == {"worker-0": "ValueError: bad"}, "they are still there"


def test_one_that_is_refused_in_every_form_is_left_to_the_pod(tmp_path):
    path = tmp_path / "termination-log"
    with FakeApi(refusal(403, "not yours")) as api:
        store = StatusStore(api.cluster(), JOB, termination_path=path)
        with pytest.raises(StatusRefusedError, match="not yours"):
            store.publish(LONG)
    left = pod(terminated(0, "Succeeded", "Completed", path.read_text()))
    assert end_of(left, JobStatus(job_name="mnist")).phase is END.phase


def test_a_missing_folder_costs_nothing_more(tmp_path):
    with FakeApi(refusal(422)) as api:
        store = StatusStore(api.cluster(), JOB, termination_path=tmp_path / "none" / "log")
        with pytest.raises(StatusRefusedError):
            store.publish(END)


@pytest.mark.parametrize("code", [408, 409, 429, 500, 503])
def test_what_passes_is_for_the_caller_to_try_again_as_it_is(code, tmp_path):
    path = tmp_path / "termination-log"
    with FakeApi(refusal(code)) as api:
        store = StatusStore(api.cluster(patience_s=0.0), JOB, termination_path=path)
        with pytest.raises(PlatformError) as error:
            store.publish(LONG)
        assert not isinstance(error.value, StatusRefusedError)
        assert [sent(seen) for seen in api.requests] == [LONG]
    assert not path.exists()


def test_a_running_job_is_told_in_short_too():
    with FakeApi(answer=refuse(422)) as api:
        store = StatusStore(api.cluster(), JOB, interval_s=0.01)
        store.start()
        try:
            store.publish(LONG.model_copy(update={"phase": JobPhase.RUNNING}))
            eventually(lambda: len(api.requests) == 2)
            assert sent(api.requests[1]).phase is JobPhase.RUNNING
        finally:
            store.close()


def stored(text):
    return Answer(body={"metadata": {"name": "elastic-mnist-status"}, "data": {STATUS_KEY: text}})


def test_the_status_of_an_earlier_life_is_read_once():
    earlier = JobStatus(job_name="mnist", phase=JobPhase.RUNNING, master_restarts=2)
    with FakeApi(stored(earlier.model_dump_json())) as api:
        store = StatusStore(api.cluster(), JOB)
        assert store.last() == store.last() == earlier
        assert len(api.requests) == 1


@pytest.mark.parametrize("text", ["{broken", '{"job_name": "mnist", "phase": "Dancing"}'])
def test_a_status_that_cannot_be_read_does_not_keep_a_master_from_its_work(text):
    with FakeApi(stored(text)) as api:
        last = StatusStore(api.cluster(), JOB).last()
    # No job that is only about to start: that one could be taken for too late.
    assert last == JobStatus(job_name="mnist", phase=JobPhase.RECOVERING)


def test_last_words_that_cannot_be_read_are_lost_alone():
    status = JobStatus(job_name="mnist", phase=JobPhase.RUNNING)
    answer = stored(status.model_dump_json())
    answer.body["data"][LAST_WORDS_KEY] = "{broken"
    with FakeApi(answer) as api:
        assert StatusStore(api.cluster(), JOB).last() == status


class TestAStatusThatIsDeletedWhileTheMasterRuns:
    @pytest.fixture
    def api(self):
        with FakeObjects("team") as api:
            api.add("configmaps", manifests.record(JOB, Submission("uid", 1.0, "image")))
            yield api

    @pytest.fixture
    def store(self, api, tmp_path):
        store = StatusStore(api.cluster(), JOB, termination_path=tmp_path / "log")
        store.publish(END)
        return store

    def test_is_written_anew(self, api, store):
        JobObjects(api.cluster(), "team", "mnist").delete(CONFIGMAPS, "elastic-mnist-status")
        store.publish(END)
        assert api.names() == ["configmaps/elastic-mnist", "configmaps/elastic-mnist-status"]

    def test_is_left_so_where_the_job_was_forgotten(self, api, store):
        JobObjects(api.cluster(), "team", "mnist").delete_memory()
        with pytest.raises(StatusRefusedError, match="not found"):
            store.publish(END)
        assert api.names() == []
