"""The YAML that users of the older controllers have, applied as it is written.

Compared field by field with what its documents say will be made of it. On simulated nodes with its
own images and requests, and on a real one with images that are there.
"""

import collections
import json

import pytest
from support.cluster import (
    eventually,
    make_namespace,
    needs_custom_resources,
    open_cluster,
    remove_namespace,
)
from support.controlled import (
    KINDS,
    ON_SIMULATED,
    TOLERATIONS,
    Applied,
    Controller,
    environment,
    example,
    stand_in,
)
from support.nodes import SimulatedNode

from elastic.platforms.kubernetes.api.resources import BATCH_JOBS, PODS, REPLICA_SETS, SERVICES

pytestmark = needs_custom_resources

needs_simulated_nodes = pytest.mark.skipif(
    not SimulatedNode.names(), reason="the cluster has no simulated node"
)
TINY = {"cpu": "10m", "memory": "32Mi"}


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    with stand_in(tmp_path_factory.mktemp("image")) as name:
        yield name


@pytest.fixture(scope="module")
def apply(tmp_path_factory):
    cluster = open_cluster()
    namespace = make_namespace(cluster, "seeds")
    controller = Controller(namespace, tmp_path_factory.mktemp("controller") / "log")
    controller.start()
    # The API serves a kind moments before it lists it among those that kubectl looks through.
    groups = {kind.group for kind in KINDS}
    eventually(lambda: groups <= {each["name"] for each in cluster.get("/apis")["groups"]})

    def apply(manifest):
        return Applied(cluster, namespace, manifest, by_kubectl=True)

    yield apply
    controller.end()
    assert "Traceback" not in controller.log()
    remove_namespace(cluster, namespace)


# -- TrainingJob

TRAINING_ENVIRONMENT = {
    "PADDLE_JOB_NAME": "paddlejob",
    "TRAINERS": "2",
    "PSERVERS": "2",
    "ENTRY": "python train.py",
    "TOPOLOGY": "python train.py",
    "TRAINER_PACKAGE": "/home/job-1/",
    "PADDLE_INIT_PORT": "7164",
    "PADDLE_INIT_PORTS_NUM": "1",
    "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": "1",
    "PADDLE_INIT_TRAINER_COUNT": "1",
    "PADDLE_INIT_NUM_GRADIENT_SERVERS": "2",
    "PADDLE_INIT_NUM_PASSES": "10",
    "PADDLE_INIT_USE_GPU": "0",
    "NAMESPACE": "metadata.namespace",
    "POD_IP": "status.podIP",
}
SERVER = {
    "limits": {"cpu": "800m", "memory": "1Gi"},
    "requests": {"cpu": "500m", "memory": "600Mi"},
}
TRAINER = {
    "limits": {"cpu": "200m", "memory": "200Mi"},
    "requests": {"cpu": "200m", "memory": "200Mi"},
}
TRAINING_ROLES = {
    # Role: its label, its size, its command, its resources.
    "master": ("paddle-job-master", 1, ["paddle_k8s", "start_master"], SERVER),
    "pserver": ("paddle-job-pserver", 2, ["paddle_k8s", "start_pserver"], SERVER),
    "trainer": ("paddle-job", 2, ["paddle_k8s", "start_trainer", "v2"], TRAINER),
}


def compare_training(job, image, resources):
    """Master, pserver and trainer as the document has them."""
    sets, jobs, pods = (job.owned(each) for each in (REPLICA_SETS, BATCH_JOBS, PODS))
    assert {name: each["spec"]["replicas"] for name, each in sets.items()} == {
        f"{job.name}-master": 1,
        f"{job.name}-pserver": 2,
    }
    assert {name: each["spec"]["parallelism"] for name, each in jobs.items()} == {
        f"{job.name}-trainer": 2
    }
    for role, (label, size, command, own) in TRAINING_ROLES.items():
        chosen = [p for p in pods.values() if p["metadata"]["labels"].get(label) == job.name]
        assert len(chosen) == size, role
        for pod in chosen:
            [container] = pod["spec"]["containers"]
            assert container["image"] == image
            assert container["command"] == command
            assert container["resources"] == (resources or own)
            ports = [port["containerPort"] for port in container["ports"]]
            assert ports == [7164, 7165]
            assert {"name": "job", "mountPath": "/home/work/namespace/"}.items() <= container[
                "volumeMounts"
            ][0].items()
            assert environment(pod) == TRAINING_ENVIRONMENT | {"PADDLE_JOB_NAME": job.name}


