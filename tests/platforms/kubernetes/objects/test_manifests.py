"""The objects of a job."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from elastic.errors import JobSpecError
from elastic.platforms.base import JobControl, ReplicaId
from elastic.platforms.certificates import make_certificate
from elastic.platforms.kubernetes.objects import manifests, names, podspec
from elastic.platforms.kubernetes.objects.manifests import (
    Submission,
    control_of,
    spec_of,
    status_of,
    submission_of,
)
from elastic.platforms.kubernetes.objects.names import Owner
from elastic.platforms.kubernetes.objects.podspec import Hook, Job, merge, read_hook
from elastic.spec.job import JobSpec
from elastic.spec.roles import ROLES
from elastic.spec.status import JobPhase, JobStatus

GUIDE = Path(__file__).parents[4] / "docs" / "kubernetes.md"
OWNER = Owner("elastic-j-master", "uid-m")
WORKER = ReplicaId("worker", 3, 2)


def make_job(hook=None, **settings):
    required = {
        "job_name": "j",
        "model_zoo": "/home/me/zoo",
        "model_def": "a.B",
        "training_data_dir": "/data",
        "minibatch_size": 1,
        "num_workers": 4,
    }
    spec = manifests.spec_for_pods(JobSpec(**(required | settings)), hook)
    return Job(spec, "ns", "uid-s", "img:1", hook)


def container_of(pod):
    (container,) = pod["spec"]["containers"]
    return container


def env_of(pod):
    return {entry["name"]: entry.get("value") for entry in container_of(pod)["env"]}


def test_every_object_is_named_and_labelled_as_the_jobs():
    job = make_job()
    submission = Submission("uid-s", 1.0, "img:1")
    objects = {
        "elastic-j": manifests.record(job, submission),
        "elastic-j-status": manifests.status(job, JobStatus(job_name="j")),
        "elastic-j-token": manifests.token_secret(job, "t", OWNER),
        "elastic-j-master": manifests.master_pod(job),
        "elastic-j-worker-3": manifests.replica_pod(job, WORKER, OWNER),
    }
    for name, manifest in [*objects.items(), ("elastic-j-master", manifests.service(job, OWNER))]:
        metadata = manifest["metadata"]
        assert (metadata["name"], metadata["namespace"]) == (name, "ns")
        labels = {"app": "elastic", "elastic-job-name": "j", "elastic-submission": "uid-s"}
        assert labels.items() <= metadata["labels"].items()
        is_owned = (
            name in ("elastic-j-token", "elastic-j-worker-3") or manifest["kind"] == "Service"
        )
        assert ("ownerReferences" in metadata) == is_owned


def test_a_certificate_is_in_the_secret_and_nowhere_else():
    job, certificate = make_job(), make_certificate("a" * 64)
    secret = manifests.token_secret(job, "t", OWNER, certificate)
    data = {"token": "t", "tls.crt": certificate.chain, "tls.key": certificate.key}
    assert secret["stringData"] == data
    assert manifests.token_secret(job, "t")["stringData"] == {"token": "t"}
    # Pods mount all of it.
    for pod in (manifests.master_pod(job), manifests.replica_pod(job, WORKER, OWNER)):
        [volume] = [each for each in pod["spec"]["volumes"] if each["name"] == "token"]
        assert volume["secret"] == {"secretName": "elastic-j-token", "defaultMode": 0o440}


@pytest.mark.parametrize(
    ("settings", "tls"), [({}, True), ({"tls": True}, True), ({"tls": False}, False)]
)
def test_pods_and_meshes_are_told_whether_they_encrypt(settings, tls):
    job = make_job(**settings)
    assert job.spec.tls is tls
    # What a mesh goes by.
    ports = manifests.service(job)["spec"]["ports"]
    expected = ["tls", "tls-calls"] if tls else ["grpc", "tcp-calls"]
    assert [port["name"] for port in ports] == expected


def test_commands_are_such_as_images_with_another_version_of_elastic_know():
    python = ["python", "-P", "-m"]
    first = ["elastic.platforms.kubernetes.supervisor", "/elastic/state", "/dev/termination-log"]
    assert container_of(manifests.master_pod(make_job()))["command"] == [
        *python, *first, *python, "elastic.master", "--kubernetes",
    ]  # fmt: skip
    assert container_of(manifests.replica_pod(make_job(), WORKER, OWNER))["command"] == [
        *python, "elastic.worker", "--kubernetes", "--index", "3", "--launch", "2",
    ]  # fmt: skip
    board = manifests.board_pod(make_job(tensorboard_log_dir="/events"), OWNER, None)
    assert container_of(board)["command"][:4] == [*python, "elastic.telemetry.board"]


def test_the_pod_of_a_further_role_is_made_from_its_row(monkeypatch):
    row = replace(
        ROLES["worker"], name="ps", module="elastic.ps", priority="master_pod_priority",
        resource_request="master_resource_request", resource_limit="master_resource_limit",
    )  # fmt: skip
    for module in (manifests, podspec):
        monkeypatch.setattr(module, "ROLES", {**ROLES, "ps": row})
    settings = {"master_resource_request": "cpu=7", "master_pod_priority": "urgent"}
    pod = manifests.replica_pod(make_job(**settings), ReplicaId("ps", 0, 2), OWNER)
    assert pod["metadata"]["name"] == "elastic-j-ps-0"
    assert pod["metadata"]["labels"]["elastic-replica-type"] == "ps"
    assert pod["spec"]["priorityClassName"] == "urgent"
    container = container_of(pod)
    assert container["resources"]["requests"]["cpu"] == "7"
    assert container["command"][3:] == [
        "elastic.ps",
        "--kubernetes",
        *["--index", "0", "--launch", "2"],
    ]
    assert "state" not in {mount["name"] for mount in container["volumeMounts"]}


def test_no_object_blocks_the_deletion_of_its_owner_which_takes_a_right_of_its_own():
    for manifest in (
        manifests.token_secret(make_job(), "t", OWNER),
        manifests.service(make_job(), OWNER),
    ):
        (owner,) = manifest["metadata"]["ownerReferences"]
        assert owner == {
            "apiVersion": "v1", "kind": "Pod", "name": OWNER.name, "uid": OWNER.uid,
            "controller": True,
        }  # fmt: skip


def test_the_record_comes_back_as_it_was_written():
    job, submission = make_job(), Submission("uid-s", 1.5, "img:1")
    control = JobControl(num_workers=3, cancelled=True)
    record = manifests.record(job, submission, control)
    assert spec_of(record) == job.spec
    assert submission_of(record) == submission
    assert control_of(record) == control
    status = JobStatus(job_name="j", phase=JobPhase.FAILED, message="ü")
    assert status_of(manifests.status(job, status)) == status


def test_pods_know_their_own_paths_not_the_laptops():
    spec = spec_of(manifests.record(make_job(), Submission("u", 1.0, "i")))
    assert str(spec.model_zoo) == "/model_zoo"
    assert spec.cluster_spec == ""


def test_master_and_worker_differ_in_what_they_may_and_how_they_restart():
    master = manifests.master_pod(make_job())["spec"]
    worker = manifests.replica_pod(make_job(), WORKER, OWNER)["spec"]
    assert (master["restartPolicy"], worker["restartPolicy"]) == ("OnFailure", "Never")
    assert master["serviceAccountName"] == "elastic-master"
    assert worker["automountServiceAccountToken"] is False
    assert {"name": "state", "emptyDir": {}} in master["volumes"]
    assert "state" not in {volume["name"] for volume in worker["volumes"]}
    assert container_of({"spec": worker})["command"][-4:] == ["--index", "3", "--launch", "2"]


@pytest.mark.parametrize("make", [manifests.master_pod, manifests.example_pod])
def test_pods_are_as_restricted_as_clusters_may_demand(make):
    """What the Pod Security Standard `restricted` asks for."""
    pod = make(make_job())
    security = pod["spec"]["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] > 0
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container_of(pod)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


PODS = [manifests.master_pod, manifests.example_pod]
TMP_VOLUME = {"name": "elastic-tmp", "emptyDir": {}}
TMP_MOUNT = {"name": "elastic-tmp", "mountPath": "/tmp"}


class TestWherePodsMayWrite:
    """The root of their file system is read-only, and /tmp a volume."""

    def tmp_of(self, pod):
        volumes = [v for v in pod["spec"]["volumes"] if v["name"] == "elastic-tmp"]
        mounts = [m for m in container_of(pod)["volumeMounts"] if m["mountPath"] == "/tmp"]
        return volumes, mounts

    @pytest.mark.parametrize("make", PODS)
    def test_below_tmp_where_homes_and_caches_are(self, make):
        assert self.tmp_of(make(make_job())) == ([TMP_VOLUME], [TMP_MOUNT])
        assert env_of(make(make_job()))["HOME"] == "/tmp"

    @pytest.mark.parametrize("make", PODS)
    def test_the_users_own_volume_may_take_its_place(self, make):
        pod = make(make_job(volume="claim_name=c,mount_path=/tmp/"))
        assert self.tmp_of(pod) == ([], [{"name": "user-0", "mountPath": "/tmp"}])
        # Others do not, those below it included.
        pod = make(make_job(volume="claim_name=c,mount_path=/tmp/x"))
        assert self.tmp_of(pod) == ([TMP_VOLUME], [TMP_MOUNT])

    @pytest.mark.parametrize("make", PODS)
    def test_a_cluster_spec_may_say_otherwise(self, make):
        section = GUIDE.read_text().partition("## Where pods may write\n")[2]
        text = section.partition("```yaml\n")[2].partition("```")[0]
        pod = make(make_job(Hook("cluster_spec.yaml", text)))
        (volume,), mounts = self.tmp_of(pod)
        assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Gi"}
        assert mounts == [TMP_MOUNT]
        assert container_of(pod)["securityContext"]["readOnlyRootFilesystem"] is False
        assert container_of(pod)["securityContext"]["capabilities"] == {"drop": ["ALL"]}

    @pytest.mark.parametrize("make", PODS)
    def test_a_cluster_spec_may_mount_its_own_there(self, make):
        text = (
            "from kubernetes.client import V1VolumeMount\n"
            "class cluster:\n"
            "    @staticmethod\n"
            "    def with_pod(pod):\n"
            "        mount = V1VolumeMount(name='mine', mount_path='/tmp')\n"
            "        pod.spec.containers[0].volume_mounts.append(mount)\n"
        )
        _, mounts = self.tmp_of(make(make_job(Hook("cluster_spec.py", text))))
        assert mounts == [{"name": "mine", "mountPath": "/tmp"}]
        text = "spec: {containers: [{name: elastic, volumeMounts: [{name: m, mountPath: /tmp}]}]}"
        _, mounts = self.tmp_of(make(make_job(Hook("cluster_spec.yaml", text))))
        assert mounts == [{"name": "m", "mountPath": "/tmp"}]


@pytest.mark.parametrize("make", PODS)
def test_secrets_become_variables_and_ours_win(make):
    pod = make(make_job(env_secret="keys,more", envs={"A": "1"}))
    assert container_of(pod)["envFrom"] == [
        {"secretRef": {"name": "keys"}},
        {"secretRef": {"name": "more"}},
    ]
    # Kubernetes has what stands in env win over envFrom.
    assert {"A", "HOME", "ELASTIC_JOB_NAME"} <= env_of(pod).keys()
    assert container_of(make(make_job()))["envFrom"] == []


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, (50_001, 50_002)),
        ({"master_port": 6000}, (6000, 6001)),
        ({"master_port": 6000, "metrics_port": 6001}, (6000, 5999)),
        ({"master_port": 65_535}, (65_535, 65_534)),
        ({"master_port": 65_535, "metrics_port": 65_534}, (65_535, 65_533)),
    ],
)
def test_the_service_selects_the_master_and_leads_to_its_ports(settings, expected):
    service = manifests.service(make_job(**settings), OWNER)
    labels = manifests.master_pod(make_job())["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    ports = service["spec"]["ports"]
    assert [each["port"] for each in ports] == [50_001, 50_002]
    assert tuple(each["targetPort"] for each in ports) == expected
    assert env_of(manifests.example_pod(make_job()))["ELASTIC_MASTER_ADDRESS"] == (
        "elastic-j-master.ns.svc:50001"
    )


def test_resources_name_the_limit_or_take_the_request_for_it():
    pod = manifests.example_pod(
        make_job(
            worker_resource_request="cpu=2,memory=4Gi,disk=1Gi,gpu=1",
            worker_resource_limit="cpu=3,memory=5Gi",
        )
    )
    assert container_of(pod)["resources"] == {
        "requests": {
            "cpu": "2", "memory": "4Gi", "ephemeral-storage": "1Gi", "nvidia.com/gpu": "1",
        },
        "limits": {"cpu": "3", "memory": "5Gi", "nvidia.com/gpu": "1"},
    }  # fmt: skip
    resources = container_of(manifests.master_pod(make_job()))["resources"]
    assert resources["limits"] == resources["requests"] == {"cpu": "0.1", "memory": "1024Mi"}


@pytest.mark.parametrize(
    ("priority", "expected"),
    [
        ("", [None] * 4),
        ("gold", ["gold"] * 4),
        ("0.5", ["high", "high", "low", "low"]),
        ("0.3", ["high", "high", "low", "low"]),
        ("0", ["low"] * 4),
        ("1.0", ["high"] * 4),
    ],
)
def test_a_fraction_of_the_workers_is_high(priority, expected):
    job = make_job(worker_pod_priority=priority, master_pod_priority="boss")
    pods = [manifests.replica_pod(job, ReplicaId("worker", i, 1), OWNER) for i in range(4)]
    assert [pod["spec"].get("priorityClassName") for pod in pods] == expected
    assert manifests.master_pod(job)["spec"]["priorityClassName"] == "boss"


def test_volumes_are_mounted_in_master_and_workers():
    job = make_job(
        volume="claim_name=c,mount_path=/data,sub_path=a,read_only=true;"
        "host_path=/d,mount_path=/e,type=Directory"
    )
    for pod in (manifests.master_pod(job), manifests.example_pod(job)):
        volumes, mounts = pod["spec"]["volumes"], container_of(pod)["volumeMounts"]
        assert {"name": "user-0", "persistentVolumeClaim": {"claimName": "c"}} in volumes
        assert {"name": "user-1", "hostPath": {"path": "/d", "type": "Directory"}} in volumes
        assert {
            "name": "user-0", "mountPath": "/data", "subPath": "a", "readOnly": True,
        } in mounts  # fmt: skip
        assert {"name": "user-1", "mountPath": "/e"} in mounts


class TestAVolumeForTheState:
    """Cuts that outlive the master's pod: in its pod alone, below a folder of the job's own."""

    def mounts(self, **settings):
        pod = manifests.master_pod(make_job(**settings))
        return {m["mountPath"]: m for m in container_of(pod)["volumeMounts"]}, pod["spec"][
            "volumes"
        ]

    def test_the_master_keeps_its_cuts_there_and_the_rest_in_its_pod(self):
        mounts, volumes = self.mounts(volume="claim_name=c,mount_path=/elastic/state,sub_path=a")
        assert {"name": "kept-state", "persistentVolumeClaim": {"claimName": "c"}} in volumes
        assert {"name": "state", "emptyDir": {}} in volumes
        # What a master counts of its own lives must not be another pod's.
        assert mounts["/elastic/state"] == {"name": "state", "mountPath": "/elastic/state"}
        for name in ("cuts", "checkpoints"):
            path = f"/elastic/state/{name}"
            assert mounts[path] == {
                "name": "kept-state", "mountPath": path, "subPath": f"a/j/uid-s/{name}",
            }  # fmt: skip

    def test_workers_have_none_of_it(self):
        volume = "host_path=/s,mount_path=/elastic/state;host_path=/d,mount_path=/d"
        worker = manifests.example_pod(make_job(volume=volume))
        names_ = [volume["name"] for volume in worker["spec"]["volumes"]]
        assert names_ == ["job", "token", "elastic-tmp", "user-1"]
        paths = [mount["mountPath"] for mount in container_of(worker)["volumeMounts"]]
        assert paths == ["/elastic/job", "/elastic/token", "/tmp", "/d"]

    def test_the_record_tells_whose_folder_it_is(self):
        submission = Submission("uid-s", 1.0, "img:1")
        assert "state_of" not in manifests.record(make_job(), submission)["data"]
        kept = make_job(volume="host_path=/s,mount_path=/elastic/state")
        assert manifests.record(kept, submission)["data"]["state_of"] == "uid-s"
        resumed = replace(kept, resumed_uid="uid-1")
        assert manifests.record(resumed, submission)["data"]["state_of"] == "uid-1"
        (mount,) = [
            m
            for m in container_of(manifests.master_pod(resumed))["volumeMounts"]
            if m["mountPath"] == "/elastic/state/cuts"
        ]
        assert mount["subPath"] == "j/uid-1/cuts"


def test_the_users_environment_is_passed_on_but_not_over_ours():
    job = make_job(envs={"A": "x,$(B)", "HOME": "/home"})
    env = env_of(manifests.example_pod(job))
    # Unescaped, Kubernetes would put another variable's value there.
    assert env["A"] == "x,$$(B)"
    assert env["HOME"] == "/home"
    assert env["ELASTIC_JOB_NAME"] == "j"
    assert env["ELASTIC_REPLICA"] == "worker-0-1"
    names_ = [entry["name"] for entry in container_of(manifests.example_pod(job))["env"]]
    assert len(names_) == len(set(names_))


def test_where_pods_may_run_and_what_pulls_their_image():
    pod = manifests.example_pod(
        make_job(
            node_selector="disk=ssd,zone=a",
            tolerations="gpu=true:NoSchedule,spot:NoExecute,any,*",
            image_pull_secrets="one,two",
            image_pull_policy="Never",
        )
    )["spec"]
    assert pod["nodeSelector"] == {"disk": "ssd", "zone": "a"}
    assert pod["tolerations"][:4] == [
        {"operator": "Equal", "key": "gpu", "value": "true", "effect": "NoSchedule"},
        {"operator": "Exists", "key": "spot", "effect": "NoExecute"},
        {"operator": "Exists", "key": "any"},
        {"operator": "Exists"},
    ]
    assert pod["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]
    assert pod["containers"][0]["imagePullPolicy"] == "Never"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tolerations": "gpu=true:Sometimes"}, "no effect of a taint"),
        ({"tolerations": "gp u"}, "is not of the form"),
        ({"tolerations": "*=true"}, "tolerates every taint, so it can have no value"),
        ({"node_selector": "zone=a b"}, "no label"),
        ({"image_pull_secrets": "A_b"}, "no name of an object"),
        ({"volume": "claim_name=a,mount_path=/d;host_path=/b,mount_path=/d"}, "two volumes"),
        ({"volume": "claim_name=a,mount_path=/d,read_only=maybe"}, "neither true nor false"),
        ({"volume": "claim_name=a,mount_path=/d;host_path=/b,mount_path=/d/"}, "two volumes"),
        ({"volume": ";"}, "';' names no volume"),
        ({"volume": "claim_name=a,mount_path=/"}, "mount_path=/ would hide the whole image"),
        ({"volume": "claim_name=a,mount_path=//"}, "mount_path=// would hide"),
        ({"volume": "claim_name=a,mount_path=/a/../b"}, r"holds ':' or '\.\.'"),
        ({"volume": "claim_name=a,mount_path=/a:b"}, r"holds ':' or '\.\.'"),
        ({"volume": "claim_name=a,mount_path=/elastic/token"}, "is the project's own"),
        ({"volume": "claim_name=a,mount_path=/elastic/"}, "is the project's own"),
        ({"volume": "claim_name=a,mount_path=/elastic/state,read_only=true"}, "leave read_only"),
        ({"volume": "claim_name=A_B,mount_path=/d"}, "claim_name=A_B is no name of a claim"),
        ({"image": "foo bar"}, "'foo bar' is no reference of an image"),
        ({"image": "Upper"}, "no reference of an image"),
        ({"image": "a:tag:tag"}, "no reference of an image"),
        ({"image_base": "a//b"}, "no reference of an image"),
        ({"envs": "A=1,ELASTIC_REPLICA=b"}, "ELASTIC_REPLICA is reserved"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        make_job(**settings)


@pytest.mark.parametrize(
    "image",
    [
        "a",
        "elastic:ci",
        "127.0.0.1:5000/x/elastic:93df",
        "registry.example.com/team_a/sub-team/name__x.y:V1.0-rc_1",
        "localhost/a@sha256:" + "0" * 64,
        "Registry.Example.com:443/a/b:t@sha256:" + "0" * 64,
    ],
)
def test_references_of_images_are_taken(image):
    assert make_job(image=image).spec.image == image


PYTHON_HOOK = """
class Cluster:
    def with_pod(self, pod):
        pod.spec.node_name = "special"
        pod.metadata.labels = {"mine": "yes", "app": "stolen"}
        pod.spec.containers[0].command = ["sleep"]
        return pod

    def with_service(self, service):
        service.metadata.annotations = {"a": "b"}

