"""Where a job's TensorBoard runs, what it may and sees, and how it is found again."""

from pathlib import Path

import pytest
import yaml
from support.fake_objects import FakeObjects

from elastic.cli.main import main
from elastic.errors import JobSpecError
from elastic.platforms.kubernetes.job.installing import MASTER_RIGHTS
from elastic.platforms.kubernetes.job.platform import KubernetesPlatform
from elastic.platforms.kubernetes.objects import manifests
from elastic.platforms.kubernetes.objects.manifests import Submission
from elastic.platforms.kubernetes.objects.names import Owner
from elastic.platforms.kubernetes.objects.podspec import Hook, Job
from elastic.spec.job import JobSpec
from elastic.spec.settings.work import METRICS_PORT
from elastic.spec.status import JobPhase, JobStatus

OWNER = Owner("elastic-a1-master", "uid-m")
SHARED = {
    "tensorboard_log_dir": "/results/events",
    "volume": "claim_name=data,mount_path=/data;claim_name=out,mount_path=/results,sub_path=a",
}


def make_job(hook=None, **settings):
    spec = JobSpec(
        job_name="a1", model_zoo="z", model_def="m.C", training_data_dir="d", minibatch_size=1,
        **settings,
    )  # fmt: skip
    return Job(spec, "team", "uid", "registry/elastic:1", hook)


def made(kind, **settings):
    found = [o for o in manifests.board_objects(make_job(**settings), OWNER) if o["kind"] == kind]
    assert len(found) == 1, found
    return found[0]


