"""Jobs of the controller's kinds that really train, and what is promised of their time."""

import itertools
import os
import re
import subprocess
import time
from datetime import datetime
from math import ceil

import docker
import pytest
from support.accounts import act_as
from support.cluster import (
    KUBECONFIG,
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
    example,
    is_ready,
    lasts,
)
from support.controlled_jobs import FRAMEWORKS, PATIENCE_S, Trained, endless, line, spirals
from support.nodes import SimulatedNode

from elastic.cli.main import main
from elastic.controller.resources.elastic_job import RESOURCE as ELASTIC_JOBS
from elastic.platforms.kubernetes.api.cluster import connect, may
from elastic.platforms.kubernetes.api.resources import (
    BATCH_JOBS,
    LEASES,
    PODS,
    REPLICA_SETS,
    SERVICES,
)
from elastic.platforms.kubernetes.job import installing

pytestmark = needs_custom_resources

SETTLED_S = 3.0


@pytest.fixture(scope="module")
def cluster():
    return open_cluster()


@pytest.fixture(scope="module")
def namespace(cluster):
    name = make_namespace(cluster, "controlled")
    yield name
    remove_namespace(cluster, name)


@pytest.fixture(scope="module")
def controller(namespace, tmp_path_factory):
    found = Controller(namespace, tmp_path_factory.mktemp("controller") / "log")
    found.start()
    yield found
    found.end()
    assert "Traceback" not in found.log()


@pytest.fixture
def apply(cluster, namespace, controller):
    """Apply a manifest; what is left at the end of a test goes."""
    applied = []

    def apply(manifest):
        applied.append(Applied(cluster, namespace, manifest))
        return applied[-1]

    yield apply
    for job in applied:
        if job.get() is not None:
            job.delete()


# -- TrainingJob


def made_s(items):
    """When they were made, in order of their names."""
    texts = [items[name]["metadata"]["creationTimestamp"] for name in sorted(items)]
    return [datetime.fromisoformat(text).timestamp() for text in texts]


def test_a_training_job_trains_in_order_and_its_trainers_logs_stay(apply):
    manifest = line()
    # The server is not ready at once, and nobody trains before it is.
    job = apply(manifest)
    job.until(lambda: job.phase == "creating")
    job.until(lambda: job.phase == "succeeded")
    pods = job.pods()
    assert {pod["status"]["phase"] for pod in pods.values()} == {"Succeeded"}
    assert len(pods) == 2
    for name in pods:
        assert re.search(r"y = 3\.0\d x \+ (2\.0\d|1\.9\d)|y = 2\.9\d x", job.log(name))
    reasons = ["Creating", "Created", "Running", "Succeeded", "Released"]
    assert set(reasons) <= job.reasons()
    job.delete()
    job.until_gone()


def test_a_training_job_is_made_role_by_role_and_goes_with_no_controller(apply, controller):
    job = apply(endless())
    job.until(lambda: job.phase == "running")
    roles = (("-master", REPLICA_SETS), ("-pserver", REPLICA_SETS), ("-trainer", BATCH_JOBS))
    ready_s = 0.0
    for suffix, resource in roles:
        [owner] = (each for name, each in job.owned(resource).items() if name.endswith(suffix))
        [made] = made_s({"": owner})
        assert made >= ready_s, f"{suffix} was made before what it waits for was ready"
        ready_s = max(
            datetime.fromisoformat(condition["lastTransitionTime"]).timestamp()
            for name, pod in job.pods().items()
            if f"{suffix}-" in name
            for condition in pod["status"]["conditions"]
            if condition["type"] == "Ready"
        )
    before = {name: pod["metadata"]["uid"] for name, pod in job.pods().items()}
    trainer = next(name for name in before if "-trainer-" in name)
    job.remove(trainer)
    job.until(lambda: len(job.running()) == 5 and trainer not in job.pods())
    job.edit(trainer={"min-instance": 3})
    job.until(lambda: len([n for n in job.running() if "-trainer-" in n]) == 3)
    job.edit(trainer={"min-instance": 2})
    job.until(lambda: len([n for n in job.running() if "-trainer-" in n]) == 2)
    now = {name: pod["metadata"]["uid"] for name, pod in job.pods().items()}
    assert {n: u for n, u in before.items() if "-trainer-" not in n}.items() <= now.items()
    controller.kill()
    job.delete()
    job.until_gone()
    controller.start()


