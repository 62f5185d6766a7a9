"""What an ElasticJob's controller makes, counts and tells, played through in a little world."""

from contextlib import suppress
from copy import deepcopy

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.elastic_world import World
from support.played_kind import CrashError

from elastic.controller.kinds.elastic_job import ElasticJobs
from elastic.controller.resources.elastic_job import ElasticJobStatus
from elastic.platforms.kubernetes.api.resources import PODS, SERVICES

SEED = yaml.safe_load("""
apiVersion: "elastic.pytorch.org/v1alpha1"
kind: "ElasticJob"
metadata:
  name: "classy-vision-job"
spec:
  rdzvEndpoint: "etcd-service:2379"
  minReplicas: 2
  maxReplicas: 5
  replicaSpecs:
    Worker:
      replicas: 3
      restartPolicy: ExitCode
      template:
        apiVersion: v1
        kind: Pod
        spec:
          containers:
          - name: torchelasticworker
            image: torchelastic/examples:0.1.0rc1
            imagePullPolicy: Always
            args:
              - "s3://code_path/petctl/user/my_job/main.py"
              - --config_file
              - "/data/classy_vision/resnet50_synthetic_image_classy_config.json"
              - "--checkpoint_folder"
              - "/data/classy_vision/checkpoint"
""")
NAME = "classy-vision-job"


def job(name="j", policy="ExitCode", replicas=3, least=2, most=5, container=None, **spec):
    template = {"spec": {"containers": [{"name": "main", "image": "torch"} | (container or {})]}}
    worker = {"replicas": replicas, "restartPolicy": policy, "template": template}
    fields = {"rdzvEndpoint": "etcd:2379", "minReplicas": least, "maxReplicas": most}
    return {
        "metadata": {"name": name},
        "spec": {**fields, "replicaSpecs": {"Worker": worker}, **spec},
    }


def world(manifest=None, **fields):
    return World(ElasticJobs(), manifest or job(**fields), ElasticJobStatus)


def running(**fields):
    there = world(**fields)
    there.settle()
    there.run_all()
    return there


def own_store(**fields):
    manifest = job(**fields)
    del manifest["spec"]["rdzvEndpoint"]
    return world(manifest)


def env_of(pod):
    return {each["name"]: each["value"] for each in pod["spec"]["containers"][0]["env"]}


class TestSeed:
    """Its objects, environment, status and events, field by field."""

    @pytest.fixture
    def there(self):
        there = world(SEED)
        there.settle()
        return there

    def test_pods(self, there):
        assert sorted(there.pods) == [f"{NAME}-worker-{index}" for index in range(3)]
        pod = there.pod(0)
        assert pod["metadata"]["labels"] == {
            "job-name": NAME,
            "group-name": "elastic.pytorch.org",
            "replica-index": "0",
            "replica-type": "worker",
        }
        [container] = pod["spec"]["containers"]
        [written] = SEED["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"]
        assert {k: v for k, v in container.items() if k != "env"} == written
        assert pod["spec"]["restartPolicy"] == "Never"

    def test_environment(self, there):
        env = env_of(there.pod(2))
        assert env.pop("TORCH_DISABLE_SHARE_RDZV_TCP_STORE") == "1", "else none can join later"
        assert {k: v for k, v in env.items() if not k.startswith("PET_")} == {
            "RDZV_ENDPOINT": "etcd-service:2379",
            "JOB_ID": NAME,
            "SIZE": "3",
            "MIN_SIZE": "2",
            "MAX_SIZE": "5",
        }
        assert {k: v for k, v in env.items() if k.startswith("PET_")} == {
            "PET_RDZV_BACKEND": "etcd-v2",
            "PET_RDZV_ENDPOINT": "etcd-service:2379",
            "PET_RDZV_ID": f"{NAME}-job-uid",
            "PET_RDZV_CONF": "join_timeout=2592000",
            "PET_NNODES": "2:5",
            "PET_NPROC_PER_NODE": "1",
            "PET_MAX_RESTARTS": "100",
        }

    def test_services(self, there):
        assert sorted(there.services) == sorted(there.pods)
        spec = there.services[f"{NAME}-worker-1"]["spec"]
        assert spec["clusterIP"] == "None"
        assert spec["selector"] == there.pod(1)["metadata"]["labels"]

    def test_status_and_events_of_one_that_failed(self):
        manifest = deepcopy(SEED)
        manifest["spec"] |= {"backoffLimit": 1}
        there = world(manifest)
        there.settle()
        there.run_all()
        there.end(f"{NAME}-worker-0", 1)
        there.settle()
        there.run_all()
        there.end(f"{NAME}-worker-0", 1)
        there.settle()
        assert there.status["phase"] == "Running", "two of at least two are active"
        there.end(f"{NAME}-worker-1", 1)
        there.settle()
        assert there.status["replicaStatuses"] == {
            "Worker": {"active": 1, "succeeded": 0, "failed": 2}
        }
        conditions = [
            (c["type"], c["status"], c["reason"], c["message"])
            for c in there.status["conditions"]
            if c["type"] != "Restarting"
        ]
        assert conditions == [
            ("Created", "True", "ElasticJobCreated", f"job {NAME} is created."),
            ("Running", "False", "ElasticJobRunning", f"ElasticJob {NAME} is running."),
            (
                "Failed",
                "True",
                "ElasticJobFailed",
                f"ElasticJob {NAME} is failed because 2 Worker replica(s) failed.",
            ),
        ]
        told = {(n.type.value, n.reason, n.message) for n in there.notes}
        failed = "because 1 Worker replica(s) failed."
        assert told >= {
            ("Normal", "SuccessfulCreatePod", f"Created pod: {NAME}-worker-0"),
            ("Normal", "SuccessfulCreateService", f"Created service: {NAME}-worker-0"),
            ("Normal", "ExitedWithCode", f"Pod: default.{NAME}-worker-0 exited with code 1"),
            ("Warning", "ElasticJobRestarting", f"ElasticJob {NAME} is restarting {failed}"),
            ("Normal", "ElasticJobFailed", conditions[-1][3]),
        }
        assert ElasticJobs.component == "elastic-job-controller"
        assert there.reasons().count("ExitedWithCode") == 3
        assert there.reasons().count("ElasticJobRestarting") == 1


