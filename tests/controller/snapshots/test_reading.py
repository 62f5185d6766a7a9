"""A snapshot is made of a cluster's objects: what jobs have, what others take, what nodes give."""

from elastic.controller.snapshots.reading import Objects, snapshot_of
from elastic.policy.cluster import JobPhase, Rules, Share, Taint, Toleration

CREATED = "2026-01-01T00:00:10Z"
CREATED_S = 1767225610


def node(name, cpu="8", gpus=None, **parts):
    allocatable = {"cpu": cpu, "memory": "32Gi", "pods": "110"}
    if gpus:
        allocatable["nvidia.com/gpu"] = gpus
    return {
        "metadata": {"name": name, **parts.pop("metadata", {})},
        "spec": parts.pop("spec", {}),
        "status": {
            "allocatable": allocatable,
            "conditions": [{"type": "Ready", "status": parts.pop("ready", "True")}],
        },
    }


def container(name="c", requests=None, limits=None):
    return {"name": name, "resources": {"requests": requests or {}, "limits": limits or {}}}


def pod(name, on=None, labels=None, phase="Running", namespace="team", spec=None, **metadata):
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}, **metadata},
        "spec": {
            "containers": [container(requests={"cpu": "1"})],
            **({"nodeName": on} if on else {}),
            **(spec or {}),
        },
        "status": {"phase": phase},
    }


def objects(jobs=None, pods=(), nodes=None, share_pods=()):
    return Objects(CREATED_S + 90, nodes or [node("n1"), node("n0")], pods, jobs or {}, share_pods)


TRAINING = {
    "kind": "TrainingJob",
    "metadata": {"name": "paddle", "namespace": "team", "creationTimestamp": CREATED},
    "spec": {
        "fault_tolerant": True,
        "nodeSelector": {"zone": "a"},
        "master": {"resources": {"limits": {"cpu": 1}}},
        "pserver": {"min-instance": 2, "resources": {"limits": {"cpu": "800m"}}},
        "trainer": {
            "min-instance": 2,
            "max-instance": 6,
            "resources": {"requests": {"cpu": "200m"}, "limits": {"cpu": "400m"}},
        },
    },
    "status": {
        "phase": "running",
        "scale_status": {
            "trainer": {"current": 3, "wanted": 3, "time": "2026-01-01T00:00:40Z"},
            "pserver": {"current": 2, "wanted": 2},
        },
    },
}


def paddle_pods():
    return [
        pod("m", "n0", {"paddle-job-master": "paddle"}),
        pod("p0", "n0", {"paddle-job-pserver": "paddle"}),
        pod("p1", "n1", {"paddle-job-pserver": "paddle"}),
        pod("t0", "n0", {"paddle-job": "paddle"}),
        pod("t1", "n0", {"paddle-job": "paddle"}),
        pod("t2", None, {"paddle-job": "paddle"}, phase="Pending"),
        pod("t3", "n1", {"paddle-job": "paddle"}, deletionTimestamp=CREATED),
        pod("t4", "n1", {"paddle-job": "paddle"}, phase="Failed"),
        # Of a job of the same name elsewhere.
        pod("t5", "n1", {"paddle-job": "paddle"}, namespace="other"),
    ]


def test_a_training_job():
    seen = snapshot_of(objects({"trainingjob": [TRAINING]}, paddle_pods()))
    [job] = seen.jobs
    assert job.key == "TrainingJob/team/paddle"
    assert (job.submitted_s, job.last_scaled_s, seen.last_change_s) == (
        CREATED_S,
        CREATED_S + 30,
        CREATED_S + 30,
    )
    workers = job.workers
    assert (workers.min, workers.max, workers.replicas) == (2, 6, 3)
    assert (workers.placement, workers.leaving) == ({"n0": 2}, {"n1": 1})
    assert (workers.requests["cpu"], workers.limits["cpu"]) == (200, 400)
    assert workers.requests["pods"] == 1
    assert workers.rules == Rules(node_selector={"zone": "a"})
    assert (job.ps.min, job.ps.max, job.ps.placement) == (2, 2, {"n0": 1, "n1": 1})
    assert [(each.role, each.placement) for each in job.others] == [("master", {"n0": 1})]
    assert (job.phase, job.waiting_since_s) == (JobPhase.RUNNING, None)


def test_pods_of_other_namespaces_and_of_nobody_are_others():
    seen = snapshot_of(objects({"trainingjob": [TRAINING]}, [*paddle_pods(), pod("web", "n1")]))
    assert [(each.node, each.requests["cpu"]) for each in seen.pods] == [("n1", 1000)] * 2


