"""What can be wrong with a cluster, as `elastic train` and `elastic status` tell it."""

import json
import re
import socket
from pathlib import Path

import pytest
import yaml
from cli.conftest import MODULE
from support.cluster import KUBECONFIG, eventually, needs_cluster
from support.kubernetes_jobs import IMAGE, ClusterJobs, build_scripted_image

pytestmark = needs_cluster


@pytest.fixture(scope="module")
def module_jobs():
    build_scripted_image()
    jobs = ClusterJobs.create()
    yield jobs
    jobs.delete()


@pytest.fixture
def jobs(module_jobs):
    yield module_jobs
    module_jobs.end_pods()
    for name in module_jobs.platform.jobs():
        module_jobs.platform.kill(name, 0.0)
        module_jobs.platform.forget(name)


@pytest.fixture
def train(run, jobs, tmp_path):
    """Submit a job with further flags; gives exit code, standard output and standard error."""
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / "mnist.py").write_text(MODULE)
    small = "cpu=0.05,memory=32Mi"

    def call(*flags, kubeconfig=KUBECONFIG):
        return run(
            "train", f"--model_zoo={tmp_path}/zoo", "--model_def=mnist.CustomModel",
            "--training_data_dir=/data", "--minibatch_size=1", "--job_name=wrong", "--detach",
            f"--image={IMAGE}", "--image_pull_policy=Never", "--envs=MASTER_DOES=obey",
            f"--master_resource_request={small}", f"--worker_resource_request={small}",
            f"--namespace={jobs.namespace}", f"--kubeconfig={kubeconfig}", *flags,
        )  # fmt: skip

    return call


def kubeconfig_of(path, server=None, token=None):
    """The tests' kubeconfig, with something about it changed."""
    config = yaml.safe_load(Path(KUBECONFIG).read_text())
    if server is not None:
        config["clusters"][0]["cluster"]["server"] = server
    if token is not None:
        config["users"][0]["user"] = {"token": token}
    path.write_text(yaml.safe_dump(config))
    return path


def assert_refused(jobs, answer, code, message):
    """One line that says it, and nothing in the cluster."""
    got, out, err = answer
    assert (got, out) == (code, "")
    assert re.fullmatch(f"error: {message}\n", err), err
    assert jobs.belongings() == []


def test_a_missing_claim(train, jobs):
    message = "--volume names the claim 'none', and namespace 'laptop-.*correct claim_name"
    assert_refused(jobs, train("--volume=claim_name=none,mount_path=/d"), 2, message)


def test_a_missing_service_account(train, jobs):
    message = (
        "namespace 'laptop-.*' has no service account 'none' for the master: elastic install.*"
    )
    assert_refused(jobs, train("--service_account=none"), 1, message)


def test_a_missing_namespace(train, jobs):
    message = "there is no namespace 'laptop-none' in https://.*--create_namespace --apply"
    assert_refused(jobs, train("--namespace=laptop-none"), 1, message)


def test_a_forbidden_namespace(train, jobs, tmp_path):
    path = f"/api/v1/namespaces/{jobs.namespace}/serviceaccounts/default/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {}}
    token = jobs.cluster.create(path, {**request, "spec": {}})["status"]["token"]
    stranger = kubeconfig_of(tmp_path / "stranger", token=token)
    message = 'not permitted: .*cannot .* in the namespace "laptop-.*: ask for that right, or.*'
    assert_refused(jobs, train(kubeconfig=stranger), 1, message)


def test_credentials_that_are_none(train, jobs, tmp_path):
    unknown = kubeconfig_of(tmp_path / "unknown", token="nonsense")
    message = "https://.* does not know who you are .*renew the credentials.*"
    assert_refused(jobs, train(kubeconfig=unknown), 1, message)


def test_a_quota_that_is_used_up(train, jobs):
    hard = {"requests.memory": "48Mi"}
    jobs.create_object("resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    try:
        eventually(lambda: "used" in (jobs.get("resourcequotas", "q").get("status") or {}))
        message = "the quota of namespace .* has no room for a worker pod: .*exceeded quota: q.*"
        answer = train("--worker_resource_request=cpu=0.05,memory=64Mi")
        assert_refused(jobs, answer, 1, message)
    finally:
        jobs.remove("resourcequotas", "q", None)


def test_a_bad_kubeconfig(train, jobs, tmp_path):
    bad = tmp_path / "bad"
    bad.write_text("clusters: nonsense\n")
    message = "kubeconfig .*bad cannot be used: .*--kubeconfig or --context"
    assert_refused(jobs, train(kubeconfig=bad), 1, message)


def test_an_api_server_that_is_down(train, jobs, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"https://127.0.0.1:{server.getsockname()[1]}"
    down = kubeconfig_of(tmp_path / "down", server=address)
    message = f"the API server {address} .*does not answer: .*Connection refused.*"
    assert_refused(jobs, train(kubeconfig=down), 1, message)


def until_said(run, jobs, reason):
    """What `elastic status` says of the job, once it gives this reason."""

    def look():
        arguments = ("wrong", "-n", jobs.namespace, f"--kubeconfig={KUBECONFIG}")
        code, out, _ = run("status", *arguments)
        return (code, " ".join(out.split())) if reason in out else None

    return eventually(look)


def test_a_wrong_image_name(train, run, jobs):
    image = "127.0.0.1:5000/no/such:1"
    assert train(f"--image={image}", "--image_pull_policy=Always")[0] == 0
    code, out = until_said(run, jobs, "ErrImagePull")
    assert code == 0
    assert f"wrong Pending ErrImagePull: image {image} cannot be used: " in out
    assert "not found" in out


def test_an_unschedulable_master(train, run, jobs):
    assert train("--master_resource_request=cpu=900,memory=32Mi")[0] == 0
    code, out = until_said(run, jobs, "Unschedulable")
    assert code == 0
    assert "wrong Pending Unschedulable: the master waits for a node: 0/" in out
    assert "Insufficient cpu" in out


def test_whoever_watches_a_job_with_a_wrong_image_sees_it_fail_in_time(train, run, jobs):
    # Longer than a node takes to ask for the image, also where other pods keep it busy.
    train("--image=127.0.0.1:5000/no/such:1", "--image_pull_policy=Always", "--start_timeout=8")
    where = ("wrong", "-n", jobs.namespace, f"--kubeconfig={KUBECONFIG}")
    code, out, _ = run("status", *where, "--watch", "-o", "json")
    assert code == 100
    seen = [json.loads(line) for line in out.splitlines()]
    assert "ErrImagePull" in [status["reason"] for status in seen]
    assert (seen[-1]["phase"], seen[-1]["reason"]) == ("Failed", "StartTimeout")
    assert "image 127.0.0.1:5000/no/such:1 cannot be used" in seen[-1]["message"]