class TestEnvironment:
    def test_never_overrides_the_template(self):
        given = [{"name": "PET_NNODES", "value": "1:9"}, {"name": "SIZE", "valueFrom": {}}]
        there = world(job(container={"env": given}))
        there.settle()
        env = there.pod(0)["spec"]["containers"][0]["env"]
        assert env[:2] == given
        names = [each["name"] for each in env]
        assert len(names) == len(set(names))
        assert "MIN_SIZE" in names

    @pytest.mark.parametrize(
        ("endpoint", "backend"),
        [
            ("etcd-service:2379", "etcd-v2"),
            ("http://10.0.0.1:2379", "etcd-v2"),
            ("my-etcd.infra:4001", "etcd-v2"),
            ("j-worker-0:29400", "c10d"),
            ("head.etcd:29400", "c10d"),
        ],
    )
    def test_backend(self, endpoint, backend):
        there = world(job(rdzvEndpoint=endpoint))
        there.settle()
        assert env_of(there.pod(0))["PET_RDZV_BACKEND"] == backend

    def test_one_process_for_each_gpu(self):
        limits = {"nvidia.com/gpu": 4, "cpu": "8"}
        there = world(job(container={"resources": {"limits": limits}}))
        there.settle()
        assert env_of(there.pod(0))["PET_NPROC_PER_NODE"] == "4"

    @pytest.mark.parametrize(
        ("policy", "of_pods"),
        [
            ("ExitCode", "Never"),
            ("Never", "Never"),
            ("OnFailure", "OnFailure"),
            ("Always", "Always"),
        ],
    )
    def test_restart_policy_of_pods(self, policy, of_pods):
        there = world(job(policy=policy))
        there.settle()
        assert there.pod(0)["spec"]["restartPolicy"] == of_pods


