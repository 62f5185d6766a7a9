"""Asking the API server before anything of a job is there, and what its answers give away."""

import copy

import pytest
from support.fake_api import Answer, FakeApi, refusal

from elastic.errors import JobExistsError, JobSpecError, PlatformError
from elastic.platforms.kubernetes.job.objects import JobObjects
from elastic.platforms.kubernetes.job.submission import _create_one, check_admission
from elastic.platforms.kubernetes.objects import manifests
from elastic.platforms.kubernetes.objects.podspec import Hook, Job
from elastic.spec.job import JobSpec

SPEC = JobSpec(
    job_name="mnist", model_zoo="z", model_def="m.C", training_data_dir="d", minibatch_size=1
)


def job(hook=""):
    return Job(SPEC, "team", "uid", "image", Hook("cluster_spec.yaml", hook) if hook else None)


class Server:
    """Takes what it is asked for, but for the fields of pods that it does not know."""

    def __init__(self, *unknown):
        self.unknown = unknown

    def __call__(self, seen):
        taken = copy.deepcopy(seen.body)
        if taken["kind"] == "Pod":
            spec = taken["spec"]
            for mapping in (taken["metadata"], spec, *spec["containers"]):
                for field in self.unknown:
                    mapping.pop(field, None)
        return Answer(body=taken)


@pytest.mark.parametrize(
    ("hook", "field", "words"),
    [
        ("spec: {foo: 1}", "foo", "spec has no field 'foo': correct it, or leave it out"),
        ("spec: {nodeSelectr: {a: b}}", "nodeSelectr", "did you mean nodeSelector?"),
        ("metadata: {annotation: {a: b}}", "annotation", "metadata has .* mean annotations?"),
        (
            "spec: {containers: [{name: elastic, enviro: []}]}", "enviro",
            "container 'elastic' of spec.containers has no field 'enviro'",
        ),
    ],
)  # fmt: skip
def test_a_field_that_the_server_drops_is_told(hook, field, words):
    with FakeApi(answer=Server(field)) as api, pytest.raises(JobSpecError, match=words) as refused:
        check_admission(api.cluster(), job(hook))
    assert str(refused.value).startswith("cluster_spec (cluster_spec.yaml): ")


@pytest.mark.parametrize(
    ("hook", "unknown"),
    [
        pytest.param("spec: {newerThanTheClient: 1}", (), id="the-server-knows-it"),
        pytest.param("spec: {hostNetwork: false}", ("hostNetwork",), id="dropped-as-the-default"),
    ],
)
def test_a_field_that_means_something_is_taken(hook, unknown):
    with FakeApi(answer=Server(*unknown)) as api:
        check_admission(api.cluster(), job(hook))
        assert all("fieldValidation=Strict" in said for said in api.said())


class TestSecretsOfTheEnvironment:
    """Whether they are there is found out without the right to read them."""

    def checked(self, **answers):
        def answer(seen):
            is_named = seen.body["metadata"]["name"] in answers
            return answers[seen.body["metadata"]["name"]] if is_named else Answer(body=seen.body)

        spec = SPEC.model_copy(update={"env_secret": ("keys", "more")})
        with FakeApi(answer=answer) as api:
            check_admission(api.cluster(), Job(spec, "team", "uid", "image"))
            return api.requests

    def test_one_that_is_not_there_is_told_with_what_makes_it(self):
        taken = refusal(409, "already exists", "AlreadyExists")
        words = r"--env_secret names 'more', and namespace 'team' has no Secret .* kubectl create "
        with pytest.raises(JobSpecError, match=words + "secret generic more -n team"):
            self.checked(keys=taken)

    @pytest.mark.parametrize(
        "answer",
        [
            pytest.param(refusal(409, "already exists", "AlreadyExists"), id="there"),
            pytest.param(refusal(403, "exceeded quota", "Forbidden"), id="nobody-can-tell"),
        ],
    )
    def test_others_are_not_read_and_nothing_is_made(self, answer):
        requests = self.checked(keys=answer, more=answer)
        assert {seen.method for seen in requests} == {"POST"}
        assert all("dryRun=All" in seen.path for seen in requests)


def quota_in_change(seen):
    words = 'Operation cannot be fulfilled on resourcequotas "q": the object has been modified'
    return refusal(409, words, "Conflict")


@pytest.mark.parametrize("make", [manifests.master_pod, manifests.service])
def test_a_quota_in_change_is_nobody_elses_submission(make):
    with FakeApi(answer=quota_in_change) as api:
        objects = JobObjects(api.cluster(patience_s=0.0), "team", "mnist")
        with pytest.raises(PlatformError, match="on resourcequotas"):
            _create_one(objects, job(), make(job()))


def test_a_name_that_is_taken_is_somebody_elses_submission():
    def answer(seen):
        taken = refusal(409, "already exists", "AlreadyExists")
        return taken if seen.method == "POST" else refusal(404, "none")

    with FakeApi(answer=answer) as api:
        objects = JobObjects(api.cluster(patience_s=0.0), "team", "mnist")
        with pytest.raises(JobExistsError, match="somebody else"):
            _create_one(objects, job(), manifests.master_pod(job()))