def compare_training_status(job):
    scale = job.status["scale_status"]
    assert [scale[role]["current"] for role in ("trainer", "pserver")] == [2, 2]
    assert [scale[role]["wanted"] for role in ("trainer", "pserver")] == [2, 2]
    active = {
        each["training_resource_type"]: (each["active"], set(each["resource_states"].values()))
        for each in job.status["replica_statuses"]
    }
    running = {"Running"}
    assert active == {"master": (1, running), "pserver": (2, running), "trainer": (2, running)}
    told = {"Creating", "Created", "Running", "NotElastic"}
    job.until(lambda: told <= job.reasons())


@needs_simulated_nodes
@pytest.mark.parametrize("file", ["trainingjob-v1.yaml", "trainingjob-v1alpha1.yaml"])
def test_training_job_as_it_is_written(apply, file):
    [manifest] = example(file)
    # Two of one name would be one.
    manifest["metadata"]["name"] += file.removeprefix("trainingjob").removesuffix(".yaml")
    manifest["spec"] |= {"tolerations": TOLERATIONS, "nodeSelector": ON_SIMULATED}
    job = apply(manifest)
    job.until(lambda: job.phase == "running")
    compare_training(job, "paddlepaddle/paddlecloud-job", None)
    job.until(lambda: "Running" in job.reasons())
    compare_training_status(job)
    job.delete()


def test_training_job_on_a_real_node(apply, image):
    [manifest] = example("trainingjob-v1.yaml")
    spec = manifest["spec"]
    spec["image"] = image
    for role in ("master", "pserver", "trainer"):
        spec[role]["resources"] = {"requests": TINY}
    job = apply(manifest)
    job.until(lambda: job.phase == "running")
    compare_training(job, image, {"requests": TINY})
    job.until(lambda: "Running" in job.reasons())
    compare_training_status(job)
    trainers = sorted(name for name in job.running() if "-trainer-" in name)
    started = "started as ['/usr/local/bin/program.py', 'start_trainer', 'v2']"
    job.until(lambda: all(started in job.log(name) for name in trainers))
    for name in trainers:
        job.exit(name, 0)
    job.until(lambda: job.phase == "succeeded")
    # Released; what the trainers have said stays.
    job.until(lambda: set(job.pods()) == set(trainers))
    assert {"Succeeded", "Released"} <= job.reasons()
    job.delete()
    job.until_gone()


def trainers_of(job):
    return sorted(name for name in job.running() if "-trainer-" in name)


def failing(apply, image, name, is_tolerant):
    """A job of two trainers and a server."""
    [manifest] = example("trainingjob-v1.yaml")
    manifest["metadata"]["name"] = name
    spec = manifest["spec"]
    spec |= {"image": image, "fault_tolerant": is_tolerant}
    del spec["master"]
    for role in ("pserver", "trainer"):
        spec[role] |= {"resources": {"requests": TINY}, "min-instance": 1, "max-instance": 1}
    spec["trainer"] |= {"min-instance": 2, "max-instance": 2}
    return apply(manifest)


def test_a_trainer_that_fails_ends_a_job_without_fault_tolerance_alone(apply, image):
    strict = failing(apply, image, "strict", is_tolerant=False)
    tolerant = failing(apply, image, "tolerant", is_tolerant=True)
    for job in (strict, tolerant):
        job.until(lambda job=job: job.phase == "running")
    lost, left = trainers_of(strict)
    strict.exit(lost, 3)
    strict.until(lambda: strict.phase == "failed")
    reason = strict.status["reason"]
    assert reason.startswith("a trainer failed: ")
    assert lost in reason
    assert "3" in reason.replace(lost, "")
    # The server is released, and the trainer that ran has nobody to talk to.
    strict.until(lambda: not strict.running() and not strict.owned(REPLICA_SETS))
    assert left not in strict.running()

    lost, left = trainers_of(tolerant)
    tolerant.exit(lost, 3)

    def those_that_go_on():
        now = set(trainers_of(tolerant))
        return now if len(now) == 2 and lost not in now else None

    # Kubernetes makes another one in its place.
    trainers = tolerant.until(those_that_go_on)
    assert tolerant.phase == "running"
    assert left in trainers
    for trainer in trainers:
        tolerant.exit(trainer, 0)
    tolerant.until(lambda: tolerant.phase == "succeeded")
    for job in (strict, tolerant):
        job.delete()
        job.until_gone()


# -- ElasticJob


def elastic_labels(name, index):
    return {
        "job-name": name,
        "group-name": "elastic.pytorch.org",
        "replica-index": str(index),
        "replica-type": "worker",
    }


