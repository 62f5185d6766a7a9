"""A TFJob from its YAML to its end, on nodes that do as a test says."""

import json

import pytest
from support.tf_job_world import World, as_stored, example, node, replicas, tf_job

from elastic.controller.resources.tf_job import SHARE_PODS
from elastic.platforms.kubernetes.api.resources import PODS, SERVICES

SEED_CONFIG = (
    '{"cluster":{"ps":["job1-ps-0.default.svc:2222"],"worker":["job1-worker-0.default.svc:2222",'
    '"job1-worker-1.default.svc:2222","job1-worker-2.default.svc:2222",'
    '"job1-worker-3.default.svc:2222"]},"task":{"type":"worker","index":0},"environment":"cloud"}'
)
ALL = ["job1-ps-0", "job1-worker-0", "job1-worker-1"]


def running(*args, nodes=(), **spec):
    """A job all of whose pods run."""
    return World(tf_job(*args, **spec), *nodes).settle().run().settle()


# What is made.


@pytest.mark.parametrize("name", ["tfjob-cpu.yaml", "tfjob-gpu.yaml"])
def test_the_seeds_yaml_makes_its_pods_with_its_text(name):
    world = World(example(name), node("a", cpu="64", memory="256Gi", gpus=4)).settle()
    workers = [f"job1-worker-{i}" for i in range(4)]
    assert world.live() == ["job1-ps-0", *workers]
    assert sorted(world.pods(SERVICES)) == ["job1-ps-0", *workers]
    assert world.env("job1-worker-0")["TF_CONFIG"] == SEED_CONFIG
    assert world.env("job1-worker-0")["global_steps"] == "100000"
    assert json.loads(world.env("job1-ps-0")["TF_CONFIG"])["task"] == {"type": "ps", "index": 0}
    assert world.status["size"] == 4
    assert "UnknownFields" not in world.reasons()


def test_a_pod_is_as_its_template_says_and_has_its_place():
    world = World(example("tfjob-cpu.yaml"), node("a", cpu="64", memory="256Gi")).settle()
    pod = world.objects[PODS, "job1-worker-2"]
    assert pod["metadata"]["labels"] == {
        "group-name": "kubeflow.org",
        "job-name": "job1",
        "replica-type": "worker",
        "replica-index": "2",
    }
    assert pod["spec"]["nodeName"] == "a"
    assert pod["spec"]["restartPolicy"] == "OnFailure"
    assert pod["spec"]["terminationGracePeriodSeconds"] == 0
    [container] = pod["spec"]["containers"]
    assert container["resources"] == {
        "limits": {"cpu": "4", "memory": "8Gi"},
        "requests": {"cpu": "4", "memory": "8Gi"},
    }


def test_a_service_leads_to_one_replica_before_it_is_ready():
    service = World(tf_job()).settle().objects[SERVICES, "job1-ps-0"]
    spec = service["spec"]
    assert (spec["clusterIP"], spec["publishNotReadyAddresses"]) == ("None", True)
    assert spec["ports"] == [{"name": "tfjob-port", "port": 2222}]
    assert spec["selector"] == {
        "group-name": "kubeflow.org",
        "job-name": "job1",
        "replica-type": "ps",
        "replica-index": "0",
    }


def test_the_port_is_that_of_the_container_named_tensorflow():
    job = tf_job()
    containers = job["spec"]["tfReplicaSpecs"]["PS"]["template"]["spec"]["containers"]
    containers[0]["ports"] = [{"containerPort": 8080, "name": "http"}]
    sidecar = {"name": "proxy", "ports": [{"containerPort": 9, "name": "tfjob-port"}]}
    containers.insert(0, sidecar)
    worker = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    worker["ports"] = [{"containerPort": 3333, "name": "tfjob-port"}]
    world = World(job).settle()
    config = json.loads(world.env("job1-worker-1")["TF_CONFIG"])
    assert config["cluster"] == {
        "ps": ["job1-ps-0.default.svc:2222"],
        "worker": ["job1-worker-0.default.svc:3333", "job1-worker-1.default.svc:3333"],
    }
    both = world.objects[PODS, "job1-ps-0"]["spec"]["containers"]
    assert [[e["name"] for e in c["env"]] for c in both] == [["TF_CONFIG"], ["TF_CONFIG"]]


