"""Which cluster and namespace a command means, and what a cluster changes for those who follow."""

import socket

import pytest
import yaml
from cli.test_train_flags import REQUIRED
from support.scripted_platform import ScriptedPlatform
from support.statuses import failed, running, succeeded

from elastic.client.platforms import ClusterChoice
from elastic.errors import PlatformError

KEPT = [*REQUIRED, "--output=s3://bucket/model"]
"""A job of which something is left."""

JOB_COMMANDS = [("status",), ("status", "one"), ("logs", "one"), ("kill", "one")]


@pytest.fixture
def kubeconfig(tmp_path):
    """Write a kubeconfig whose server nobody is; gives its path."""

    def write(name="config", namespace=None, server="https://127.0.0.1:1"):
        context = {"cluster": "c", "user": "u"} | ({"namespace": namespace} if namespace else {})
        path = tmp_path / name
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": context}],
            "current-context": "x",
        }
        path.write_text(yaml.safe_dump(content))
        return path

    return write


@pytest.mark.parametrize("command", JOB_COMMANDS)
def test_every_command_takes_a_cluster_and_a_namespace(run, command):
    platform = ScriptedPlatform(one=(running(),))
    options = ("-n", "team", "--context=blue", "--kubeconfig", "/k")
    assert run(*command, *options, platform=platform)[0] == 0
    assert platform.choice == ClusterChoice("/k", "blue", "team")


def test_without_options_the_kubeconfig_decides(run):
    platform = ScriptedPlatform()
    run("status", platform=platform)
    assert platform.choice == ClusterChoice(None, None, None)


@pytest.mark.parametrize("flag", [("-n", "team"), ("--namespace=team",), ("-nteam",)])
def test_train_takes_them_too(run, zoo, flag):
    platform = ScriptedPlatform(on_submit=(succeeded(),))
    assert run("train", *REQUIRED, *flag, "--context=blue", platform=platform)[0] == 0
    assert platform.choice == ClusterChoice(None, "blue", "team")
    assert platform.specs["test"].namespace == "team"


def test_a_namespace_that_cannot_be_is_told_as_it_was_typed(run, zoo):
    code, _, err = run("train", *REQUIRED, "-n", "Team_A", platform=ScriptedPlatform())
    assert code == 2
    assert err.startswith("error: -n: 'Team_A' is no name of a namespace")


def test_a_local_job_has_no_use_for_them(run):
    platform = ScriptedPlatform()
    code, _, err = run("status", "--platform=local", "-n", "team", platform=platform)
    assert (code, err) == (0, "note: unused with --platform local: --namespace\n")


def test_detaching_tells_how_to_come_back(run, zoo):
    platform = ScriptedPlatform(on_submit=(running(),))
    _, out, _ = run("train", *REQUIRED, "-n", "team", "--detach", platform=platform)
    back = "elastic status test --platform kubernetes --namespace team"
    assert out == f"job test has been started\nsee it with: {back}\n"
    assert run(*back.split()[1:], platform=platform)[0] == 0
    assert platform.choice.namespace == "team"


def test_ctrl_c_leaves_a_job_in_a_cluster_alone(run, zoo):
    platform = ScriptedPlatform(on_submit=(running(), KeyboardInterrupt(), running()))
    code, _, err = run("train", *KEPT, "-n", "team", platform=platform)
    assert code == 0
    assert [call[0] for call in platform.calls] == ["open"]
    assert err == (
        "\njob test goes on without you: see it with "
        "`elastic status test --platform kubernetes --namespace team`, end it with "
        "`elastic kill test --platform kubernetes --namespace team`\n"
    )


def test_ctrl_c_during_the_submission_says_that_there_is_no_job(run, zoo):
    class Slow(ScriptedPlatform):
        def submit(self, spec):
            raise KeyboardInterrupt

        def status(self, job_name):
            raise AssertionError("nobody waits for a cluster after Ctrl-C")

    code, _, err = run("train", *REQUIRED, platform=Slow())
    assert (code, err) == (130, "\njob test has not been submitted\n")


NEVER_STARTED = failed(reason="StartTimeout", message="image nope:1 cannot be used")


