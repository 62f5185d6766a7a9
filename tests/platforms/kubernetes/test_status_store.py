"""The published status, and last words that travel with it, against a server of this process."""

import json

import pytest
from support.fake_api import Answer, FakeApi, refusal

from elastic.errors import PlatformError
from elastic.platforms.kubernetes import manifests
from elastic.platforms.kubernetes.names import LAST_WORDS_KEY, STATUS_KEY
from elastic.platforms.kubernetes.podspec import Job
from elastic.platforms.kubernetes.status_store import MAX_LAST_WORDS, StatusStore
from elastic.spec.job import JobSpec
from elastic.spec.status import JobPhase, JobStatus

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
    with FakeApi(refusal(403), Answer()) as api:
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