def test_without_fault_tolerance_a_training_job_has_one_size():
    rigid = {**TRAINING, "spec": {**TRAINING["spec"], "fault_tolerant": False}}
    [job] = snapshot_of(objects({"trainingjob": [rigid]})).jobs
    assert (job.workers.min, job.workers.max) == (2, 2)


def test_a_job_without_pods_waits_since_it_came():
    [job] = snapshot_of(objects({"trainingjob": [TRAINING]})).jobs
    assert (job.phase, job.waiting_since_s) == (JobPhase.WAITING, CREATED_S)


def test_what_has_ended_or_cannot_be_read_is_no_job():
    ended = {**TRAINING, "status": {"phase": "succeeded"}}
    broken = {**TRAINING, "spec": {"trainer": {}}}
    assert snapshot_of(objects({"trainingjob": [ended, broken]})).jobs == ()


def test_the_pods_of_a_job_that_has_ended_are_pods_like_others():
    ended = {**TRAINING, "status": {"phase": "failed"}}
    seen = snapshot_of(objects({"trainingjob": [ended]}, paddle_pods()[:1]))
    assert [each.node for each in seen.pods] == ["n0"]


ELASTIC = {
    "kind": "ElasticJob",
    "metadata": {"name": "torch", "namespace": "team", "creationTimestamp": CREATED},
    "spec": {
        "minReplicas": 1,
        "maxReplicas": 4,
        "replicaSpecs": {
            "Worker": {
                "replicas": 2,
                "template": {
                    "spec": {
                        "containers": [container(limits={"nvidia.com/gpu": 1})],
                        "tolerations": [{"key": "gpu", "operator": "Exists"}],
                    }
                },
            }
        },
    },
}


def test_an_elastic_job():
    labels = {
        "job-name": "torch",
        "group-name": "elastic.pytorch.org",
        "replica-type": "worker",
    }
    pods = [pod("torch-worker-1", "n0", labels), pod("torch-worker-0", "n1", labels)]
    [job] = snapshot_of(objects({"elasticjob": [ELASTIC]}, pods)).jobs
    workers = job.workers
    assert (workers.min, workers.max, workers.replicas, workers.asked) == (1, 4, 2, 2)
    assert (workers.placement, workers.first_node) == ({"n0": 1, "n1": 1}, "n1")
    assert workers.requests["nvidia.com/gpu"] == 1000
    assert workers.rules == Rules((Toleration("gpu", "Exists"),))


SHARED = {"kubeshare/gpu_request": "0.5", "kubeshare/gpu_limit": "1.0", "kubeshare/gpu_mem": "1024"}


def tf_job(**status):
    template = {"spec": {"containers": [container("tensorflow", limits={"cpu": 4})]}}
    return {
        "kind": "TFJob",
        "metadata": {"name": "tf", "namespace": "team", "creationTimestamp": CREATED},
        "spec": {
            "min-instances": 1,
            "max-instances": 4,
            "tfReplicaSpecs": {
                "PS": {"template": template},
                "Worker": {
                    "replicas": 2,
                    "template": {"metadata": {"annotations": SHARED}, **template},
                },
            },
        },
        "status": status,
    }


def tf_labels(role):
    return {"job-name": "tf", "group-name": "kubeflow.org", "replica-type": role}


def test_a_tf_job_with_parts_of_cards():
    on_card = {**SHARED, "kubeshare/GPUID": "abc"}
    pods = [
        pod("tf-ps-0", "n0", tf_labels("ps")),
        pod("tf-worker-0", "n0", tf_labels("worker"), annotations=on_card),
        pod("tf-worker-1", "n0", tf_labels("worker"), annotations=on_card),
        # By this one KubeShare holds the card.
        pod("holder", "n0", {"kubeshare/GPUID": "abc"}, namespace="kube-system"),
    ]
    seen = snapshot_of(objects({"tfjob": [tf_job(size=2)]}, pods))
    [job] = seen.jobs
    assert (job.workers.min, job.workers.max, job.workers.replicas) == (1, 4, 2)
    assert job.workers.share == Share(500, 1024)
    assert (job.workers.cards, job.workers.first_node) == ({"n0": {"abc": 2}}, "n0")
    assert job.ps.placement == {"n0": 1}
    assert seen.pods == ()


def test_a_tf_job_that_was_not_placed_asks_for_its_first_size():
    [job] = snapshot_of(objects({"tfjob": [tf_job()]})).jobs
    assert (job.workers.replicas, job.workers.asked, job.ps.replicas) == (0, 2, 0)