def test_a_job_that_does_not_start_in_time_fails_and_nothing_of_it_waits_on(run, zoo):
    waiting = running(phase="Pending", reason="ErrImagePull", message="image nope:1")
    platform = ScriptedPlatform(on_submit=(waiting, NEVER_STARTED))
    code, out, err = run("train", *KEPT, platform=platform)
    assert (code, err) == (100, "")
    assert "image nope:1 cannot be used" in out
    assert platform.calls[1:] == [("kill", "test", 30.0)]


def test_what_waits_on_all_the_same_is_told(run, zoo):
    class Stuck(ScriptedPlatform):
        def kill(self, job_name, timeout_s):
            raise PlatformError("node-0 does not answer")

    code, _, err = run("train", *KEPT, platform=Stuck(on_submit=(NEVER_STARTED,)))
    assert code == 100
    assert err == (
        "error: the master of job test still waits to start: node-0 does not answer: "
        "elastic kill test --platform kubernetes\n"
    )


def test_a_job_that_failed_otherwise_keeps_its_pods_for_their_logs(run, zoo):
    platform = ScriptedPlatform(on_submit=(failed(),))
    assert run("train", *REQUIRED, platform=platform)[0] == 100
    assert [call[0] for call in platform.calls] == ["open"]


def test_a_ready_image_may_hold_a_model_that_is_not_here(run, zoo):
    platform = ScriptedPlatform(on_submit=(succeeded(),))
    elsewhere = [*REQUIRED, "--model_zoo=/not/here"]
    assert run("train", *elsewhere, platform=platform)[0] == 1
    assert run("train", *elsewhere, "--image=mine:1", platform=platform)[0] == 0


STATE = "--volume=claim_name=c,mount_path=/elastic/state"


@pytest.mark.parametrize(
    ("flags", "is_kept"),
    [
        ((), False),
        (("--output=/out/model",), False),
        (("--volume=claim_name=c,mount_path=/data",), False),
        (("--volume=claim_name=c,mount_path=/out", "--output=/out/model"), True),
        (("--volume=claim_name=c,mount_path=/out", "--checkpoint_dir=/out"), True),
        (("--output=s3://bucket/model",), True),
        ((STATE,), True),
        (("--cluster_spec=hook.yaml",), False),
        (("--cluster_spec=hook.yaml", "--output=/out/model"), True),
        (("--platform=local",), True),
    ],
)
def test_a_job_that_leaves_no_model_is_told_what_to_add(run, zoo, flags, is_kept):
    platform = ScriptedPlatform(on_submit=(succeeded(),))
    code, _, err = run("train", *REQUIRED, *flags, platform=platform)
    notes = [line for line in err.splitlines() if "trained parameters" in line]
    note = (
        "note: the trained parameters stay in the master's pod and go with it: keep them with "
        "--volume claim_name=CLAIM,mount_path=/results --output /results/model"
    )
    assert (code, notes) == (0, [] if is_kept else [note])


@pytest.mark.parametrize(
    ("flags", "lost"),
    [
        (("--output=/out/model",), "--output"),
        (("--output=/out/model", "--volume=claim_name=c,mount_path=/out"), ""),
        (("--output=/outer", "--volume=claim_name=c,mount_path=/out"), "--output"),
        (("--output=/o", "--checkpoint_dir=/c", "--volume=host_path=/c,mount_path=/c"), "--output"),
        (("--output=s3://bucket/model",), ""),
        (("--output=/out", "--platform=local"), ""),
        (("--checkpoint_steps=5",), "--checkpoint_steps"),
        (("--checkpoint_steps=5", "--checkpoint_dir=/c", "--volume=host_path=/,mount_path=/c"), ""),
        (("--checkpoint_steps=5", STATE), ""),
        (("--output=/elastic/state/model", STATE), "--output"),
    ],
)
def test_results_that_go_with_their_pod_are_told(run, zoo, flags, lost):
    _, _, err = run("train", *REQUIRED, *flags, "--dry_run")
    note = f"note: below no --volume, so it goes with its pod: {lost}\n" if lost else ""
    assert err.replace("note: unused with --platform local: --volume\n", "") == note