def test_all_workers_that_may_come_are_listed():
    world = World(tf_job(workers=2, max_instances=5, min_instances=1)).settle()
    workers = json.loads(world.env("job1-ps-0")["TF_CONFIG"])["cluster"]["worker"]
    assert [each.partition(".")[0] for each in workers] == [f"job1-worker-{i}" for i in range(5)]
    assert world.live() == ALL


@pytest.mark.parametrize("chief", ["Chief", "Master"])
def test_chief_and_evaluator_without_ps(chief):
    roles = {chief: replicas(), "Evaluator": replicas()}
    world = World(tf_job(ps=0, workers=1, roles=roles)).settle()
    name = f"job1-{chief.lower()}-0"
    assert world.live() == sorted([name, "job1-evaluator-0", "job1-worker-0"])
    config = json.loads(world.env("job1-evaluator-0")["TF_CONFIG"])
    assert config["task"] == {"type": "evaluator", "index": 0}
    assert config["cluster"] == {
        chief.lower(): [f"{name}.default.svc:2222"],
        "worker": ["job1-worker-0.default.svc:2222"],
    }


# Room.


def test_as_many_workers_as_fit_between_the_fewest_and_those_asked_for():
    world = World(tf_job(workers=4, min_instances=1), node("a", cpu="3")).settle()
    assert world.live() == ALL
    assert (world.status["size"], world.condition("Scheduled")) == (2, "True")


def test_a_job_that_does_not_fit_waits_says_why_and_starts_when_it_does():
    world = World(tf_job(ps=1, workers=4), node("a", cpu="3"), node("b", cpu="1")).settle()
    assert (world.pods(), world.pods(SERVICES)) == ({}, {})
    assert world.condition("Scheduled") == "False"
    assert world.message("Scheduled") == (
        "job1-worker-3 needs cpu=1, memory=1Gi; 2 nodes: 2 too little cpu"
    )
    assert world.again_in_s == 5.0
    assert "startTime" not in world.status
    assert world.reasons() == ["TFJobCreated", "FailedScheduling"]
    world.nodes.append(node("c"))
    world.settle()
    assert len(world.live()) == 5
    assert world.condition("Scheduled") == "True"
    assert {pod["spec"]["nodeName"] for pod in world.pods().values()} == {"c"}


def test_room_that_was_lost_between_telling_and_acting_makes_a_smaller_job():
    world = World(tf_job(workers=3, min_instances=1), node("a", cpu="4"))
    world.step()
    assert world.status["size"] == 3
    world.others = [_other("a", cpu="2")]
    world.settle()
    assert (world.live(), world.status["size"]) == (ALL[:2], 1)


def test_a_lost_pod_waits_for_room_beside_the_others():
    world = running(workers=2, nodes=[node("a", cpu="3")])
    world.others = [_other("a", cpu="1")]
    world.vanish("job1-worker-1").settle()
    assert world.live() == ALL[:2]
    assert (world.condition("Running"), world.condition("Scheduled")) == ("True", "False")
    world.others = []
    world.settle()
    assert world.live() == ALL


def test_a_node_that_died_holds_an_index_until_it_lets_go():
    world = running(workers=2, nodes=[node("a"), node("b")])
    world.objects[PODS, "job1-worker-1"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.nodes[0]["status"]["conditions"][0]["status"] = "Unknown"
    world.settle()
    assert world.live() == ALL[:2]
    world.reap().settle()
    assert world.objects[PODS, "job1-worker-1"]["spec"]["nodeName"] == "b"


# The end.


def test_worker_0_ends_the_job_and_all_is_cleaned():
    world = running(workers=2, cleanPodPolicy="All")
    world.exit("job1-worker-0", 0).settle()
    assert (world.condition("Succeeded"), world.condition("Running")) == ("True", "False")
    assert world.live() == []
    assert world.pods(SERVICES) == {}
    counts = world.status["replicaStatuses"]
    assert counts["Worker"] == {"active": 0, "succeeded": 1, "failed": 0}
    assert world.status["completionTime"]
    assert world.reap().settle().pods() == {}


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        (None, ["job1-worker-0"]),
        ("Running", ["job1-worker-0"]),
        ("None", ALL),
        ("All", []),
    ],
)
def test_pods_that_stay_after_the_end(policy, kept):
    spec = {"cleanPodPolicy": policy} if policy else {}
    world = running(workers=2, **spec).exit("job1-worker-0", 0).settle()
    assert world.live() == kept
    assert sorted(world.pods(SERVICES)) == kept