def test_a_tf_job_without_workers_has_no_size_to_be_decided():
    job = tf_job()
    specs = job["spec"]["tfReplicaSpecs"]
    job["spec"] = {"tfReplicaSpecs": {"Chief": specs["PS"]}}
    assert snapshot_of(objects({"tfjob": [job]})).jobs == ()


def test_nodes():
    nodes = [
        node("n1", "3500m", gpus=2, metadata={"annotations": {"kubeshare/gpu_info": "a:16,b:24,"}}),
        node("n0", ready="Unknown"),
        node(
            "n2",
            spec={
                "unschedulable": True,
                "taints": [{"key": "gpu", "effect": "NoSchedule"}],
            },
        ),
    ]
    n0, n1, n2 = snapshot_of(objects(nodes=nodes)).nodes
    assert n1.allocatable == {
        "cpu": 3500,
        "memory": 32 << 30,
        "pods": 110,
        "nvidia.com/gpu": 2000,
    }
    assert n1.card_memory_bytes == 16 << 20
    assert (n0.is_ready, n1.is_ready, n2.is_unschedulable) == (False, True, True)
    assert n2.taints == (Taint("gpu", "", "NoSchedule"),)


def test_required_affinity_becomes_the_names_of_nodes():
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    spec = {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
            }
        }
    }
    nodes = [node("n0", metadata={"labels": {"zone": "a"}}), node("n1")]
    [web] = snapshot_of(objects(pods=[pod("web", "n1", spec=spec)], nodes=nodes)).pods
    assert web.rules.nodes == {"n0"}


def test_limits_are_requests_where_a_container_sets_none():
    containers = [
        container("a", {"cpu": "1", "memory": "1Gi"}, {"cpu": "2"}),
        container("b", {"cpu": "500m"}),
        container("c", limits={"memory": "1Gi"}),
    ]
    [web] = snapshot_of(objects(pods=[pod("web", "n0", spec={"containers": containers})])).pods
    assert (web.requests["cpu"], web.limits["cpu"]) == (1500, 2500)
    assert web.requests["memory"] == web.limits["memory"] == 2 << 30


def test_a_share_pod_without_a_pod_takes_its_part():
    share_pod = pod("s", "n0", annotations={**SHARED, "kubeshare/GPUID": "abc"})
    [seen] = snapshot_of(objects(share_pods=[share_pod])).pods
    assert (seen.share, seen.card) == (Share(500, 1024), "abc")


def test_a_training_job_of_which_a_trainer_has_succeeded_keeps_what_it_has():
    statuses = [{"training_resource_type": "trainer", "succeeded": 1}]
    status = TRAINING["status"] | {"replica_statuses": statuses}
    [job] = snapshot_of(
        objects({"trainingjob": [TRAINING | {"status": status}]}, paddle_pods())
    ).jobs
    assert (job.workers.min, job.workers.max, job.workers.replicas) == (2, 2, 2)
    assert not job.is_waiting


def test_a_size_that_a_user_has_set_is_no_range():
    held = {"elastic.dev/autoscaled": "4"}
    metadata = {**ELASTIC["metadata"], "annotations": held}
    [job] = snapshot_of(objects({"elasticjob": [{**ELASTIC, "metadata": metadata}]})).jobs
    assert job.workers.min == job.workers.max == job.workers.replicas


def test_a_job_in_a_queue_is_its_queues_and_its_gated_pods_wait_for_no_node():
    metadata = {**ELASTIC["metadata"], "labels": {"kueue.x-k8s.io/queue-name": "q"}}
    gated = pod("w", spec={"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]})
    seen = snapshot_of(
        objects({"elasticjob": [{**ELASTIC, "metadata": metadata}]}, [gated, pod("v")])
    )
    assert seen.jobs == ()
    assert len(seen.pods) == 1


def test_seats_that_were_just_given_are_taken_and_old_ones_are_not():
    seats = {"tf-ps-0": {"node": "n0"}, "tf-worker-0": {"node": "n1"}, "tf-worker-1": {"node": "x"}}

    def placements(at):
        status = {"size": 2, "seats": seats, "lastScaleTime": at}
        name = tf_job()["metadata"]["name"]
        named = {each.replace("tf-", f"{name}-"): seat for each, seat in seats.items()}
        [job] = snapshot_of(objects({"tfjob": [tf_job(**status | {"seats": named})]})).jobs
        return job.workers.placement, job.ps.placement, job.last_scaled_s

    # Ninety seconds after the job was made.
    assert placements("2026-01-01T00:01:00Z") == ({"n1": 1}, {"n0": 1}, CREATED_S + 50)
    assert placements("2026-01-01T00:00:30Z") == ({}, {}, CREATED_S + 20)