class TestScaling:
    def test_up_and_down_highest_first(self):
        there = running()
        there.edit(replicas=5)
        there.settle()
        assert [n for n in there.reasons() if "Scaled" in n] == ["ElasticJobScaled"]
        assert len(there.pods) == 5
        assert env_of(there.pod(4))["SIZE"] == "5"
        there.run_all()
        there.actions.clear()
        there.edit(replicas=2)
        there.settle()
        assert [a.name for a in there.actions if a.resource == PODS] == [
            "j-worker-4",
            "j-worker-3",
            "j-worker-2",
        ]
        assert sorted(there.services) == ["j-worker-0", "j-worker-1"]
        there.finish_deletions()
        there.settle()
        assert there.phases() == {"worker-0": "Running", "worker-1": "Running"}
        assert there.status["phase"] == "Running"
        assert there.status["restartCount"] == 0

    def test_an_index_waits_for_the_pod_that_is_going(self):
        there = running()
        there.edit(replicas=2)
        there.settle()
        there.edit(replicas=3)
        there.settle()
        assert "deletionTimestamp" in there.pod(2)["metadata"]
        there.finish_deletions()
        there.settle()
        assert there.pod(2)["status"]["phase"] == "Pending"

    def test_agents_that_know_of_fewer_are_made_anew(self):
        there = running(most=3)
        there.edit(maxReplicas=5)
        there.settle()
        assert set(there.phases().values()) == {"Running"}, "nobody needs to know yet"
        assert not any("deletionTimestamp" in p["metadata"] for p in there.pods.values())
        there.edit(replicas=4)
        there.settle()
        there.finish_deletions()
        there.settle()
        assert {env_of(pod)["PET_NNODES"] for pod in there.pods.values()} == {"2:5"}
        assert len(there.pods) == 4
        assert there.status["restartCount"] == 0

    def test_agents_that_wait_for_more_than_are_needed_now_are_made_anew(self):
        there = running(least=3)
        there.delete("j-worker-2")
        there.finish_deletions()
        there.settle()
        there.edit(minReplicas=2)
        there.settle()
        there.finish_deletions()
        there.settle()
        there.run_all()
        assert {env_of(pod)["PET_NNODES"] for pod in there.pods.values()} == {"2:5"}

    def test_lowering_the_minimum_of_a_full_job_touches_nobody(self):
        there = running(least=3)
        there.actions.clear()
        there.edit(minReplicas=1)
        there.settle()
        assert there.actions == []


class TestFailures:
    @pytest.mark.parametrize(
        ("policy", "code", "spent"),
        [
            pytest.param("ExitCode", 1, 1, id="own-code"),
            pytest.param("ExitCode", 127, 1, id="the-last-own-code"),
            pytest.param("ExitCode", 128, 0, id="the-first-signal"),
            pytest.param("ExitCode", 137, 0, id="killed"),
            pytest.param("OnFailure", 137, 1, id="other-policies-count-all"),
            pytest.param("Never", 1, 1, id="never-restarted-in-place-but-replaced"),
        ],
    )
    def test_what_a_replacement_costs(self, policy, code, spent):
        there = running(policy=policy)
        before = there.pod(1)["metadata"]["uid"]
        there.end("j-worker-1", code)
        there.settle()
        assert there.status["restartCount"] == spent
        assert there.status["freeRestartCount"] == 1 - spent
        assert there.pod(1)["metadata"]["uid"] != before
        assert there.status["phase"] == "Running"

    def test_eviction_is_the_clusters_doing(self):
        there = running()
        there.evict("j-worker-0")
        there.settle()
        assert there.status["restartCount"] == 0
        assert there.status["freeRestartCount"] == 1

    def test_a_deleted_pod_costs_nothing_and_is_no_failure(self):
        there = running(backoffLimit=0, policy="OnFailure")
        there.delete("j-worker-0")
        there.settle()
        there.end("j-worker-0", 1)
        there.settle()
        assert there.status["replicaStatuses"]["Worker"]["failed"] == 0
        there.finish_deletions()
        there.settle()
        there.run_all()
        assert there.status["restartCount"] == 0
        assert there.status["replicaStatuses"]["Worker"]["active"] == 3

    def test_the_limit_is_for_all_together(self):
        there = running(backoffLimit=2)
        for index in range(3):
            there.end(f"j-worker-{index}", 1)
        there.settle()
        there.run_all()
        assert there.status["restartCount"] == 2
        assert there.phases() == {
            "worker-0": "Running",
            "worker-1": "Running",
            "worker-2": "Failed",
        }
        assert there.status["phase"] == "Running", "two of at least two are active"
        assert "BackoffLimitExceeded" in there.reasons()

    def test_raising_the_limit_goes_on(self):
        there = running(backoffLimit=0)
        there.end("j-worker-2", 1)
        there.settle()
        assert there.phases()["worker-2"] == "Failed"
        there.edit(backoffLimit=1)
        there.settle()
        there.run_all()
        assert there.phases()["worker-2"] == "Running"
        assert there.status["restartCount"] == 1
        assert there.reasons().count("ExitedWithCode") == 1

    def test_pending_workers_are_hope(self):
        there = running(backoffLimit=1)
        there.end("j-worker-0", 1)
        there.settle()
        there.end("j-worker-1", 1)
        there.settle()
        assert there.status["phase"] == "Created", "one is active, one pending, two needed"
        assert there.condition("Running")["status"] == "False"
        there.run("j-worker-0")
        there.settle()
        assert there.status["phase"] == "Running"
        there.end("j-worker-2", 1)
        there.settle()
        assert there.status["phase"] == "Failed"

    def test_pauses_grow_with_quick_failures(self):
        there = running(replicas=2)
        waited = []
        for _ in range(4):
            before = there.pod(0)["metadata"]["uid"]
            there.end("j-worker-0", 1)
            failed_s = there.now_s
            there.settle()
            while there.pod(0)["metadata"]["uid"] == before:
                there.now_s += there.again_in_s
                there.settle()
            waited.append(there.now_s - failed_s)
            there.run("j-worker-0")
            there.settle()
        assert waited == [0, 10, 20, 40]
        there.now_s += 600
        before = there.pod(0)["metadata"]["uid"]
        there.end("j-worker-0", 1)
        there.settle()
        assert there.pod(0)["metadata"]["uid"] != before, "one that ran long begins anew"

    def test_a_rejected_pod_has_no_times_but_its_pause(self):
        there = running(replicas=2)
        for _ in range(2):
            there.pod(0)["status"] = {"phase": "Failed", "reason": "OutOfcpu"}
            there.settle()
        assert there.pod(0)["status"]["phase"] == "Failed"
        assert there.again_in_s == 10

    @pytest.mark.parametrize("crash_after", [0, 1, 2, 3])
    def test_a_crash_at_any_point_neither_loses_nor_doubles(self, crash_after):
        there = running(backoffLimit=5)
        there.end("j-worker-0", 1)
        there.end("j-worker-1", 1)
        for _ in range(6):
            there.crash_after = crash_after
            with suppress(CrashError):
                there.one_pass()
            there.crash_after = None
        there.settle()
        assert there.status["restartCount"] == 2

    def test_a_refused_pod_does_not_stop_the_counting(self):
        there = world(job())
        there.refuses = lambda create: create.manifest["metadata"]["name"] == "j-worker-2"
        for _ in range(10):
            there.one_pass()
        for name in list(there.pods):
            there.run(name)
        for _ in range(3):
            there.one_pass()
        assert there.status["phase"] == "Running"
        there.end("j-worker-0", 1)
        for _ in range(4):
            there.one_pass()
        assert there.status["restartCount"] == 1
        assert there.phases() == {"worker-0": "Pending", "worker-1": "Running"}