# -- ElasticJob


class TestTorchrun:
    """A class, since that runs beside the rest of its module, than which it takes hardly less."""

    @pytest.mark.sampled(2)
    def test_torchrun_goes_on_from_its_checkpoint_after_a_loss(self, apply, tmp_path):
        steps = {"steps": 300, "pause-s": 0.05, "checkpoint-steps": 10}
        code, manifest = spirals(tmp_path, **steps)
        manifest["spec"]["replicaSpecs"]["Worker"]["replicas"] = 2
        apply(code)
        job = apply(manifest)
        trained = Trained(job)
        trained.until_begun(2)
        trained.until(r"step 40 of")
        job.remove("spirals-worker-1")
        trained.until_begun(2, times=2)
        assert trained.begins(2)[-1] >= 40
        job.until(lambda: job.holds("Succeeded"), PATIENCE_S)
        [accuracy] = re.findall(r"accuracy (\S+) after 300 steps", trained.said())
        assert float(accuracy) > 0.9
        # A deleted pod is the user's doing, and costs nothing.
        assert job.status.get("restartCount", 0) == 0
        job.delete()
        job.until_gone()


def containers_of(job, pod):
    """Of one pod, in the engine of the real node."""
    uid = job.pods()[pod]["metadata"]["uid"]
    labels = [f"io.kubernetes.pod.uid={uid}", "io.kubernetes.container.name=worker"]
    engine = docker.from_env()
    try:
        return engine.containers.list(filters={"label": labels})
    finally:
        engine.close()


def brief(name, command, **run_policy):
    """Two workers of plain shell, which meet nowhere."""
    container = {
        "name": "worker",
        "image": "python:3.11-slim",
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", command],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    }
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}
    worker = {"replicas": 2, "restartPolicy": "ExitCode", "template": template}
    spec = {"minReplicas": 1, "maxReplicas": 2, "rdzvEndpoint": "etcd-service:2379"}
    return {
        "apiVersion": ELASTIC_JOBS.api_version,
        "kind": ELASTIC_JOBS.kind,
        "metadata": {"name": name},
        "spec": spec | {"replicaSpecs": {"Worker": worker}} | run_policy,
    }


def at_s(text):
    return datetime.fromisoformat(text).timestamp()


# Not before the other one runs: with nobody left the job would have succeeded.
ONE_ENDS = "case $HOSTNAME in *-0) sleep 5; exit 0;; *) exec sleep 1000;; esac"
AHEAD_S = 6
TTL_S = 5
SLACK_S = 2
PAUSES_S = (0, 10)
"""Before the first and the second replacement of one worker."""
TOLD_WITHIN_S = 5
"""A busy node tells so late that a pod has ended."""


def phases(job):
    return {name: pod["status"]["phase"] for name, pod in job.pods().items()}


def test_deadlines_and_what_is_cleaned_up_after_them(apply):
    left = {
        # A deadline that ended nothing would be none.
        "None": {"worker-0": "Succeeded"},
        "Running": {"worker-0": "Succeeded"},
        "All": {},
    }
    jobs = {
        policy: apply(brief(f"late-{policy.lower()}", ONE_ENDS, cleanPodPolicy=policy))
        for policy in left
    }
    deadlines_s = {}
    for policy, job in jobs.items():
        # Set once there is somebody who ended by itself: a busy node starts pods when it can.
        job.until(
            lambda job=job: sorted(phases(job).values()) == ["Running", "Succeeded"], PATIENCE_S
        )
        deadlines_s[policy] = ceil(time.time() + AHEAD_S - at_s(job.status["startTime"]))
        job.edit(activeDeadlineSeconds=deadlines_s[policy])
    for policy, job in jobs.items():
        job.until(lambda job=job: job.holds("Failed"))
        took_s = at_s(job.condition("Failed")["lastTransitionTime"]) - at_s(job.status["startTime"])
        assert abs(took_s - deadlines_s[policy]) <= SLACK_S, policy
        expected = {f"{job.name}-{worker}": phase for worker, phase in left[policy].items()}
        job.until(lambda job=job, expected=expected: phases(job) == expected)
        assert lasts(lambda job=job, expected=expected: phases(job) == expected, SETTLED_S)