def test_another_workers_success_does_not_end_the_job():
    world = running(workers=2).exit("job1-worker-1", 0).settle()
    assert world.condition("Succeeded") is None
    assert world.status["replicaStatuses"]["Worker"] == {"active": 1, "succeeded": 1, "failed": 0}
    assert world.live() == ALL


def test_the_chief_decides_where_there_is_one():
    world = running(workers=1, roles={"Chief": replicas()})
    world.exit("job1-worker-0", 0).settle()
    assert world.condition("Succeeded") is None
    world.exit("job1-chief-0", 0).settle()
    assert world.condition("Succeeded") == "True"


def test_a_container_beside_that_runs_on_does_not_hold_up_the_end():
    world = running(workers=1)
    world.set("job1-worker-0", "Running", {"terminated": {"exitCode": 0}})
    world.settle()
    assert world.condition("Succeeded") == "True"
    assert world.live() == []


def test_a_worker_that_is_restarted_whatever_happens_ends_the_job_with_its_first_success():
    world = running(workers=1, policy="Always")
    world.set("job1-worker-0", "Running", {"running": {}}, 1, last={"terminated": {"exitCode": 0}})
    assert world.settle().condition("Succeeded") == "True"


def test_a_worker_that_was_told_to_go_has_not_succeeded():
    world = running(workers=1)
    world.objects[PODS, "job1-worker-0"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.exit("job1-worker-0", 0).settle()
    assert world.condition("Succeeded") is None


# Failures.


@pytest.mark.parametrize("role", ["ps-0", "worker-0", "worker-1"])
@pytest.mark.parametrize(("policy", "code"), [("Never", 1), ("ExitCode", 1), ("ExitCode", 127)])
def test_failures_that_no_replacement_follows(role, policy, code):
    world = running(workers=2, policy=policy).exit(f"job1-{role}", code).settle()
    assert world.condition("Failed") == "True"
    assert f"job1-{role} on node-a exited with code {code}" in world.message("Failed")
    assert world.reasons().count("TFJobFailed") == 1
    assert "TFJobRestarting" not in world.reasons()


@pytest.mark.parametrize("code", [128, 137, 143])
def test_a_signal_is_the_clusters_doing_under_exit_code(code):
    world = running(workers=2, policy="ExitCode", backoffLimit=0)
    assert world.objects[PODS, "job1-worker-1"]["spec"]["restartPolicy"] == "Never"
    world.exit("job1-worker-1", code).settle()
    assert world.condition("Restarting") == "True"
    assert world.status["replicaStatuses"]["Worker"]["failed"] == 1
    world.reap().settle()
    assert (world.condition("Restarting"), world.condition("Running")) == ("True", "True")
    world.run("job1-worker-1").settle()
    assert world.live() == ALL
    assert (world.condition("Restarting"), world.condition("Running")) == ("False", "True")
    assert world.status["restarts"] == 0
    [note] = [note for note in world.notes if note.reason == "ExitedWithCode"]
    assert note.message == f"Pod: default.job1-worker-1 exited with code {code}"


def test_a_failed_pod_is_counted_before_it_is_removed_and_once():
    world = running(workers=2).exit("job1-worker-1", 137)
    world.step()
    assert world.status["restarts"] == 1
    assert "job1-worker-1" in world.live()
    world.step()
    assert "job1-worker-1" not in world.live()
    world.settle().reap().settle()
    assert (world.status["restarts"], world.live()) == (1, ALL)


def test_restarts_in_place_and_replacements_spend_the_limit():
    world = running(workers=2, backoffLimit=2)
    crashed = {"terminated": {"exitCode": 1}}
    world.set("job1-worker-1", "Running", {"waiting": {}}, 1, last=crashed)
    assert world.settle().condition("Restarting") == "True"
    world.set("job1-worker-1", "Running", {"running": {}}, 1, last=crashed)
    assert world.settle().condition("Restarting") == "False"
    world.exit("job1-ps-0", 1).settle().reap().settle().run("job1-ps-0").settle()
    assert (world.status["restarts"], world.condition("Failed")) == (2, None)
    world.set("job1-worker-1", "Running", {"running": {}}, 2, last=crashed)
    world.settle()
    assert world.message("Failed") == (
        "TFJob job1 has failed because it has been restarted 3 times, more than backoffLimit=2."
    )


@pytest.mark.parametrize("policy", ["Never", "ExitCode", "OnFailure", "Always"])
@pytest.mark.parametrize(
    "status",
    [
        {"reason": "Evicted", "message": "too little memory"},
        {"reason": "OutOfcpu"},
        {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "Preempted"}]},
    ],
)
def test_what_the_cluster_took_is_replaced_at_no_cost(policy, status):
    world = running(workers=2, policy=policy, backoffLimit=0)
    world.set("job1-worker-1", "Failed", **status)
    world.settle().reap().settle()
    assert (world.live(), world.condition("Failed")) == (ALL, None)
    assert world.status["restarts"] == 0
    assert "ReplicaTaken" in world.reasons()