class TestEnd:
    def test_success_waits_for_all_that_run(self):
        there = running()
        there.end("j-worker-0", 0)
        there.end("j-worker-1", 0)
        there.settle()
        assert there.status["phase"] == "Running"
        there.end("j-worker-2", 0)
        there.settle()
        assert there.status["phase"] == "Succeeded"
        assert there.status["completionTime"]
        assert there.status["replicaStatuses"]["Worker"] == {
            "active": 0,
            "succeeded": 3,
            "failed": 0,
        }
        assert there.condition("Running")["status"] == "False"

    def test_pending_workers_do_not_hold_it_back(self):
        there = world(job(replicas=5))
        there.settle()
        for index in range(2):
            there.run(f"j-worker-{index}")
        there.settle()
        for index in range(2):
            there.end(f"j-worker-{index}", 0)
        there.settle()
        assert there.status["phase"] == "Succeeded"
        assert there.phases() == {"worker-0": "Succeeded", "worker-1": "Succeeded"}

    def test_nobody_is_made_for_work_that_is_done(self):
        there = running()
        there.end("j-worker-0", 0)
        there.end("j-worker-1", 0)
        there.settle()
        there.end("j-worker-2", 1)
        there.settle()
        assert there.status["phase"] == "Succeeded"
        assert there.phases()["worker-2"] == "Failed"
        assert there.status["restartCount"] == 0

    def test_nobody_is_made_or_removed_while_the_last_ones_finish(self):
        there = running(replicas=5)
        for _ in range(2):
            there.end("j-worker-4", 137)
            there.settle()
            there.run_all()
        there.end("j-worker-4", 137)
        there.delete("j-worker-3")
        there.end("j-worker-0", 0)
        there.end("j-worker-1", 0)
        there.settle()
        there.finish_deletions()
        there.advance(60)
        assert there.phases() == {
            "worker-0": "Succeeded",
            "worker-1": "Succeeded",
            "worker-2": "Running",
            "worker-4": "Failed",
        }

    def test_code_0_of_one_that_was_asked_to_end_is_no_success(self):
        there = running(replicas=2)
        there.delete("j-worker-0")
        there.end("j-worker-0", 0)
        there.settle()
        assert there.status["replicaStatuses"]["Worker"]["succeeded"] == 0
        there.finish_deletions()
        there.settle()
        assert there.phases()["worker-0"] == "Pending"

    def test_a_success_is_remembered_when_its_pod_is_gone(self):
        there = running()
        there.end("j-worker-0", 0)
        there.settle()
        there.delete("j-worker-0")
        there.settle()
        assert there.pod(0) is None
        there.end("j-worker-1", 0)
        there.end("j-worker-2", 0)
        there.settle()
        assert there.status["phase"] == "Succeeded"

    def test_too_few_successes_and_nobody_to_come(self):
        there = running(backoffLimit=0)
        for index, code in enumerate((0, 1, 1)):
            there.end(f"j-worker-{index}", code)
        there.settle()
        assert there.status["phase"] == "Failed"

    @pytest.mark.parametrize(
        ("policy", "left"),
        [
            pytest.param("None", {"worker-0", "worker-1"}, id="none"),
            pytest.param("Running", {"worker-0"}, id="running"),
            pytest.param("All", set(), id="all"),
        ],
    )
    def test_clean_pod_policy(self, policy, left):
        there = running(backoffLimit=0, replicas=2, cleanPodPolicy=policy)
        there.end("j-worker-0", 1)
        there.settle()
        assert there.status["phase"] == "Failed"
        there.finish_deletions()
        there.settle()
        assert set(there.phases()) == left
        assert {name.removeprefix("j-") for name in there.services} == left
        assert there.status["replicaStatuses"]["Worker"]["failed"] == 1

    def test_deadline_ends_what_runs_on_time(self):
        there = running(activeDeadlineSeconds=60)
        there.end("j-worker-2", 0)
        there.advance(59)
        assert there.status["phase"] == "Running"
        there.advance(1)
        assert there.status["phase"] == "Failed"
        assert "activeDeadlineSeconds=60" in there.condition("Failed")["message"]
        there.finish_deletions()
        there.settle()
        assert there.phases() == {"worker-2": "Succeeded"}

    def test_removed_on_time(self):
        there = running(ttlSecondsAfterFinished=30)
        for index in range(3):
            there.end(f"j-worker-{index}", 0)
        there.settle()
        there.advance(29)
        assert not there.is_job_gone
        there.advance(1)
        assert there.is_job_gone

    def test_nothing_is_made_after_the_end(self):
        there = running()
        for index in range(3):
            there.end(f"j-worker-{index}", 0)
        there.settle()
        there.delete("j-worker-0")
        there.actions.clear()
        there.settle()
        assert [(a.resource, a.name) for a in there.actions] == [(SERVICES, "j-worker-0")]