def compare_elastic(job, image, size=3):
    pods, services = job.pods(), job.owned(SERVICES)
    names = [f"{job.name}-worker-{index}" for index in range(size)]
    assert sorted(pods) == sorted(services) == names
    for index, name in enumerate(names):
        labels, spec = elastic_labels(job.name, index), pods[name]["spec"]
        assert pods[name]["metadata"]["labels"] == labels
        assert services[name]["spec"]["selector"] == labels
        assert services[name]["spec"]["clusterIP"] == "None"
        [container] = spec["containers"]
        assert (container["name"], container["image"]) == ("torchelasticworker", image)
        assert container["imagePullPolicy"] == "Always"
        assert container["args"] == [
            "s3://code_path/petctl/user/my_job/main.py",
            "--config_file",
            "/data/classy_vision/resnet50_synthetic_image_classy_config.json",
            "--checkpoint_folder",
            "/data/classy_vision/checkpoint",
        ]
        assert spec["restartPolicy"] == "Never"
        told = {
            "RDZV_ENDPOINT": "etcd-service:2379",
            "JOB_ID": job.name,
            "SIZE": str(size),
            "MIN_SIZE": "2",
            "MAX_SIZE": "5",
            "PET_RDZV_BACKEND": "etcd-v2",
            "PET_RDZV_ENDPOINT": "etcd-service:2379",
            "PET_NNODES": "2:5",
        }
        assert told.items() <= environment(pods[name]).items()


def compare_elastic_told(job):
    component = "elastic-job-controller"
    told = {(type_, reason, message, component) for type_, reason, message in elastic_told(job)}
    job.until(lambda: told <= set(job.told()))
    assert job.condition("Created")["reason"] == "ElasticJobCreated"
    assert job.condition("Created")["message"] == f"job {job.name} is created."
    assert job.condition("Running")["reason"] == "ElasticJobRunning"
    assert job.condition("Running")["message"] == f"ElasticJob {job.name} is running."


def elastic_told(job):
    for index in range(3):
        yield "Normal", "SuccessfulCreatePod", f"Created pod: {job.name}-worker-{index}"
        yield "Normal", "SuccessfulCreateService", f"Created service: {job.name}-worker-{index}"