def test_a_pod_that_outlived_its_own_deadline_is_the_jobs_failure():
    world = running(workers=2, policy="ExitCode")
    world.set("job1-worker-1", "Failed", reason="DeadlineExceeded")
    assert world.settle().condition("Failed") == "True"


def test_replacements_pause_longer_and_longer_until_one_lasts():
    world = running(workers=2)
    for pause_s in (0.0, 10.0, 20.0):
        world.exit("job1-worker-1", 1).settle()
        if pause_s:
            assert world.again_in_s == pause_s
            world.wait(pause_s - 1).settle()
            assert "job1-worker-1" in world.live()
            world.wait(1).settle()
        assert "job1-worker-1" not in world.live()
        world.reap().settle().run("job1-worker-1").settle()
    world.wait(1000).exit("job1-worker-1", 1, took_s=1000).settle()
    assert "job1-worker-1" not in world.live()


def test_a_pod_that_vanished_is_made_again_with_its_name():
    world = running(workers=2).vanish("job1-worker-0").settle()
    assert (world.live(), world.status["restarts"]) == (ALL, 0)


# Times.


def test_the_deadline_counts_from_the_start_and_not_from_the_wait_for_room():
    world = World(tf_job(activeDeadlineSeconds=60), node("a", cpu="1")).settle()
    world.wait(100).nodes.append(node("b"))
    world.settle().run().settle()
    assert (world.condition("Failed"), world.again_in_s) == (None, 60.0)
    world.wait(59).settle()
    assert world.condition("Failed") is None
    world.wait(1).settle()
    assert "activeDeadlineSeconds=60" in world.message("Failed")
    assert world.live() == []


def test_the_job_is_removed_when_its_time_is_over():
    world = running(workers=1, ttlSecondsAfterFinished=30).exit("job1-worker-0", 0).settle()
    assert (world.again_in_s, world.is_gone) == (30.0, False)
    assert not world.wait(29).settle().is_gone
    assert world.wait(1).settle().is_gone


# Edits.


def test_editing_replicas_scales_a_live_job_highest_index_first():
    world = running(workers=2, min_instances=1, max_instances=4)
    world.edit(Worker=4).settle()
    assert len(world.live()) == 5
    world.run().settle().edit(Worker=1).settle()
    assert world.live() == ALL[:2]
    deleted = [n.message for n in world.notes if n.reason == "SuccessfulDeletePod"]
    assert deleted == [f"Deleted pod: job1-worker-{i}" for i in (3, 2, 1)]
    assert sorted(world.pods(SERVICES)) == ALL[:2]
    assert [n.message for n in world.notes if n.reason == "TFJobScaled"] == [
        "from 2 to 4 workers, as Worker.replicas=4",
        "from 4 to 1 workers, as Worker.replicas=1",
    ]


def test_a_size_below_what_was_asked_stays_until_somebody_asks_again():
    world = World(tf_job(workers=4, min_instances=1), node("a", cpu="3")).settle().run().settle()
    world.nodes.append(node("b"))
    assert world.settle().live() == ALL
    assert len(world.edit(Worker=3).settle().live()) == 4


def test_a_fewest_above_the_size_makes_the_job_grow():
    world = World(tf_job(workers=4, min_instances=1), node("a", cpu="3")).settle().run().settle()
    world.nodes.append(node("b"))
    assert len(world.edit(min_instances=3).settle().live()) == 4