# -- kubeconfigs


@pytest.mark.parametrize("command", [("status",), ("train", *REQUIRED), ("kill", "one")])
def test_an_api_server_that_is_down_is_named(run, zoo, kubeconfig, command):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    path = kubeconfig(server=f"https://127.0.0.1:{port}")
    code, out, err = run(*command, "--kubeconfig", path)
    assert (code, out) == (1, "")
    assert err.startswith(f"error: the API server https://127.0.0.1:{port} (from {path}) does not ")
    assert "Connection refused" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "cannot be used"),
        ("{{{", "cannot be used"),
        ("[1, 2]", "cannot be used"),
        ("kind: Config\ncurrent-context: x\ncontexts: []\n", "cannot be used"),
    ],
    ids=["empty", "no-yaml", "no-config", "no-context"],
)
def test_a_bad_kubeconfig_is_one_clear_line(run, tmp_path, content, message):
    path = tmp_path / "bad"
    path.write_text(content)
    code, out, err = run("status", "--kubeconfig", path)
    assert (code, out) == (1, "")
    assert err.startswith("error: kubeconfig ")
    assert str(path) in err
    assert message in err
    assert err.count("\n") == 1


def test_a_kubeconfig_or_context_that_is_not_there_is_said(run, tmp_path, kubeconfig):
    missing = tmp_path / "none"
    assert run("status", "--kubeconfig", missing)[1:] == (
        "", f"error: kubeconfig {missing} is not there: name another file\n"
    )  # fmt: skip
    code, _, err = run("status", "--kubeconfig", kubeconfig(), "--context", "nope")
    assert code == 1
    assert "nope" in err


# -- install and doctor, as far as they need no cluster


def test_install_prints_what_a_namespace_needs(run):
    code, out, err = run("install", "-n", "team", "--create-namespace", "--priority_classes",
                         "--submitter", "jane")  # fmt: skip
    assert code == 0
    assert err == "note: nothing has been changed: give --apply to bring the cluster to it\n"
    kinds = [document["kind"] for document in yaml.safe_load_all(out)]
    assert kinds == [
        "Namespace", "ServiceAccount", "Role", "RoleBinding", "Role", "RoleBinding",
        "PriorityClass", "PriorityClass",
    ]  # fmt: skip
    assert {d["metadata"].get("namespace", "team") for d in yaml.safe_load_all(out)} == {"team"}


def test_install_takes_the_namespace_of_the_context(run, kubeconfig):
    _, out, _ = run("install", "--kubeconfig", kubeconfig(namespace="blue"))
    assert next(yaml.safe_load_all(out))["metadata"]["namespace"] == "blue"


def test_the_doctor_goes_on_without_a_cluster(run):
    code, out, _ = run("doctor")
    lines = [line for line in out.splitlines() if not line.startswith(" ")]
    assert code == 1
    assert lines[0].startswith("fail  cluster: no Kubernetes cluster is configured")
    subjects = [line[6:].partition(":")[0] for line in lines]
    # Whatever extras there are to tell about follow.
    asked = [subject for subject in subjects if not subject.startswith("extra ")]
    assert asked == ["cluster", "Docker engine", "registry", "frameworks", "distribution"]


def test_the_doctor_of_one_machine_asks_no_cluster(run, tmp_path):
    code, out, _ = run("doctor", "--platform=local")
    assert code == 0
    assert f"ok    home: jobs are kept in {tmp_path}" in out


@pytest.mark.parametrize("answer", [200, 401, 404, None])
def test_the_doctor_asks_the_registry(run, answer, registry_that_answers):
    host = registry_that_answers(answer)
    _, out, _ = run("doctor", "--docker_image_repository", f"{host}/team")
    (line,) = [line for line in out.splitlines() if "registry:" in line]
    expected = {
        200: f"ok    registry: {host} answers",
        401: f"ok    registry: {host} answers and wants to know who you are",
        404: f"fail  registry: {host} answers with 404 Not Found, so it may be no registry",
        None: f"fail  registry: {host} does not answer: [Errno 111] Connection refused",
    }
    assert line == expected[answer]