@needs_simulated_nodes
def test_elastic_job_as_it_is_written(apply):
    [manifest] = example("elasticjob-classy-vision.yaml")
    pod = manifest["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]
    pod |= {"tolerations": TOLERATIONS, "nodeSelector": ON_SIMULATED}
    job = apply(manifest)
    job.until(lambda: job.holds("Running") and len(job.running()) == 3)
    compare_elastic(job, "torchelastic/examples:0.1.0rc1")
    compare_elastic_told(job)
    job.until(lambda: job.status["replicaStatuses"]["Worker"]["active"] == 3)
    job.delete()
    job.until_gone()


def test_elastic_job_on_a_real_node(apply, image):
    """Ends of workers are told, spent and replaced as the document says, until too few are left."""
    [manifest] = example("elasticjob-classy-vision.yaml")
    manifest["metadata"]["name"] = "classy"
    manifest["spec"]["backoffLimit"] = 1
    container = manifest["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container |= {"image": image, "resources": {"requests": TINY}}
    job = apply(manifest)
    job.until(lambda: len(job.running()) == 3)
    compare_elastic(job, image)
    compare_elastic_told(job)
    told = "started as ['/usr/local/bin/program.py', 's3://code_path/petctl/user/my_job/main.py'"
    job.until(lambda: told in job.log("classy-worker-1"))
    uids = known_uids(job)

    def replaced(index):
        """A worker is another one, and the others are the same."""
        lost = f"classy-worker-{index}"
        # One that is gone between the two answers has no uid at all yet.
        job.until(lambda: known_uids(job)[lost] not in ("", uids[lost]) and lost in job.running())
        now = known_uids(job)
        assert {name for name in now if now[name] != uids[name]} == {lost}
        uids.update(now)

    # A signal's code is the cluster's doing.
    job.exit("classy-worker-2", 137)
    replaced(2)
    assert job.status.get("restartCount", 0) == 0
    job.exit("classy-worker-1", 1)
    replaced(1)
    job.until(lambda: job.status["restartCount"] == 1)
    where = f"Pod: {job.namespace}.classy-worker"
    restarting = "ElasticJob classy is restarting because 1 Worker replica(s) failed."
    told = {
        ("Normal", "ExitedWithCode", f"{where}-2 exited with code 137"),
        ("Normal", "ExitedWithCode", f"{where}-1 exited with code 1"),
        ("Warning", "ElasticJobRestarting", restarting),
    }
    job.until(lambda: told <= {each[:3] for each in job.told()})
    # Nothing more can be replaced: two run on, one is too few.
    job.exit("classy-worker-0", 1)
    job.until(lambda: len(job.running()) == 2)
    assert not job.holds("Failed")
    job.exit("classy-worker-1", 1)
    job.until(lambda: job.holds("Failed"))
    # In the document's words of its event; its condition has "workers" for the same.
    failed = "ElasticJob classy is failed because 2 Worker replica(s) failed."
    assert job.condition("Failed")["reason"] == "ElasticJobFailed"
    assert job.condition("Failed")["message"] == failed
    job.until(lambda: ("Normal", "ElasticJobFailed", failed) in {each[:3] for each in job.told()})
    assert job.status["replicaStatuses"]["Worker"] == {"active": 1, "failed": 2, "succeeded": 0}
    # "Once the job is done, controller won't terminate any pods".
    assert len(job.running()) == 1
    job.delete()
    job.until_gone()


def known_uids(job):
    return collections.defaultdict(
        str, {name: pod["metadata"]["uid"] for name, pod in job.pods().items()}
    )


# -- TFJob


def tf_config(job, role, index, num_workers=4):
    """As the document prints it, byte by byte."""
    hosts = [f"{job.name}-worker-{i}.{job.namespace}.svc:2222" for i in range(num_workers)]
    cluster = {"ps": [f"{job.name}-ps-0.{job.namespace}.svc:2222"], "worker": hosts}
    task = {"type": role, "index": index}
    whole = {"cluster": cluster, "task": task, "environment": "cloud"}
    return json.dumps(whole, separators=(",", ":"))


def tf_labels(name, role, index):
    return {
        "job-name": name,
        "group-name": "kubeflow.org",
        "replica-index": str(index),
        "replica-type": role,
    }


def compare_tf_told(job, replicas):
    names = [f"{job.name}-{role}-{index}" for role, index in replicas]
    told = {("Normal", "SuccessfulCreatePod", f"Created pod: {name}") for name in names}
    told |= {("Normal", "SuccessfulCreateService", f"Created service: {name}") for name in names}
    job.until(lambda: told <= {each[:3] for each in job.told()})
    assert {each[3] for each in job.told() if each[:3] in told} == {"tfjob-controller"}


def compare_tf(job, image):
    replicas = [("ps", 0), *(("worker", index) for index in range(4))]
    compare_tf_told(job, replicas)
    pods, services = job.pods(), job.owned(SERVICES)
    assert sorted(pods) == sorted(services) == sorted(f"{job.name}-{r}-{i}" for r, i in replicas)
    for role, index in replicas:
        pod, service = (each[f"{job.name}-{role}-{index}"] for each in (pods, services))
        assert pod["metadata"]["labels"] == tf_labels(job.name, role, index)
        assert environment(pod)["TF_CONFIG"] == tf_config(job, role, index)
        [container] = pod["spec"]["containers"]
        assert container["image"] == image
        assert container["command"][:2] == ["/bin/bash", "-c"]
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["selector"] == pod["metadata"]["labels"]
        assert pod["spec"]["terminationGracePeriodSeconds"] == 0


def with_pods(manifest, change):
    for replicas in manifest["spec"]["tfReplicaSpecs"].values():
        change(replicas["template"]["spec"])


@needs_simulated_nodes
def test_tf_job_as_it_is_written(apply):
    """4 CPU and 8 Gi each: a simulated node of 16 cores has room for four of the five."""
    [manifest] = example("tfjob-cpu.yaml")
    with_pods(manifest, lambda pod: pod.update(tolerations=TOLERATIONS))
    with_pods(manifest, lambda pod: pod.update(nodeSelector=ON_SIMULATED))
    job = apply(manifest)
    job.until(lambda: job.holds("Running"))
    job.until(lambda: len(job.running()) == 5)
    compare_tf(job, "tensorflow/tensorflow:1.15.0-py3")
    for pod in job.pods().values():
        limits = {"cpu": "4", "memory": "8Gi"}
        # "A container with limits and no requests requests its limits."
        assert pod["spec"]["containers"][0]["resources"] == {"limits": limits, "requests": limits}
    assert len({pod["spec"]["nodeName"] for pod in job.pods().values()}) == 2
    job.delete()
    job.until_gone()


def test_tf_job_on_a_real_node(apply, image):
    [manifest] = example("tfjob-cpu.yaml")
    manifest["metadata"]["name"] = "mnist"

    def small(pod):
        # Little is requested: other tests want the one node's room, too.
        resources = {"limits": TINY | {"cpu": "200m"}, "requests": TINY}
        pod["containers"][0] |= {"image": image, "resources": resources}

    with_pods(manifest, small)
    job = apply(manifest)
    job.until(lambda: job.holds("Running"))
    job.until(lambda: len(job.running()) == 5)
    compare_tf(job, image)
    told = {"SuccessfulCreatePod", "SuccessfulCreateService", "TFJobScheduled"}
    job.until(lambda: told <= job.reasons())
    # The program came through the pipe of the document's command.
    job.until(lambda: "started as ['-']" in job.log("mnist-worker-0"))
    job.exit("mnist-worker-0", 0)
    job.until(lambda: job.holds("Succeeded"))
    # cleanPodPolicy All.
    job.until(lambda: not job.pods())
    job.delete()
    job.until_gone()