def test_an_edit_of_the_template_leaves_pods_alone():
    world = running(workers=2)
    world.edit()
    template = world.job["spec"]["tfReplicaSpecs"]["Worker"]["template"]
    template["spec"]["containers"][0]["image"] = "train:2"
    world.settle()
    uid = world.objects[PODS, "job1-worker-0"]["metadata"]["uid"]
    world.vanish("job1-worker-1").settle()
    images = [world.pods()[n]["spec"]["containers"][0]["image"] for n in ALL[1:]]
    assert images == ["train:1", "train:2"]
    assert world.objects[PODS, "job1-worker-0"]["metadata"]["uid"] == uid


def test_a_spec_that_became_wrong_stops_nothing_and_can_be_mended():
    world = running(workers=2).edit(min_instances=9).settle()
    assert world.live() == ALL
    assert world.condition("Failed") == "True"
    assert world.message("Failed").startswith("spec.min-instances=9: ")
    assert world.reasons().count("InvalidSpec") == 1
    world.edit(min_instances=1).settle()
    assert world.condition("Failed") == "False"
    assert world.exit("job1-worker-0", 0).settle().condition("Succeeded") == "True"
    assert world.live() == ["job1-worker-0"]
    assert world.reasons().count("TFJobSucceeded") == 1


# What is told.


def test_the_events_of_a_life():
    world = running(workers=1).exit("job1-worker-0", 0).settle()
    assert world.reasons() == [
        "TFJobCreated",
        "TFJobScheduled",
        *["SuccessfulCreateService"] * 2,
        *["SuccessfulCreatePod"] * 2,
        "TFJobRunning",
        "TFJobSucceeded",
        "SuccessfulDeletePod",
        "SuccessfulDeleteService",
    ]
    by_reason = {note.reason: note.message for note in world.notes}
    assert by_reason["TFJobScheduled"] == "all replicas have a node: node-a: 1 ps, 1 worker"
    assert by_reason["SuccessfulCreatePod"] == "Created pod: job1-worker-0"


def test_what_has_no_effect_is_told_once_of_each_spec():
    job = tf_job(workers=1, succesPolicy="AllWorkers")
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
    template = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    template |= {"schedulerName": "other", "affinity": {"podAntiAffinity": {"x": []}}}
    template["containers"][0]["env"] = [{"name": "TF_CONFIG", "value": "{}"}]
    world = World(job).settle().run().settle()
    told = {n.reason: n.message for n in world.notes if n.type == "Warning"}
    assert sorted(told) == [
        "EnvironmentReplaced",
        "PlacementRulesIgnored",
        "QueueIgnored",
        "UnknownFields",
    ]
    assert "spec.succesPolicy" in told["UnknownFields"]
    assert "Worker.template.spec.schedulerName" in told["PlacementRulesIgnored"]
    assert "Worker.template.spec.affinity.podAntiAffinity" in told["PlacementRulesIgnored"]
    assert "team" in told["QueueIgnored"]
    assert json.loads(world.env("job1-worker-0")["TF_CONFIG"])["task"]["type"] == "worker"
    warned = world.reasons().count("UnknownFields")
    world.edit(Worker=1).settle()
    assert (warned, world.reasons().count("UnknownFields")) == (1, 2)