def test_a_job_goes_when_its_time_after_the_end_is_over(apply):
    job = apply(brief("brief", "exit 0", ttlSecondsAfterFinished=TTL_S))
    job.until(lambda: job.holds("Succeeded"))
    ended_s = at_s(job.status["completionTime"])
    job.until(lambda: job.get() is None)
    assert abs(time.time() - ended_s - TTL_S) <= SLACK_S
    job.until_gone()


def test_a_worker_that_always_fails_is_made_again_so_often_and_with_pauses(apply):
    job = apply(brief("failing", "exit 3", backoffLimit=3))
    made, ended = {}, {}

    def is_over():
        for name, pod in job.pods().items():
            uid = pod["metadata"]["uid"]
            [made.setdefault(name, {})[uid]] = made_s({"": pod})
            for each in pod["status"].get("containerStatuses", ()):
                if end := each["state"].get("terminated"):
                    ended[uid] = at_s(end["finishedAt"])
        return job.holds("Failed")

    job.until(is_over, 120.0)
    assert job.status["restartCount"] == 3
    # A pod that is replaced at once may go before it is seen to have ended.
    gaps_s = [
        (PAUSES_S[number], next_s - ended[before])
        for pods in made.values()
        for number, ((before, _), (_, next_s)) in enumerate(itertools.pairwise(by_age(pods)))
        if before in ended
    ]
    assert max(gaps_s)[0] == PAUSES_S[1]
    # Times are in whole seconds.
    assert all(-1 <= gap_s - pause_s <= TOLD_WITHIN_S for pause_s, gap_s in gaps_s), gaps_s


def by_age(pods):
    """Uids and when each was made, the oldest first."""
    return sorted(pods.items(), key=lambda each: each[1])


@pytest.fixture
def submitter(cluster, namespace, tmp_path):
    """The kubeconfig of an account with the rights of a user, and no others."""
    kubeconfig = act_as(cluster, namespace, "submitter", tmp_path)
    manifests = installing.submitter_access(namespace, [])
    account = {"kind": "ServiceAccount", "name": "submitter", "namespace": namespace}
    manifests[1]["subjects"] = [account]
    list(installing.apply(cluster, manifests))
    return kubeconfig


def test_the_command_line_shows_and_changes_jobs_of_all_kinds(apply, namespace, submitter, capsys):
    job = apply(brief("named", "echo here is $HOSTNAME; exec sleep 1000"))
    job.until(lambda: len(job.running()) == 2)
    where = [f"--kubeconfig={submitter}", f"--namespace={namespace}"]

    def elastic(*words):
        assert main([*words, *where]) == 0
        return capsys.readouterr().out

    [row] = [line for line in elastic("status").splitlines() if line.startswith("named")]
    assert "ElasticJob" in row
    assert "2/2" in row
    everywhere = [f"--kubeconfig={KUBECONFIG}", "--all_namespaces"]
    assert main(["status", *everywhere]) == 0
    assert namespace in capsys.readouterr().out
    assert "SuccessfulCreatePod" in elastic("status", "elasticjob/named")
    said = elastic("logs", "ej/named")
    assert {f"here is named-worker-{index}" for index in range(2)} == {
        line[line.index("here") :] for line in said.splitlines() if "here" in line
    }
    elastic("scale", "elasticjob/named", "--num_workers=1")
    job.until(lambda: set(job.pods()) == {"named-worker-0"})
    elastic("kill", "elasticjob/named")
    assert job.get() is None
    job.until_gone()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_a_user_may_do_with_objects_what_the_commands_do(namespace, submitter, kind):
    """And nothing of it in another namespace."""
    user = connect(str(submitter))
    for verb in ("get", "list", "create", "patch", "delete"):
        assert may(user, verb, kind, namespace), verb
        assert not may(user, verb, kind, "default"), verb