class TestOwnStore:
    @pytest.fixture
    def there(self):
        there = own_store()
        there.settle()
        return there

    def test_the_store_comes_first(self, there):
        assert there.phases() == {"rdzv": "Pending"}
        assert "not ready" in there.condition("Running")["message"]
        there.run("j-rdzv")
        there.settle()
        assert set(there.phases()) == {"rdzv", "worker-0", "worker-1", "worker-2"}
        env = env_of(there.pod(0))
        assert env["RDZV_ENDPOINT"] == env["PET_RDZV_ENDPOINT"] == "j-rdzv:29400"
        assert env["PET_RDZV_BACKEND"] == "c10d"
        assert "is_host=0" in env["PET_RDZV_CONF"].split(",")
        assert there.status["rdzvEndpoint"] == "j-rdzv:29400"

    def test_its_pod(self, there):
        pod, service = there.pods["j-rdzv"], there.services["j-rdzv"]
        [container] = pod["spec"]["containers"]
        assert container["image"] == "torch"
        assert service["spec"]["selector"] == pod["metadata"]["labels"]
        assert pod["metadata"]["labels"]["replica-type"] == "rdzv"
        compile(container["command"][2], "store", "exec")

    @pytest.mark.parametrize("how", ["crash", "delete"])
    def test_its_loss_costs_nothing(self, there, how):
        there.run_all()
        if how == "crash":
            there.end("j-rdzv", 139)
        else:
            there.delete("j-rdzv")
        there.settle()
        for index in range(3):
            there.end(f"j-worker-{index}", 1)
        there.settle()
        there.finish_deletions()
        there.settle()
        there.run_all()
        assert there.status["restartCount"] == 0
        assert there.status["freeRestartCount"] == 3
        assert there.status["phase"] == "Running"
        store = there.pods["j-rdzv"]["metadata"]["uid"]
        made_for = {
            pod["metadata"]["annotations"]["elastic.pytorch.org/rdzv-store"]
            for name, pod in there.pods.items()
            if "worker" in name
        }
        assert made_for == {store}

    def test_workers_that_have_not_begun_go_with_it(self, there):
        there.run("j-rdzv")
        there.settle()
        there.end("j-rdzv", 1)
        there.settle()
        there.run("j-rdzv")
        there.settle()
        store = there.pods["j-rdzv"]["metadata"]["uid"]
        made_for = there.pod(0)["metadata"]["annotations"]["elastic.pytorch.org/rdzv-store"]
        assert made_for == store

    def test_agents_that_hang_after_its_loss_are_ended(self, there):
        there.run_all()
        there.end("j-rdzv", 1)
        there.settle()
        there.run_all()
        there.advance(59)
        assert not any("deletionTimestamp" in pod["metadata"] for pod in there.pods.values())
        there.advance(2)
        going = [n for n, pod in there.pods.items() if "deletionTimestamp" in pod["metadata"]]
        assert sorted(going) == ["j-worker-0", "j-worker-1", "j-worker-2"]

    def test_a_store_on_a_silent_node_is_forgotten(self, there):
        there.run_all()
        lost = there.pods["j-rdzv"]["metadata"]["uid"]
        there.delete("j-rdzv")
        there.settle()
        there.advance(61)
        assert there.pods["j-rdzv"]["metadata"]["uid"] != lost

    def test_a_store_that_cannot_run_is_tried_more_and_more_seldom(self, there):
        for _ in range(3):
            there.run("j-rdzv")
            there.end("j-rdzv", 1)
            there.settle()
            there.advance(there.again_in_s or 0)
        assert there.status["quickFailures"] == {"rdzv": 3}
        assert "RendezvousStoreEnded" in there.reasons()

    def test_a_closed_rendezvous_is_not_given_to_replacements(self, there):
        there.run_all()
        store = there.pods["j-rdzv"]["metadata"]["uid"]
        there.end("j-worker-0", 1)
        there.settle()
        assert there.pods["j-rdzv"]["metadata"]["uid"] == store, "others are still there"
        for index in range(3):
            if index == 0:
                there.run_all()
            there.end(f"j-worker-{index}", 1)
        there.advance(60)
        there.finish_deletions()
        there.settle()
        assert there.pods["j-rdzv"]["metadata"]["uid"] != store

    def test_it_goes_when_nobody_needs_it(self, there):
        there.run_all()
        for index in range(3):
            there.end(f"j-worker-{index}", 0)
        there.settle()
        there.finish_deletions()
        there.settle()
        assert set(there.phases()) == {"worker-0", "worker-1", "worker-2"}
        assert "j-rdzv" not in there.services

    def test_naming_an_endpoint_moves_everybody(self, there):
        there.run_all()
        there.edit(rdzvEndpoint="etcd:2379")
        for _ in range(3):
            there.settle()
            there.finish_deletions()
        there.run_all()
        assert "rdzv" not in there.phases()
        assert {env_of(pod)["RDZV_ENDPOINT"] for pod in there.pods.values()} == {"etcd:2379"}


