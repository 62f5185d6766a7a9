"""A change of a job's record that gets through, though its answer does not, happens once."""

import pytest
from support.fake_api import Answer, FakeApi, refusal

from elastic.errors import JobExistsError
from elastic.platforms.base import JobControl
from elastic.platforms.kubernetes.job.objects import JobObjects
from elastic.platforms.kubernetes.job.submission import _take_name
from elastic.platforms.kubernetes.objects import manifests
from elastic.platforms.kubernetes.objects.manifests import Submission, control_of, submission_of
from elastic.platforms.kubernetes.objects.podspec import Job
from elastic.spec.job import JobSpec

SPEC = JobSpec(
    job_name="mnist", model_zoo="z", model_def="m.C", training_data_dir="d", minibatch_size=1
)


class RecordStore:
    """A job's record with versions, as an API server keeps it; `loses` answers to changes."""

    def __init__(self, loses=0):
        job = Job(SPEC, "team", "earlier", "image")
        self.record = manifests.record(job, Submission("earlier", 0.0, "image"))
        self.version = 1
        self.loses = loses

    def read(self):
        metadata = {**self.record["metadata"], "resourceVersion": str(self.version)}
        return {**self.record, "metadata": metadata}

    def take(self, uid):
        job = Job(SPEC, "team", uid, "image")
        self.record = manifests.record(job, Submission(uid, 0.0, "image"))
        self.version += 1

    def __call__(self, seen):
        if seen.method == "GET":
            return Answer(body=self.read())
        if seen.body["metadata"].get("resourceVersion") != str(self.version):
            return refusal(409, "the object has been modified", "Conflict")
        self.record["data"] = {**self.record["data"], **seen.body["data"]}
        self.version += 1
        self.loses -= 1
        return Answer(cut=True) if self.loses >= 0 else Answer(body=self.read())


def test_a_wish_whose_answer_was_lost_is_wished_once_more():
    store = RecordStore(loses=1)
    with FakeApi(answer=store) as api:
        JobObjects(api.cluster(), "team", "mnist").ask(num_workers=3)
    assert control_of(store.record) == JobControl(num_workers=3)


def test_a_name_that_was_taken_by_a_lost_answer_is_ours():
    store = RecordStore(loses=1)
    undo = []
    with FakeApi(answer=store) as api:
        objects = JobObjects(api.cluster(), "team", "mnist")
        _take_name(objects, Job(SPEC, "team", "mine", "image"), store.read(), undo)
    assert submission_of(store.record).uid == "mine"
    assert len(undo) == 1


def test_a_name_that_somebody_else_took_meanwhile_is_theirs():
    store = RecordStore()
    earlier = store.read()
    store.take("theirs")
    mine = Job(SPEC, "team", "mine", "image")
    with FakeApi(answer=store) as api:
        objects = JobObjects(api.cluster(), "team", "mnist")
        with pytest.raises(JobExistsError, match="somebody else"):
            _take_name(objects, mine, earlier, [])