def test_a_template_that_can_never_be_is_the_end_of_a_job_with_its_field_and_value(apply):
    manifest = brief("wrong", "exit 0")
    [container] = manifest["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    container["name"] = "Not_A_Name"
    worker = apply(manifest)
    manifest = example("tfjob-between-graphs.yaml")[-1]
    manifest["metadata"]["name"] = "wrong"
    template = manifest["spec"]["tfReplicaSpecs"]["Worker"]["template"]
    template["spec"]["activeDeadlineSeconds"] = "soon"
    replica = apply(manifest)
    line_of = line(nodeSelector={"a key": "b"})
    line_of["metadata"]["name"] = "wrong"
    trainer = apply(line_of)
    [manifest] = example("elastictrainjob.yaml")
    manifest["metadata"]["name"] = "wrong"
    claim = manifest["spec"]["state"]["volumeClaimTemplate"]["spec"]
    claim["accessModes"] = ["Sometimes"]
    master = apply(manifest)
    worker.until(lambda: worker.holds("Failed"))
    told = worker.condition("Failed")["message"]
    field = "spec.replicaSpecs.Worker.template.spec.containers[0].name"
    assert f'{field}: Invalid value: "Not_A_Name"' in told
    replica.until(lambda: replica.holds("Failed"))
    told = replica.condition("Failed")["message"]
    assert "cannot be handled as a Pod" in told
    assert "activeDeadlineSeconds" in told or "soon" in told
    trainer.until(lambda: trainer.phase == "failed")
    assert '"a key"' in trainer.status["reason"]
    master.until(lambda: master.phase == "Failed")
    field = "spec.state.volumeClaimTemplate.spec.accessModes"
    assert f'{field}: Unsupported value: "Sometimes"' in master.status["message"]
    for job in (worker, replica, trainer, master):
        assert not job.pods()


def test_a_smallest_size_above_the_largest_is_the_end_of_a_job_of_each_kind(apply):
    """The first that is written of such a job is its end: the API server has to take it."""
    worker = brief("crossed", "exit 0")
    worker["spec"] |= {"minReplicas": 7, "maxReplicas": 5}
    replica = example("tfjob-between-graphs.yaml")[-1]
    replica["spec"] |= {"min-instances": 7, "max-instances": 5}
    trainer = line()
    trainer["spec"]["trainer"] |= {"min-instance": 7, "max-instance": 5}
    [master] = example("elastictrainjob.yaml")
    master["spec"]["job"]["num_workers"] = "7:5"
    for manifest in (worker, replica, trainer, master):
        manifest["metadata"]["name"] = "crossed"
        job = apply(manifest)
        job.until(lambda job=job: job.phase == "failed" or job.holds("Failed"))
        assert "7" in (job.condition("Failed").get("message") or job.status["reason"])
        assert not job.pods()


ETCD = """
FROM elastic-base:ci
RUN apt-get update && apt-get install -y --no-install-recommends etcd-server \\
    && pip install python-etcd
"""
"""A server, and the package by which torch is its client."""
STORE = """
import signal
from torch.distributed import TCPStore
store = TCPStore("localhost", 29400, is_master=True, wait_for_workers=False)
signal.pause()
"""
MEETINGS = {
    "etcd-service:2379": [
        "etcd", "--enable-v2", "--listen-client-urls=http://0.0.0.0:2379",
        "--advertise-client-urls=http://etcd-service:2379",
    ],
    "meeting:29400": ["python3", "-c", STORE],
}  # fmt: skip
"""What users run to have their workers meet, by what they write as `rdzvEndpoint`."""


@pytest.fixture
def image_with_etcd():
    image = f"elastic-test/etcd:{os.getpid()}"
    command = ["docker", "build", "-t", image, "-"]
    subprocess.run(command, input=ETCD.encode(), check=True, capture_output=True)
    yield image
    subprocess.run(["docker", "rmi", "--force", image], check=True, capture_output=True)


def run_meeting_point(cluster, namespace, endpoint, image):
    """A pod of the user's own, and the service by which workers find it."""
    name, port = endpoint.split(":")
    metadata = {"name": name, "labels": {"app": name}}
    container = {
        "name": "meeting",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": MEETINGS[endpoint],
        "readinessProbe": {"tcpSocket": {"port": int(port)}, "periodSeconds": 1},
    }
    pod = {"containers": [container], "terminationGracePeriodSeconds": 0}
    service = {"clusterIP": "None", "selector": {"app": name}}
    for resource, spec in ((SERVICES, service), (PODS, pod)):
        manifest = {"apiVersion": "v1", "kind": resource.kind, "metadata": metadata, "spec": spec}
        cluster.create(resource.path(namespace), manifest)
    eventually(lambda: is_ready(cluster.get(PODS.path(namespace, name))))


def long(folder, name):
    """A whole job of the example, with code of its own."""
    code, manifest = spirals(folder, steps=1500)
    manifest["metadata"]["name"] = name
    code["metadata"]["name"] = f"{name}-code"
    pod = manifest["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]
    pod["volumes"][0]["configMap"]["name"] = f"{name}-code"
    return code, manifest


@pytest.mark.soak
def test_torchrun_through_all_that_happens_to_it(apply, tmp_path):
    """Deleted, 5 and 2 of them, code 1, code 137: it goes on from its newest checkpoint."""
    code, manifest = long(tmp_path, "long")
    apply(code)
    go_through_all(apply(manifest))


@pytest.mark.soak
@pytest.mark.parametrize("endpoint", MEETINGS)
def test_torchrun_through_the_same_where_its_user_says_where_workers_meet(
    apply, cluster, namespace, tmp_path, image_with_etcd, endpoint
):
    name = endpoint.partition(":")[0]
    run_meeting_point(cluster, namespace, endpoint, image_with_etcd)
    code, manifest = long(tmp_path, f"at-{name}")
    manifest["spec"]["rdzvEndpoint"] = endpoint
    [worker] = manifest["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    worker["image"] = image_with_etcd
    # Of what the example sets, what is about its time: who is the host is no matter of the job.
    settings = {"name": "PET_RDZV_CONF", "value": "join_timeout=2592000,last_call_timeout=5"}
    worker["env"] = [settings, {"name": "OMP_NUM_THREADS", "value": "1"}]
    apply(code)
    job = apply(manifest)
    go_through_all(job)
    assert f"at-{name}-rdzv" not in job.pods()


def go_through_all(job):
    """A job of three, with the example's limits, and what may happen to it."""
    trained = Trained(job)

    def has_progressed():
        steps = [int(step) for step in re.findall(r"step (\d+) of", trained.said())]
        return max(steps, default=0)

    def goes_on(num_workers, what):
        before, so_often = has_progressed(), len(trained.begins(num_workers))
        what()
        trained.until_begun(num_workers, so_often + 1)
        begun = trained.begins(num_workers)[-1]
        assert begun >= before - 20, "it went on from its newest checkpoint"
        job.until(lambda: has_progressed() >= begun + 40, PATIENCE_S)

    def end(pod, code):
        """Let its container end with this code, by the signal or by a program that gives up."""
        [container] = containers_of(job, pod)
        if code == 137:
            container.kill("SIGKILL")
        else:
            container.exec_run(["python3", "-c", "import os; os.kill(1, 15)"])

    def scale(num_workers):
        job.edit(replicaSpecs={"Worker": {"replicas": num_workers}})

    goes_on(3, lambda: None)
    goes_on(3, lambda: job.remove(f"{job.name}-worker-1"))
    goes_on(5, lambda: scale(5))
    goes_on(2, lambda: scale(2))
    goes_on(3, lambda: scale(3))
    goes_on(3, lambda: end(f"{job.name}-worker-2", 1))
    assert job.status["restartCount"] == 1
    assert "ElasticJobRestarting" in job.reasons()
    goes_on(3, lambda: end(f"{job.name}-worker-2", 137))
    assert job.status["restartCount"] == 1
    job.until(lambda: job.holds("Succeeded"), 2 * PATIENCE_S)
    [accuracy] = re.findall(r"accuracy (\S+) after 1500 steps", trained.said())
    assert float(accuracy) > 0.9


# -- TFJob


def with_frameworks(name):
    [manifest] = example(name)
    for replicas in manifest["spec"]["tfReplicaSpecs"].values():
        [container] = replicas["template"]["spec"]["containers"]
        container |= FRAMEWORKS
        container["resources"] = {"requests": {"cpu": "50m", "memory": "100Mi"}}
    return manifest


@pytest.mark.soak
def test_a_tf_job_trains_between_graphs(apply):
    manifest = with_frameworks("tfjob-between-graphs.yaml")
    manifest["spec"] |= {"min-instances": 4, "cleanPodPolicy": "All"}
    manifest["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = 4
    job = apply(manifest)
    job.until(lambda: len(job.running()) == 5, PATIENCE_S)
    said = {}

    def is_over():
        said.update({name: log for name in job.pods() if (log := job.log(name))})
        return job.holds("Succeeded")

    job.until(is_over, 2 * PATIENCE_S)
    # Worker 0's success ended it; others may have said nothing by then.
    [(own, steps)] = re.findall(r"worker 0: (\d+) of (\d+) steps", said["between-graphs-worker-0"])
    assert int(own) < int(steps), "the others have trained as well"
    job.until(lambda: not job.pods())


@pytest.mark.soak
def test_a_tf_job_with_a_chief_trains(apply):
    job = apply(with_frameworks("tfjob-chief.yaml"))
    job.until(lambda: job.holds("Succeeded"), 2 * PATIENCE_S)
    assert re.search(r"step 100, loss 0\.00", job.log("chief-chief-0"))
    job.until(lambda: set(job.pods()) == {"chief-chief-0"})


# -- Many


NUM_JOBS = 100


@pytest.mark.soak
@pytest.mark.skipif(not SimulatedNode.names(), reason="the cluster has no simulated node")
def test_a_hundred_jobs_on_simulated_nodes(apply, controller, cluster, namespace):
    """Two pods each; what is there is left alone by a controller that is started anew."""
    began_s = time.monotonic()
    jobs = []
    for number in range(NUM_JOBS):
        manifest = brief(f"many-{number}", "exit 0")
        worker = manifest["spec"]["replicaSpecs"]["Worker"]
        worker["template"]["spec"] |= {"tolerations": TOLERATIONS, "nodeSelector": ON_SIMULATED}
        jobs.append(apply(manifest))
    for job in jobs:
        job.until(lambda job=job: job.holds("Running"), PATIENCE_S)
    print(f"{NUM_JOBS} jobs run after {time.monotonic() - began_s:.1f} s")
    for job in jobs:
        job.until(lambda job=job: job.status["replicaStatuses"]["Worker"]["active"] == 2)

    def versions():
        items = cluster.get(ELASTIC_JOBS.path(namespace))["items"]
        return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in items}

    def is_settled():
        before = versions()
        return lasts(lambda: versions() == before, SETTLED_S)

    def leader():
        lease = cluster.get(LEASES.path(namespace, "elastic-controller"))
        return lease["spec"].get("holderIdentity")

    # What is told of the last pods is written by now.
    eventually(is_settled)
    before, former = versions(), leader()
    pods = {name for job in jobs for name in known(job)}
    controller.kill()
    controller.start()
    # It looks at all of them when its lease has run out.
    eventually(lambda: leader() not in (None, former))
    assert lasts(lambda: versions() == before, SETTLED_S)
    assert {name for job in jobs for name in known(job)} == pods


def known(job):
    return {pod["metadata"]["uid"] for pod in job.pods().values()}
