"""What is made of a TrainingJob, field by field."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from elastic.controller.kinds.training_look import child_of, template_digest
from elastic.controller.resources.training_job import Role, read_job

EXAMPLES = Path(__file__).parents[3] / "manifests/examples"
LEAST = {"pserver": {"min-instance": 1}, "trainer": {"min-instance": 1}}


def read(spec):
    reading = read_job({"metadata": {"name": "j"}, "spec": spec})
    assert reading.spec is not None, reading.problem
    return reading.spec


def example(version):
    return read_job(yaml.safe_load((EXAMPLES / f"trainingjob-{version}.yaml").read_text())).spec


def pod_of(role, spec, job="j"):
    return child_of(job, role, spec, 1)["spec"]["template"]["spec"]


def container_of(role, spec):
    [container] = pod_of(role, spec)["containers"]
    return container


def environment_of(role, spec):
    return {each["name"]: each.get("value") for each in container_of(role, spec)["env"]}


ENVIRONMENT = [
    {"name": "PADDLE_JOB_NAME", "value": "paddlejob"},
    {"name": "TRAINERS", "value": "2"},
    {"name": "PSERVERS", "value": "2"},
    {"name": "ENTRY", "value": "python train.py"},
    {"name": "TOPOLOGY", "value": "python train.py"},
    {"name": "TRAINER_PACKAGE", "value": "/home/job-1/"},
    {"name": "PADDLE_INIT_PORT", "value": "7164"},
    {"name": "PADDLE_INIT_PORTS_NUM", "value": "1"},
    {"name": "PADDLE_INIT_PORTS_NUM_FOR_SPARSE", "value": "1"},
    {"name": "PADDLE_INIT_TRAINER_COUNT", "value": "1"},
    {"name": "PADDLE_INIT_NUM_GRADIENT_SERVERS", "value": "2"},
    {"name": "PADDLE_INIT_NUM_PASSES", "value": "10"},
    {"name": "PADDLE_INIT_USE_GPU", "value": "0"},
    {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
    {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
]
LARGE = {
    "limits": {"cpu": "800m", "memory": "1Gi"},
    "requests": {"cpu": "500m", "memory": "600Mi"},
}
SMALL = {
    "limits": {"cpu": "200m", "memory": "200Mi"},
    "requests": {"cpu": "200m", "memory": "200Mi"},
}


def expected_pod(role, command, resources, policy):
    return {
        "containers": [
            {
                "name": role,
                "image": "paddlepaddle/paddlecloud-job",
                "command": command,
                "ports": [
                    {"name": "jobport-7164", "containerPort": 7164},
                    {"name": "jobport-7165", "containerPort": 7165},
                ],
                "env": ENVIRONMENT,
                "resources": resources,
                "volumeMounts": [{"name": "job", "mountPath": "/home/work/namespace/"}],
            }
        ],
        "restartPolicy": policy,
        "volumes": [{"name": "job", "emptyDir": {}}],
    }


def expected_replica_set(role, label, size, command, digest_):
    labels = {label: "paddlejob"}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"paddlejob-{role}",
            "labels": labels,
            "annotations": {"elastic.dev/made-from": digest_},
        },
        "spec": {
            "replicas": size,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": expected_pod(role, command, LARGE, "Always"),
            },
        },
    }


@pytest.mark.parametrize("version", ["v1", "v1alpha1"])
class TestThePublishedExamples:
    def test_master(self, version):
        spec = example(version)
        assert child_of("paddlejob", Role.MASTER, spec, 1) == expected_replica_set(
            "master", "paddle-job-master", 1, ["paddle_k8s", "start_master"], template_digest(spec)
        )

    def test_pservers(self, version):
        spec = example(version)
        assert child_of("paddlejob", Role.PSERVER, spec, 2) == expected_replica_set(
            "pserver",
            "paddle-job-pserver",
            2,
            ["paddle_k8s", "start_pserver"],
            template_digest(spec),
        )

    def test_trainers(self, version):
        spec = example(version)
        command = ["paddle_k8s", "start_trainer", "v2"]
        labels = {"paddle-job": "paddlejob"}
        assert child_of("paddlejob", Role.TRAINER, spec, 2) == {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": "paddlejob-trainer",
                "labels": labels,
                "annotations": {"elastic.dev/made-from": template_digest(spec)},
            },
            "spec": {
                "parallelism": 2,
                "backoffLimit": 2**31 - 1,
                "template": {
                    "metadata": {"labels": labels},
                    "spec": expected_pod("trainer", command, SMALL, "Never"),
                },
            },
        }


@pytest.mark.parametrize(
    ("role", "command"),
    [
        (Role.MASTER, ["paddle_k8s", "start_master"]),
        (Role.PSERVER, ["paddle_k8s", "start_new_pserver"]),
        (Role.TRAINER, ["paddle_k8s", "start_new_trainer"]),
    ],
)
def test_commands_with_fault_tolerance(role, command):
    spec = read(LEAST | {"fault_tolerant": True, "master": {}})
    assert container_of(role, spec)["command"] == command


@pytest.mark.parametrize("role", list(Role))
def test_a_command_of_ones_own(role):
    fields = {each: {"min-instance": 1} for each in ("pserver", "trainer")} | {"master": {}}
    fields[role.value] = fields[role.value] | {"command": ["sh", "-c", "exit 3"]}
    commands = {each: container_of(each, read(fields))["command"] for each in Role}
    assert commands[role] == ["sh", "-c", "exit 3"]
    assert all(command[0] == "paddle_k8s" for each, command in commands.items() if each != role)


@pytest.mark.parametrize(
    ("resources", "count", "uses_gpu"),
    [
        ({}, "1", "0"),
        ({"requests": {"cpu": "200m"}}, "1", "0"),
        ({"requests": {"cpu": "3500m"}, "limits": {"cpu": 8}}, "3", "0"),
        ({"limits": {"cpu": "4"}}, "4", "0"),
        ({"limits": {"cpu": 8, "nvidia.com/gpu": 2}}, "2", "1"),
        ({"limits": {"alpha.kubernetes.io/nvidia-gpu": "1"}}, "1", "1"),
        ({"limits": {"nvidia.com/gpu": 0}}, "1", "0"),
    ],
)
def test_as_many_threads_as_devices(resources, count, uses_gpu):
    spec = read(LEAST | {"trainer": {"min-instance": 1, "resources": resources}})
    environment = environment_of(Role.PSERVER, spec)
    assert environment["PADDLE_INIT_TRAINER_COUNT"] == count
    assert environment["PADDLE_INIT_USE_GPU"] == uses_gpu


def test_the_environment_tells_the_minimum_whatever_the_size():
    spec = read({"pserver": {"min-instance": 2}, "trainer": {"min-instance": 3}})
    assert (
        child_of("j", Role.TRAINER, spec, 3)["spec"]["template"]
        == (child_of("j", Role.TRAINER, spec, 9)["spec"]["template"])
    )
    environment = environment_of(Role.TRAINER, spec)
    told = [environment[name] for name in ("TRAINERS", "PADDLE_INIT_NUM_GRADIENT_SERVERS")]
    assert (told, environment["PSERVERS"]) == (["3", "3"], "2")


def test_ports_count_up_from_the_first():
    spec = read(LEAST | {"port": 8000, "ports_num": 2, "ports_num_for_sparse": 3})
    ports = container_of(Role.PSERVER, spec)["ports"]
    assert [port["containerPort"] for port in ports] == [8000, 8001, 8002, 8003, 8004]
    assert len({port["name"] for port in ports}) == 5
    assert all(len(port["name"]) <= 15 for port in ports), "names of ports have 15 characters"


def test_on_the_network_of_the_node_only_who_listens_takes_ports():
    spec = read(LEAST | {"host_network": True, "master": {}})
    pods = {role: pod_of(role, spec) for role in Role}
    assert all(pod["hostNetwork"] for pod in pods.values())
    assert {pod["dnsPolicy"] for pod in pods.values()} == {"ClusterFirstWithHostNet"}
    assert [role for role, pod in pods.items() if "ports" in pod["containers"][0]] == [Role.PSERVER]
    assert "hostNetwork" not in pod_of(Role.TRAINER, read(LEAST))


DATA = {"name": "data", "persistentVolumeClaim": {"claimName": "flowers"}}
TEMPORARY = {"name": "tmp", "emptyDir": {}}


@pytest.mark.parametrize(
    ("fields", "volumes", "mounts"),
    [
        ({}, None, None),
        (
            {"mountPath": "/w"},
            [{"name": "job", "emptyDir": {}}],
            [{"name": "job", "mountPath": "/w"}],
        ),
        (
            {"mountPath": "/w", "volumes": [DATA, TEMPORARY]},
            [DATA, TEMPORARY],
            [{"name": "data", "mountPath": "/w"}],
        ),
        (
            {
                "mountPath": "/w",
                "volumes": [DATA, TEMPORARY],
                "volumeMounts": [{"name": "tmp", "mountPath": "/t"}],
            },
            [DATA, TEMPORARY],
            [{"name": "data", "mountPath": "/w"}, {"name": "tmp", "mountPath": "/t"}],
        ),
        (
            {
                "mountPath": "/w",
                "volumes": [DATA],
                "volumeMounts": [{"name": "data", "mountPath": "/w", "readOnly": True}],
            },
            [DATA],
            [{"name": "data", "mountPath": "/w", "readOnly": True}],
        ),
    ],
)
@pytest.mark.parametrize("role", list(Role))
def test_volumes(role, fields, volumes, mounts):
    pod = pod_of(role, read(LEAST | fields))
    assert (pod.get("volumes"), pod["containers"][0].get("volumeMounts")) == (volumes, mounts)


@pytest.mark.parametrize("role", list(Role))
def test_what_is_passed_on_as_it_is(role):
    fields = {
        "image": "registry/edl:2",
        "nodeSelector": {"disk": "ssd"},
        "imagePullSecrets": [{"name": "login"}],
        "tolerations": [{"key": "spot", "operator": "Exists"}],
    }
    pod = pod_of(role, read(LEAST | fields))
    assert pod["containers"][0]["image"] == "registry/edl:2"
    assert pod["tolerations"] == fields["tolerations"]
    assert (pod["nodeSelector"], pod["imagePullSecrets"]) == ({"disk": "ssd"}, [{"name": "login"}])


def test_no_pod_has_the_label_of_another_role():
    spec = read(LEAST | {"master": {}})
    labels = [
        child_of("j", role, spec, 1)["spec"]["template"]["metadata"]["labels"] for role in Role
    ]
    assert labels == [{"paddle-job-master": "j"}, {"paddle-job-pserver": "j"}, {"paddle-job": "j"}]


def test_the_digest_is_of_all_but_sizes():
    base = template_digest(read(LEAST))
    sizes = {"pserver": {"min-instance": 2, "max-instance": 3}, "trainer": {"min-instance": 4}}
    assert template_digest(read(sizes)) == base
    assert template_digest(read(LEAST | {"image": "other"})) != base
    assert template_digest(read(LEAST | {"trainer": {"min-instance": 1, "command": ["x"]}})) != base


def test_the_example_that_trains_can_be_read():
    job = yaml.safe_load((EXAMPLES / "trainingjob-line.yaml").read_text())
    reading = read_job(job)
    assert (reading.problem, reading.unknown) == ("", ())
    program = reading.spec.trainer.command[2]
    environment = {"PADDLE_INIT_NUM_PASSES": str(reading.spec.num_passes)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("y = ")