def broken(path, value):
    manifest = job()
    where = manifest["spec"]
    *above, last = path
    for key in above:
        where = where[key]
    where[last] = value
    return manifest


WORKER = ("replicaSpecs", "Worker")
TEMPLATE = (*WORKER, "template")


class TestWrongSpecs:
    @pytest.mark.parametrize(
        ("path", "value", "named"),
        [
            (("minReplicas",), 0, "spec.minReplicas=0"),
            (("minReplicas",), "two", "spec.minReplicas='two'"),
            (("minReplicas",), 4, "spec.replicaSpecs.Worker.replicas=3"),
            (("maxReplicas",), 1, "spec.maxReplicas=1"),
            (("maxReplicas",), 2, "spec.replicaSpecs.Worker.replicas=3"),
            (("rdzvEndpoint",), "", "spec.rdzvEndpoint=''"),
            (("rdzvEndpoint",), 3, "spec.rdzvEndpoint=3"),
            (("backoffLimit",), -1, "spec.backoffLimit=-1"),
            (("activeDeadlineSeconds",), 0, "spec.activeDeadlineSeconds=0"),
            (("ttlSecondsAfterFinished",), -1, "spec.ttlSecondsAfterFinished=-1"),
            (("cleanPodPolicy",), "Some", "spec.cleanPodPolicy='Some'"),
            (("replicaSpecs",), {}, "spec.replicaSpecs.Worker is missing"),
            (WORKER, [], "spec.replicaSpecs.Worker=[]"),
            ((*WORKER, "replicas"), 9, "spec.replicaSpecs.Worker.replicas=9"),
            ((*WORKER, "restartPolicy"), "Maybe", "spec.replicaSpecs.Worker.restartPolicy='Maybe'"),
            (TEMPLATE, "pod", "spec.replicaSpecs.Worker.template='pod'"),
            (TEMPLATE, {}, "template.spec=None"),
            ((*TEMPLATE, "spec"), {"containers": []}, "template.spec.containers=[]"),
            ((*TEMPLATE, "spec"), {"containers": {"a": 1}}, "template.spec.containers="),
            ((*TEMPLATE, "spec"), {"containers": ["x"]}, "template.spec.containers.0='x'"),
            ((*TEMPLATE, "spec"), {"containers": [{}]}, "template.spec.containers.0.name=None"),
            ((*TEMPLATE, "metadata"), {"labels": {"a": 1}}, "template.metadata.labels.a=1"),
        ],
    )
    def test_named_with_field_and_value(self, path, value, named):
        there = world(broken(path, value))
        there.settle()
        failed = there.condition("Failed")
        assert failed["status"] == "True"
        assert failed["reason"] == "ElasticJobInvalid"
        assert named in failed["message"]
        assert there.status["phase"] == "Failed"
        assert "selector" not in there.status, "the API server refuses an empty one"
        assert there.reasons() == ["ElasticJobInvalid"]
        assert there.pods == there.services == {}

    @pytest.mark.parametrize("name", ["3jobs", "a.b", "x" * 55])
    def test_names_that_no_service_can_have(self, name):
        there = world(job(name=name, replicas=3))
        there.settle()
        assert f"metadata.name='{name}'" in there.condition("Failed")["message"]

    def test_the_longest_name(self):
        there = world(job(name="x" * 54, replicas=3, least=2, most=3))
        there.settle()
        assert len(there.pods) == 3

    def test_a_corrected_spec_begins(self):
        there = world(job(replicas=9))
        there.settle()
        assert there.status["phase"] == "Failed"
        there.edit(replicas=3)
        there.settle()
        there.run_all()
        assert there.status["phase"] == "Running"
        assert there.condition("Failed")["status"] == "False"
        assert "completionTime" not in there.status

    def test_a_slip_does_not_end_a_job_that_runs(self):
        there = running()
        there.edit(replicas=9)
        there.settle()
        assert set(there.phases().values()) == {"Running"}
        assert there.reasons().count("ElasticJobInvalid") == 1
        assert "spec.replicaSpecs.Worker.replicas=9" in there.notes[-1].message
        there.edit(replicas=4)
        there.settle()
        assert len(there.pods) == 4

    def test_unknown_fields_are_named_once(self):
        manifest = job(gangScheduling=True)
        manifest["spec"]["replicaSpecs"]["Worker"]["colour"] = "red"
        there = world(manifest)
        there.settle()
        there.run_all()
        [note] = [note for note in there.notes if note.reason == "UnknownFields"]
        assert note.type.value == "Warning"
        assert "spec.gangScheduling" in note.message
        assert "spec.replicaSpecs.Worker.colour" in note.message

    def test_a_foreign_status_is_no_hindrance(self):
        there = world(job())
        there.job["status"] = {"conditions": "many", "replicaStatuses": {"Worker": None}}
        there.settle()
        assert len(there.pods) == 3