def test_a_job_that_is_being_removed_is_left_to_the_cluster():
    world = running(workers=2)
    world.job["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.vanish("job1-worker-1")
    assert not world.step()


def test_whose_children_are_whose():
    world = World(tf_job()).settle()
    pod = world.objects[PODS, "job1-ps-0"]
    assert world._kind.job_of(PODS, pod) == "job1"
    pod["metadata"]["labels"]["group-name"] = "elastic.pytorch.org"
    assert world._kind.job_of(PODS, pod) is None


# Parts of GPUs.


def _sharing(**more):
    return World(
        example("tfjob-kubeshare.yaml"),
        node("a", cpu="64", memory="256Gi", gpus=2),
        has_kubeshare=True,
        **more,
    )


def test_the_seeds_yaml_with_parts_of_gpus_makes_sharepods():
    world = _sharing().settle()
    assert world.live() == ["job1-ps-0"]
    shares = world.pods(SHARE_PODS)
    assert sorted(shares) == [f"job1-worker-{i}" for i in range(4)]
    cards = [shares[name]["metadata"]["annotations"]["kubeshare/GPUID"] for name in sorted(shares)]
    assert cards[0] == cards[1] != cards[2] == cards[3]
    worker = shares["job1-worker-0"]
    assert (worker["apiVersion"], worker["kind"]) == ("kubeshare.nthu/v1", "SharePod")
    assert worker["spec"]["nodeName"] == "a"
    assert worker["metadata"]["annotations"]["kubeshare/gpu_request"] == "0.5"
    assert world.env("job1-worker-0", SHARE_PODS)["TF_CONFIG"] == SEED_CONFIG
    assert sorted(world.pods(SERVICES)) == sorted(["job1-ps-0", *shares])


def test_the_status_is_read_from_the_sharepod_and_not_from_its_pod():
    world = _sharing().settle()
    owner = {"controller": True, "kind": "SharePod", "name": "job1-worker-0", "uid": "u"}
    shared = world.objects[SHARE_PODS, "job1-worker-0"]
    pod = shared | {"metadata": shared["metadata"] | {"ownerReferences": [owner], "uid": "pod"}}
    world.objects[PODS, "job1-worker-0"] = pod
    for name in world.pods(SHARE_PODS):
        world.set(name, "Running", {"running": {}}, resource=SHARE_PODS)
    world.settle()
    assert world.status["replicaStatuses"]["Worker"]["active"] == 4
    ended = {"terminated": {"exitCode": 0}}
    world.set("job1-worker-0", "Running", ended, resource=SHARE_PODS)
    assert world.settle().condition("Succeeded") == "True"
    gone = {n for n, o in world.pods(SHARE_PODS).items() if "deletionTimestamp" in o["metadata"]}
    assert gone == {f"job1-worker-{i}" for i in range(4)}
    assert "deletionTimestamp" not in pod["metadata"]


def test_without_kubeshare_the_job_waits_and_says_what_is_missing():
    world = World(example("tfjob-kubeshare.yaml"), node("a", cpu="64", memory="256Gi", gpus=2))
    assert world.settle().pods() == {}
    assert "sharepods.kubeshare.nthu" in world.message("Scheduled")


def _other(where, **requests):
    resources = {"requests": requests}
    return {
        "metadata": {"name": "other", "namespace": "x", "uid": "other"},
        "spec": {"nodeName": where, "containers": [{"name": "c", "resources": resources}]},
        "status": {"phase": "Running"},
    }


def test_a_job_keeps_its_account_whoever_wrote_its_status():
    world = World(as_stored(tf_job()) | {"status": {"conditions": "none"}}).settle()
    assert world.condition("Created") == "True"


def test_replicas_that_wait_for_room_have_no_service_yet():
    world = running(workers=2, min_instances=1, max_instances=4, nodes=[node("a", cpu="4")])
    world.edit(Worker=4).settle()
    assert sorted(world.pods(SERVICES)) == world.live() == [*ALL, "job1-worker-2"]
    assert "job1-worker-3" in world.message("Scheduled")


def test_a_started_job_that_lost_everything_takes_what_room_there_is():
    world = running(workers=3, nodes=[node("a", cpu="4")])
    world.others = [_other("a", cpu="2")]
    for name in world.live():
        world.vanish(name)
    world.settle()
    assert (world.live(), world.status["size"]) == (ALL[:2], 3)
    assert world.condition("Running") == "False"


def test_pods_that_only_the_job_knows_of_take_room():
    """Its own newest pods are told at once, those of the cluster may be told later."""
    world = running(workers=2, min_instances=1, max_instances=4, nodes=[node("a", cpu="3")])
    world.edit(Worker=4).settle()
    world.cluster_lags = True
    world.settle()
    assert world.live() == ALL


def test_sharepods_without_a_pod_take_room():
    world = _sharing().settle()
    world.edit(max_instances=5, Worker=5).settle()
    assert len(world.pods(SHARE_PODS)) == 4
    assert "no GPU with so much left" in world.message("Scheduled")


def test_what_is_wrong_is_said_anew_when_it_changes():
    world = World(tf_job(backoffLimit=-1)).settle()
    world.edit(backoffLimit=1, min_instances=7).settle()
    assert world.message("Failed").startswith("spec.min-instances=7")
    assert world.reasons().count("InvalidSpec") == 2