class TestWhatIsCreated:
    def test_nothing_where_no_events_are_written(self):
        assert manifests.board_objects(make_job(volume=SHARED["volume"]), OWNER) == []

    def test_a_pod_and_a_service_of_the_master(self):
        for kind in ("Pod", "Service"):
            metadata = made(kind, **SHARED)["metadata"]
            assert (metadata["name"], metadata["namespace"]) == ("elastic-a1-tensorboard", "team")
            assert metadata["labels"] == {
                "app": "elastic", "elastic-job-name": "a1", "elastic-submission": "uid",
                "elastic-replica-type": "tensorboard", "elastic-replica-index": "0",
                "elastic-launch": "1",
            }  # fmt: skip
            assert metadata["ownerReferences"] == [OWNER.reference()]

    def test_the_service_leads_to_the_pod(self):
        service, pod = made("Service", **SHARED), made("Pod", **SHARED)
        assert service["spec"]["selector"] == pod["metadata"]["labels"]
        (container,) = pod["spec"]["containers"]
        assert container["ports"] == [{"name": "http", "containerPort": 6006}]
        assert container["command"] == [
            "python", "-P", "-m", "elastic.telemetry.board", "--logdir", "/results/events",
            "--port", "6006", "--master", "elastic-a1-master.team.svc:50001",
        ]  # fmt: skip

    def test_the_pod_sees_the_users_volumes_and_changes_nothing(self):
        spec = made("Pod", **SHARED)["spec"]
        (container,) = spec["containers"]
        assert [volume["name"] for volume in spec["volumes"]] == ["elastic-tmp", "user-0", "user-1"]
        assert container["volumeMounts"] == [
            {"name": "elastic-tmp", "mountPath": "/tmp"},
            {"name": "user-0", "mountPath": "/data", "readOnly": True},
            {"name": "user-1", "mountPath": "/results", "subPath": "a", "readOnly": True},
        ]

    def test_the_pod_is_as_restricted_as_clusters_may_demand(self):
        spec = made("Pod", **SHARED)["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = spec["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }  # fmt: skip
        assert spec["automountServiceAccountToken"] is False
        assert "serviceAccountName" not in spec

    def test_the_pod_has_no_secrets_of_the_job(self):
        (container,) = made("Pod", env_secret="keys", **SHARED)["spec"]["containers"]
        assert "envFrom" not in container

    def test_the_pod_is_where_its_master_is(self):
        affinity = made("Pod", **SHARED)["spec"]["affinity"]["podAffinity"]
        (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
        labels = manifests.master_pod(make_job())["metadata"]["labels"]
        assert term["labelSelector"]["matchLabels"] == labels

    def test_a_cluster_spec_edits_it_as_every_pod(self):
        hook = Hook("cluster_spec.yaml", "spec: {tolerations: [{key: a, operator: Exists}]}")
        spec = made("Pod", hook=hook, **SHARED)["spec"]
        assert {"key": "a", "operator": "Exists"} in spec["tolerations"]

    @pytest.mark.parametrize(
        "volume",
        ["", "claim_name=c,mount_path=/resul", "claim_name=c,mount_path=/elastic/state"],
    )
    def test_where_no_volume_holds_the_events_it_is_a_process_of_the_master(self, volume):
        settings = {"tensorboard_log_dir": "/results/events", "volume": volume}
        (service,) = manifests.board_objects(make_job(**settings), OWNER)
        master = manifests.master_pod(make_job(**settings))
        assert service["spec"]["selector"] == master["metadata"]["labels"]
        # A second container would keep the pod of a job that has ended.
        assert len(master["spec"]["containers"]) == 1
        assert "--beside-master" in manifests.board_program(make_job(**settings).spec)

    def test_masters_need_no_further_right(self):
        assert set(MASTER_RIGHTS) == {
            "pods", "configmaps", "events", "leases.coordination.k8s.io",
        }  # fmt: skip


class TestMetricsOfPods:
    @pytest.mark.parametrize("make", [manifests.master_pod, manifests.example_pod])
    def test_pods_say_where_they_are_scraped(self, make):
        pod = make(make_job())
        (container,) = pod["spec"]["containers"]
        assert container["ports"] == [{"name": "metrics", "containerPort": METRICS_PORT}]
        assert pod["metadata"]["annotations"] == {
            "prometheus.io/scrape": "true", "prometheus.io/port": "9464",
            "prometheus.io/path": "/metrics",
        }  # fmt: skip

    def test_without_metrics_there_is_nothing_to_scrape(self):
        pod = manifests.master_pod(make_job(metrics_port=0))
        assert pod["spec"]["containers"][0]["ports"] == []
        assert "annotations" not in pod["metadata"]

    def test_tensorboard_has_none(self):
        assert "annotations" not in made("Pod", **SHARED)["metadata"]

    def test_the_pod_monitor_selects_those_pods_and_that_port(self):
        path = Path(__file__).parents[4] / "manifests" / "pod-monitor.yaml"
        spec = yaml.safe_load(path.read_text())["spec"]
        pods = [manifests.master_pod(make_job()), manifests.example_pod(make_job())]
        (expression,) = spec["selector"]["matchExpressions"]
        for pod in pods:
            labels = pod["metadata"]["labels"]
            assert spec["selector"]["matchLabels"].items() <= labels.items()
            assert labels[expression["key"]] in expression["values"]
        labels = made("Pod", **SHARED)["metadata"]["labels"]
        assert labels[expression["key"]] not in expression["values"]
        (endpoint,) = spec["podMetricsEndpoints"]
        (port,) = pods[0]["spec"]["containers"][0]["ports"]
        assert endpoint["port"] == port["name"]


RUNNING = {
    "phase": "Running",
    "containerStatuses": [{"name": "elastic", "ready": True, "state": {"running": {}}}],
}


class TestFindingIt:
    @pytest.fixture
    def api(self):
        with FakeObjects("team") as api:
            yield api

    def submitted(self, api, is_running=True, **settings):
        """The job as it is in the cluster; the platform that knows it."""
        job = make_job(**settings)
        api.add("configmaps", manifests.record(job, Submission("uid", 1.0, "registry/elastic:1")))
        status = JobStatus(job_name="a1", phase=JobPhase.RUNNING, submitted_s=1.0)
        api.add("configmaps", manifests.status(job, status))
        master = manifests.master_pod(job)
        master["metadata"]["uid"] = "uid-m"
        master["spec"]["nodeName"] = "node-7"
        api.add("pods", master, **(RUNNING if is_running else {"phase": "Succeeded"}))
        self.platform = KubernetesPlatform(api.cluster(), "team")
        return job

    def run(self, capsys, *argv):
        code = main(["tensorboard", "a1", *argv], open_platform=lambda *_: self.platform)
        out, err = capsys.readouterr()
        return code, out, err

    def test_what_opens_it_is_printed_to_be_typed(self, api, capsys):
        job = self.submitted(api, **SHARED)
        api.add("pods", manifests.board_pod(job, OWNER, None), **RUNNING)
        code, out, _ = self.run(capsys)
        assert code == 0
        assert out == (
            "TensorBoard of job a1 runs in pod elastic-a1-tensorboard. While this runs\n"
            "  kubectl --namespace team port-forward pod/elastic-a1-tensorboard 6006:6006\n"
            "it is at http://localhost:6006/\n"
        )

    def test_the_same_cluster_and_another_port(self, api, capsys):
        job = self.submitted(api, **SHARED)
        api.add("pods", manifests.board_pod(job, OWNER, None), **RUNNING)
        _, out, _ = self.run(capsys, "--port", "7007", "--context", "c d", "--kubeconfig", "k")
        assert (
            "  kubectl --kubeconfig k --context 'c d' --namespace team port-forward "
            "pod/elastic-a1-tensorboard 7007:6006\nit is at http://localhost:7007/" in out
        )

    @pytest.mark.parametrize("phase", [None, "Succeeded", "Failed"])
    def test_one_that_has_ended_is_started_again_where_the_master_was(self, api, capsys, phase):
        job = self.submitted(api, is_running=False, **SHARED)
        if phase is not None:
            api.add("pods", manifests.board_pod(job, OWNER, None), phase=phase)
        code, out, _ = self.run(capsys)
        assert code == 0
        assert "elastic-a1-tensorboard (not yet: " in out
        pod = api.find("pods", "elastic-a1-tensorboard")
        assert pod["status"]["phase"] == "Pending"
        assert pod["metadata"]["ownerReferences"] == [OWNER.reference()]
        # A master that has ended attracts no pod.
        affinity = pod["spec"]["affinity"]
        assert "node-7" in str(affinity["nodeAffinity"])
        assert "podAffinity" not in affinity

    def test_a_job_that_writes_none(self, api, capsys):
        self.submitted(api)
        code, _, err = self.run(capsys)
        assert code == 2
        assert "job 'a1' writes no events for TensorBoard: submit it with --tensor" in err

    def test_events_in_the_masters_pod_are_there_as_long_as_it_runs(self, api, capsys):
        self.submitted(api, tensorboard_log_dir="/tmp/events")
        _, out, _ = self.run(capsys)
        assert "port-forward pod/elastic-a1-master 6006:6006" in out
        assert "where its events are too, which end with it" in out

    def test_and_no_longer(self, api):
        self.submitted(api, is_running=False, tensorboard_log_dir="/tmp/events")
        with pytest.raises(JobSpecError, match="in its master's pod, which does not run: have"):
            self.platform.board("a1")

    def test_a_killed_job_takes_pod_and_service_along(self, api):
        job = self.submitted(api, is_running=False, **SHARED)
        for manifest in manifests.board_objects(job, OWNER):
            api.add("pods" if manifest["kind"] == "Pod" else "services", manifest, **RUNNING)
        self.platform.kill("a1", 5.0)
        assert api.names() == ["configmaps/elastic-a1", "configmaps/elastic-a1-status"]
