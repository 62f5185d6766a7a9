"""Refusals in the user's terms: by the API server's phrases, never by what users call things."""

import pytest

from elastic.errors import JobSpecError, PlatformError
from elastic.platforms.base import ReplicaId
from elastic.platforms.kubernetes.api.transport import RefusedError
from elastic.platforms.kubernetes.job.submission import explained
from elastic.platforms.kubernetes.objects import manifests
from elastic.platforms.kubernetes.objects.podspec import Hook, Job
from elastic.spec.job import JobSpec

LIMITS = (
    "[minimum cpu usage per Container is 3, but request is 1, maximum memory usage per Pod is 8]",
    "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
)


def job(name="mnist", namespace="team", hook=None, **settings):
    spec = JobSpec(
        job_name=name, model_zoo="z", model_def="m.C", training_data_dir="d", minibatch_size=1,
        **settings,
    )  # fmt: skip
    return Job(spec, namespace, "uid", "image", hook)


def said(make, detail, of=None, code=403, kind=""):
    of = of or job()
    error = RefusedError(f"plain: {detail}", code, "Forbidden", detail, kind=kind)
    return explained(error, "https://server", of, make(of))


def master(of):
    return manifests.master_pod(of)


def worker(of):
    return manifests.replica_pod(of, ReplicaId("worker", 0, 1), None)


def tensorboard_pod(of):
    return manifests.board_pod(of, None, None)


def secret(of):
    return manifests.token_secret(of, "t")


@pytest.mark.parametrize(
    ("make", "requested", "settings", "advice"),
    [
        (master, "requests.cpu=1", {}, "lower --master_resource_request, free something, or"),
        (worker, "memory=1Gi,pods=1", {}, "lower --worker_resource_request, free something, or"),
        (worker, "limits.cpu=1", {}, "lower --worker_resource_request, free something, or"),
        (
            worker, "limits.cpu=1,requests.cpu=1", {"worker_resource_limit": "cpu=1"},
            "lower --worker_resource_limit and --worker_resource_request, free something, or",
        ),
        (worker, "pods=1", {}, "end a job there, or"),
        (worker, "count/pods=1", {}, "end a job there, or"),
    ],
)  # fmt: skip
def test_a_quota_on_pods_names_the_settings_that_meet_it(make, requested, settings, advice):
    detail = f'pods "x" is forbidden: exceeded quota: q, requested: {requested}, used: …'
    role = make.__name__
    assert str(said(make, detail, job(**settings))) == (
        f"the quota of namespace 'team' has no room for a {role} pod: {detail}: {advice} ask for "
        "more"
    )


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (secret, "Secret 'elastic-mnist-token'"),
        (manifests.service, "Service 'elastic-mnist-master'"),
    ],
)
def test_a_quota_on_other_objects_speaks_of_no_pod(make, what):
    cause = "exceeded quota: few, requested: secrets=1, used: secrets=1, limited: secrets=1"
    message = str(said(make, f'secrets "elastic-mnist-token" is forbidden: {cause}'))
    assert message == (
        f"the quota 'few' of namespace 'team' has no room for the {what} of the job: {cause}: "
        "delete what nobody needs there, or ask for more"
    )


def test_a_quota_that_wants_to_be_told_more():
    detail = 'pods "x" is forbidden: failed quota: q: must specify limits.memory,requests.cpu'
    of = job(worker_resource_limit="cpu=1")
    assert str(said(worker, detail, of)) == (
        "the quota 'q' of namespace 'team' wants every pod to say how much it needs of "
        "limits.memory,requests.cpu, and the worker's does not: name it in "
        "--worker_resource_limit and --worker_resource_request"
    )


@pytest.mark.parametrize("cause", LIMITS)
def test_a_limit_range_is_no_quota_whatever_the_job_is_called(cause):
    detail = f'pods "elastic-quotas-cannot-master" is forbidden: {cause}'
    message = str(said(master, detail, job("quotas-cannot")))
    assert message.startswith(f"the cluster refuses the master pod of the job: {detail}: change ")
    assert "--master_resource_request or --master_resource_limit" in message


@pytest.mark.parametrize(
    "cause",
    [
        "exceeded quota: q, requested: limits.memory=1Gi, used: limits.memory=2Gi, limited: …",
        "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2",
        "failed quota: q: must specify requests.ephemeral-storage",
        "no PriorityClass with name gold was found",
        *LIMITS,
    ],
)
def test_no_setting_is_named_for_the_pod_of_a_tensorboard(cause):
    detail = f'pods "elastic-mnist-tensorboard" is forbidden: {cause}'
    of = job(tensorboard_log_dir="/out/events", volume="claim_name=c,mount_path=/out")
    assert str(said(tensorboard_pod, detail, of)) == (
        f"the cluster refuses the pod of the job's TensorBoard: {detail}: make room for it there, "
        "or leave out --tensorboard_log_dir"
    )


def test_a_missing_right_stays_one_in_a_namespace_named_after_a_quota():
    detail = (
        'pods is forbidden: User "exceeded quota: q" cannot create resource "pods" in API group '
        '"" in the namespace "team-quota"'
    )
    for make in (master, secret):
        assert str(said(make, detail, job(namespace="team-quota"))) == f"plain: {detail}"


@pytest.mark.parametrize(
    ("detail", "words"),
    [
        ("error looking up service account team/m: …", "has no service account 'elastic-master'"),
        ("no PriorityClass with name gold was found", "--master_pod_priority=gold: "),
        ("violates PodSecurity: error looking up service account", "refuses the master pod"),
        ("denied by w: exceeded quota: q, requested: pods=1, used", "refuses the master pod"),
    ],
)
def test_other_causes_are_told_by_their_beginning(detail, words):
    of = job(master_pod_priority="gold")
    assert words in str(said(master, f'pods "x" is forbidden: {detail}', of))


def test_a_namespace_that_is_not_there_is_told_by_the_kind_of_what_is_missing():
    detail = 'namespaces "team" not found'
    assert "no namespace 'team'" in str(said(secret, detail, code=404, kind="namespaces"))
    webhook = 'admission webhook "namespaces.example" said 404'
    assert "no namespace" not in str(said(master, webhook, code=404))


def test_a_field_that_no_pod_has_is_the_cluster_specs():
    detail = (
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field '
        '"spec.foo"'
    )
    hook = Hook("cluster_spec.yaml", "spec: {foo: 1}")
    error = said(master, detail, job(hook=hook), code=400)
    assert isinstance(error, JobSpecError)
    assert str(error) == (
        'cluster_spec (cluster_spec.yaml): unknown field "spec.foo" in the master pod'
    )


def test_a_refusal_of_another_object_names_it():
    detail = 'secrets "elastic-mnist-token" is forbidden: unable to create new content'
    error = said(secret, detail)
    assert isinstance(error, PlatformError)
    assert str(error) == (
        f"the cluster refuses the Secret 'elastic-mnist-token' of the job: {detail}"
    )