SCALARS = st.none() | st.booleans() | st.integers(-3, 12) | st.text(max_size=5)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["spec", "containers", "name", "env", "value", "resources", "limits", "metadata",
                 "labels", "annotations", "replicas", "template", "Worker", "tolerations",
                 "nvidia.com/gpu", "initContainers", "restartPolicy"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)  # fmt: skip
PATHS = [
    ("rdzvEndpoint",), ("minReplicas",), ("maxReplicas",), ("replicaSpecs",), WORKER,
    ("backoffLimit",), ("cleanPodPolicy",), ("activeDeadlineSeconds",), TEMPLATE,
    (*TEMPLATE, "spec"), (*TEMPLATE, "metadata"), (*TEMPLATE, "spec", "containers"),
    (*TEMPLATE, "spec", "containers", 0), (*TEMPLATE, "spec", "containers", 0, "env"),
    (*TEMPLATE, "spec", "containers", 0, "resources"), (*WORKER, "replicas"),
]  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(PATHS), ANYTHING, st.booleans())
@example((*TEMPLATE, "spec", "containers", 0, "env"), [{"name": []}], False)
def test_whatever_is_written_begins_or_is_named(path, value, has_store):
    manifest = broken(path, value)
    if has_store and path != ("rdzvEndpoint",):
        del manifest["spec"]["rdzvEndpoint"]
    manifest["spec"].setdefault("maxReplicas", 12)
    there = world(manifest)
    first = there.kind.reconcile(there.observe())
    there.job["status"] = first.status
    second = there.kind.reconcile(there.observe())
    failed = there.condition("Failed")
    if failed is None:
        assert second.actions
    else:
        assert failed["reason"] == "ElasticJobInvalid"
        assert "spec." in failed["message"]
        assert second.actions == ()