cluster = Cluster()
"""

YAML_HOOK = """
metadata:
  annotations: {team: red}
spec:
  hostNetwork: true
  containers:
  - name: elastic
    env: [{name: EXTRA, value: "1"}, {name: ELASTIC_JOB_NAME, value: stolen}]
  - name: sidecar
    image: proxy
"""


class TestClusterSpec:
    def read(self, tmp_path, name, text):
        path = tmp_path / name
        path.write_text(text)
        return read_hook(str(path))

    def test_python_edits_pods_and_services_as_the_clients_objects(self, tmp_path):
        job = make_job(self.read(tmp_path, "spec.py", PYTHON_HOOK))
        pod = manifests.replica_pod(job, WORKER, OWNER)
        assert pod["spec"]["nodeName"] == "special"
        assert manifests.service(job)["metadata"]["annotations"] == {"a": "b"}
        # Nothing that the job lives by has changed.
        plain = manifests.replica_pod(make_job(), WORKER, OWNER)
        assert container_of(pod)["command"] == container_of(plain)["command"]
        assert pod["metadata"]["labels"] == plain["metadata"]["labels"] | {"mine": "yes"}
        assert pod["metadata"]["ownerReferences"] == plain["metadata"]["ownerReferences"]

    def test_yaml_is_merged_by_name(self, tmp_path):
        job = make_job(self.read(tmp_path, "spec.yml", YAML_HOOK))
        pod = manifests.master_pod(job)
        assert pod["metadata"]["annotations"]["team"] == "red"
        assert pod["spec"]["hostNetwork"] is True
        assert [c["name"] for c in pod["spec"]["containers"]] == ["elastic", "sidecar"]
        env = {e["name"]: e.get("value") for e in pod["spec"]["containers"][0]["env"]}
        assert (env["EXTRA"], env["ELASTIC_JOB_NAME"]) == ("1", "j")
        assert manifests.service(job) == manifests.service(make_job())

    def test_it_is_shipped_to_the_master(self, tmp_path):
        hook = self.read(tmp_path, "spec.py", PYTHON_HOOK)
        job = make_job(hook)
        assert job.spec.cluster_spec == "/elastic/job/cluster_spec.py"
        record = manifests.record(job, Submission("u", 1.0, "i"))
        assert record["data"]["cluster_spec.py"] == PYTHON_HOOK
        (volume,) = [v for v in manifests.master_pod(job)["spec"]["volumes"] if v["name"] == "job"]
        keys = [item["key"] for item in volume["configMap"]["items"]]
        assert keys == [names.SPEC_KEY, names.SUBMISSION_KEY, "cluster_spec.py"]

    @pytest.mark.parametrize(
        ("name", "text", "message"),
        [
            pytest.param("a.txt", "", "neither a .py nor a .yaml", id="suffix"),
            pytest.param("a.py", "1/0", "ZeroDivisionError", id="raises"),
            pytest.param("a.py", "raise SystemExit(0)", "SystemExit", id="ends-the-process"),
            pytest.param("a.py", "x = 1", "no object named 'cluster'", id="no-cluster"),
            pytest.param("a.yaml", "[1", "not YAML", id="not-yaml"),
            pytest.param("a.yaml", "kind: Pod", "must be a mapping with", id="not-a-pod"),
            pytest.param("a.yaml", "spec: {a: 2026-01-01}", "type date .* in quotes", id="date"),
            pytest.param("a.yaml", "spec: {a: .nan}", "no pod can have", id="no-number"),
            pytest.param("a.yaml", "spec: &a {b: *a}", "no pod can have", id="in-itself"),
        ],
    )
    def test_a_file_that_cannot_be_used_is_refused_at_once(self, tmp_path, name, text, message):
        with pytest.raises(JobSpecError, match=message):
            self.read(tmp_path, name, text)

    def test_no_file(self):
        assert read_hook("") is None
        with pytest.raises(JobSpecError, match="cannot be read"):
            read_hook("/no/such/file.py")

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("def with_pod(pod): raise KeyError('x')", "KeyError: 'x'"),
            ("def with_pod(pod): return 7", "returned a int"),
            (
                "def with_pod(pod): pod.spec.containers[0].name = 'mine'",
                "has removed the container",
            ),
        ],
    )
    def test_an_edit_that_fails_names_the_method(self, text, message):
        hook = Hook("cluster_spec.py", f"class cluster:\n    @staticmethod\n    {text}")
        with pytest.raises(JobSpecError, match=message):
            manifests.master_pod(make_job(hook))

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("metadata: [a]", "metadata is a list: write a mapping, such as"),
            ("metadata: {labels: [a]}", "metadata.labels is a list: write a mapping, such as"),
            ("spec: []", "spec is a list: write a mapping, such as"),
            ("spec: hostNetwork", "spec is 'hostNetwork': write a mapping, such as"),
            ("spec: {containers: {name: elastic}}", "spec.containers is a mapping: write a list,"),
            ("spec: {containers: [elastic]}", "an item of spec.containers is 'elastic': write a m"),
            ("spec: {initContainers: {name: x}}", "spec.initContainers is a mapping: write a list"),
            ("spec: {volumes: {name: x}}", "spec.volumes is a mapping: write a list, whose items"),
            (
                "spec: {containers: [{name: elastic, env: {A: b}}]}",
                "env of the container 'elastic' is a mapping: write a list, whose items begin",
            ),
            (
                "spec: {containers: [{name: elastic, volumeMounts: {name: x, mountPath: /y}}]}",
                "volumeMounts of the container 'elastic' is a mapping: write a list, whose items",
            ),
        ],
    )
    def test_a_wrong_shape_is_told_with_the_field_and_the_right_one(self, tmp_path, text, said):
        job = make_job(self.read(tmp_path, "spec.yaml", text))
        with pytest.raises(JobSpecError) as caught:
            manifests.master_pod(job)
        assert str(caught.value).startswith(f"cluster_spec (cluster_spec.yaml): {said}")

    def test_names_of_any_shape_are_left_to_the_api_server(self, tmp_path):
        text = "spec: {containers: [{name: {a: b}}], volumes: [{name: [a]}]}"
        pod = manifests.master_pod(make_job(self.read(tmp_path, "spec.yaml", text)))
        assert [c["name"] for c in pod["spec"]["containers"]] == ["elastic", {"a": "b"}]
        assert {"name": ["a"]} in pod["spec"]["volumes"]

    def test_a_wrong_shape_that_python_returns_is_told_too(self):
        text = "class cluster:\n    def {}(o): return {{'metadata': [1], 'spec': {{}}}}\n"
        with pytest.raises(JobSpecError, match=r"\(cluster_spec.py\): metadata is a list"):
            manifests.master_pod(make_job(Hook("cluster_spec.py", text.format("with_pod"))))
        with pytest.raises(JobSpecError, match=r"py\): metadata of the Service is a list"):
            manifests.service(make_job(Hook("cluster_spec.py", text.format("with_service"))))

    def test_merge(self):
        base = {"a": {"x": 1, "y": 2}, "l": [{"name": "n", "v": 1}, {"name": "m"}], "gone": 1}
        change = {"a": {"y": 3}, "l": [{"name": "n", "w": 2}, {"name": "o"}], "gone": None}
        assert merge(base, change) == {
            "a": {"x": 1, "y": 3},
            "l": [{"name": "n", "v": 1, "w": 2}, {"name": "m"}, {"name": "o"}],
        }


def test_the_record_serves_any_reader():
    record = manifests.record(make_job(), Submission("u", 1.0, "i"))
    assert all(json.loads(text) is not None for text in record["data"].values())


PREDICTION = {
    "kind": "predict",
    "training_data_dir": "",
    "prediction_data_dir": "/data/new",
    "model": "/results/model.keras",
    "prediction_outputs": "/results/out",
    "prediction_format": "parquet",
    "volume": "claim_name=c,mount_path=/results",
}


def test_a_job_that_predicts_is_told_by_its_record_and_runs_in_the_same_pods():
    training, predicting = make_job(volume=PREDICTION["volume"]), make_job(**PREDICTION)
    record = manifests.record(predicting, Submission("uid-s", 1.0, "img:1"))
    spec = spec_of(record)
    assert {name: getattr(spec, name) for name in PREDICTION} == PREDICTION
    for pod in (manifests.master_pod, lambda job: manifests.replica_pod(job, WORKER, OWNER)):
        # What the processes are told of the kind is in the record, and nowhere in their pods.
        assert container_of(pod(predicting))["command"] == container_of(pod(training))["command"]
        mounts = container_of(pod(predicting))["volumeMounts"]
        assert "/results" in [mount["mountPath"] for mount in mounts]