def test_a_job_that_is_being_deleted_is_left_alone():
    there = world(job())
    there.job["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    there.settle()
    assert there.actions == []


def test_objects_of_others_are_left_alone():
    there = running()
    there.pods["j-worker-x"] = {
        "metadata": {"name": "j-worker-x", "uid": "x", "labels": {}},
        "status": {"phase": "Failed"},
        "spec": {"containers": []},
    }
    there.actions.clear()
    there.settle()
    assert there.actions == []


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"group-name": "elastic.pytorch.org", "job-name": "j"}, "j"),
        ({"group-name": "kubeflow.org", "job-name": "j"}, None),
        ({"job-name": "j"}, None),
        (None, None),
    ],
)
def test_whose_a_pod_is(labels, expected):
    assert ElasticJobs().job_of(PODS, {"metadata": {"name": "p", "labels": labels}}) == expected


FAULTS = st.lists(
    st.tuples(
        st.sampled_from(
            ["run", "fail", "kill", "evict", "delete", "vanish", "gone", "scale", "crash", "wait",
             "store", "refuse"]
        ),
        st.integers(0, 4),
    ),
    max_size=40,
)  # fmt: skip


class TestWhateverHappens:
    @settings(max_examples=150, deadline=None)
    @given(FAULTS, st.booleans(), st.sampled_from(["ExitCode", "OnFailure"]))
    def test_counts_are_exact_and_it_ends_as_it_must(self, faults, has_store, policy):
        there = (own_store if has_store else world)(policy=policy, name="j")
        there.settle()
        for fault, index in faults:
            self._play(there, fault, index)
            self._check(there)
        there.refuses = lambda create: False
        self._heal(there)
        self._check(there)
        assert there.status["phase"] == "Succeeded"

    @settings(max_examples=100, deadline=None)
    @given(FAULTS, st.integers(0, 4))
    @example(faults=[("run", 0), ("fail", 0), ("scale", 0)], limit=0)
    def test_never_more_than_the_limit(self, faults, limit):
        there = world(job(backoffLimit=limit))
        there.settle()
        for fault, index in faults:
            self._play(there, fault, index)
            self._check(there)
            assert there.status["restartCount"] <= limit
            held = sum(
                there.status["replicaStatuses"]["Worker"][k] for k in ("active", "succeeded")
            )
            if held >= 2:
                assert there.status["phase"] != "Failed"

    def _play(self, there, fault, index):
        if there.status.get("completionTime"):
            return
        pods = sorted(name for name in there.pods if "worker" in name)
        name = pods[index % len(pods)] if pods else None
        phase = there.pods[name]["status"]["phase"] if name else None
        is_free = name is not None and "deletionTimestamp" not in there.pods[name]["metadata"]
        match fault:
            case "run":
                for each, pod in list(there.pods.items()):
                    if pod["status"]["phase"] == "Pending":
                        there.run(each)
            case "fail" | "kill" if phase == "Running":
                there.end(name, 1 if fault == "fail" else 137)
            case "evict" if phase == "Running" and is_free:
                there.evict(name)
            case "delete" if name:
                there.delete(name)
            case "vanish" if name:
                del there.pods[name]
            case "gone":
                there.finish_deletions()
            case "scale":
                there.edit(replicas=2 + index % 4)
            case "crash":
                there.crash_after = index
                with suppress(CrashError):
                    there.one_pass()
                there.crash_after = None
            case "wait":
                there.advance(10.0 * index)
            case "store" if "j-rdzv" in there.pods:
                if there.pods["j-rdzv"]["status"]["phase"] == "Running" and index % 2:
                    there.end("j-rdzv", 1)
                else:
                    there.delete("j-rdzv")
            case "refuse":
                there.one_pass()
        there.settle()

    def _check(self, there):
        verdicts = list(there.charged.values())
        assert there.status["restartCount"] == verdicts.count("Spent")
        stores = there.reasons().count("RendezvousStoreEnded")
        assert there.status["freeRestartCount"] == verdicts.count("Free") - stores

    def _heal(self, there):
        for _ in range(20):
            if there.status.get("completionTime"):
                return
            there.finish_deletions()
            there.advance(400)
            there.run_all()
            active = [n for n, p in there.pods.items() if p["status"]["phase"] == "Running"]
            workers = [name for name in active if "worker" in name]
            held = len(workers) + there.status["replicaStatuses"]["Worker"]["succeeded"]
            if held >= there.job["spec"]["minReplicas"]:
                for name in workers:
                    there.end(name, 0)
            there.settle()
        raise AssertionError(f"it does not end: {there.phases()}, {there.status}")
