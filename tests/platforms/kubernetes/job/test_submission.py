"""Submitting to a real cluster: what it leaves there, what it refuses, and in which words."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.cluster import KUBECONFIG, eventually, needs_cluster
from support.kubernetes_jobs import ClusterJobs

from elastic.errors import JobExistsError, JobSpecError, PlatformError
from elastic.platforms.kubernetes.api.cluster import AwayError, Cluster
from elastic.platforms.kubernetes.api.transport import find_access
from elastic.platforms.kubernetes.job.installing import priority_classes
from elastic.platforms.kubernetes.job.platform import KubernetesPlatform
from elastic.spec.status import JobPhase, JobStatus

pytestmark = needs_cluster


def refusal(jobs, **settings):
    """Submit a job that is refused; gives the message, with nothing left behind."""
    with pytest.raises((JobSpecError, PlatformError)) as refused:
        jobs.submit("refused", **settings)
    # The job of an earlier test may just be leaving.
    assert [entry for entry in jobs.belongings() if "elastic-refused" in entry] == []
    message = str(refused.value)
    assert "\n" not in message
    return message


def broken_platform(jobs, error):
    """One that fails when everything of a job is there, and only the owners are left to be set."""

    class Broken(Cluster):
        def patch(self, path, change):
            if "/secrets/" in path:
                raise error
            return super().patch(path, change)

    return KubernetesPlatform(Broken(find_access(KUBECONFIG)), jobs.namespace)


class TestWhatIsThere:
    def test_a_job_has_its_objects_and_they_belong_to_the_master(self, jobs, job_name):
        objects = jobs.submit(job_name)
        master = objects.find_master()
        assert [entry for entry in jobs.belongings() if f"-{job_name}" in entry][:4] == [
            f"configmaps/elastic-{job_name}",
            *[f"pods/elastic-{job_name}-master"],
            f"secrets/elastic-{job_name}-token",
            f"services/elastic-{job_name}-master",
        ]
        for kind, name in (
            ("secrets", f"elastic-{job_name}-token"),
            ("services", f"elastic-{job_name}-master"),
        ):
            (owner,) = jobs.get(kind, name)["metadata"]["ownerReferences"]
            assert owner["uid"] == master["metadata"]["uid"]
        assert "ownerReferences" not in objects.record()["metadata"]

    def test_a_master_that_is_deleted_takes_everything_but_the_record_along(self, jobs, job_name):
        jobs.submit(job_name)
        jobs.until(JobPhase.RUNNING, job_name)
        jobs.start_worker(0, job_name)
        jobs.remove("pods", f"elastic-{job_name}-master")
        status = jobs.until(JobPhase.FAILED, job_name)
        assert status.reason == "MasterDeleted"
        assert "--overwrite" in status.message
        eventually(
            lambda: (
                [b for b in jobs.belongings() if job_name in b]
                == [f"configmaps/elastic-{job_name}", f"configmaps/elastic-{job_name}-status"]
            )
        )

    def test_the_specification_comes_back(self, jobs, job_name):
        jobs.submit(job_name, "finish", seed=7)
        spec = jobs.platform.spec(job_name)
        assert (spec.seed, spec.namespace, str(spec.model_zoo)) == (
            7, jobs.namespace, "/model_zoo"
        )  # fmt: skip


class TestRefused:
    def test_a_namespace_that_is_not_there(self, jobs):
        other = ClusterJobs("laptop-is-not-there")
        with pytest.raises(PlatformError, match="no namespace 'laptop-is-not-there'") as refused:
            other.submit()
        assert "elastic install -n laptop-is-not-there --create_namespace" in str(refused.value)

    def test_a_namespace_of_others(self, jobs, job_name, kubeconfig_of):
        stranger = ClusterJobs(jobs.namespace, kubeconfig_of("stranger"))
        before = jobs.belongings()
        with pytest.raises(PlatformError, match=r"^not permitted: .*cannot") as refused:
            stranger.submit(job_name)
        assert 'namespace "laptop-' in str(refused.value)
        assert jobs.belongings() == before

    def test_no_service_account(self, jobs):
        message = refusal(jobs, service_account="nobody")
        assert message.startswith(f"namespace {jobs.namespace!r} has no service account 'nobody'")
        assert f"elastic install -n {jobs.namespace} --apply" in message

    def test_no_claim(self, jobs):
        message = refusal(jobs, volume="claim_name=nope,mount_path=/data")
        assert message.startswith("--volume names the claim 'nope'")

    @pytest.mark.parametrize("role", ["master", "worker"])
    def test_a_quota_that_is_used_up(self, jobs, role):
        quota = {"metadata": {"name": "small"}, "spec": {"hard": {"requests.cpu": "200m"}}}
        jobs.create_object("resourcequotas", quota)
        try:
            # The quota counts only once its controller has seen what is there.
            eventually(lambda: "used" in (jobs.get("resourcequotas", "small").get("status") or {}))
            message = refusal(jobs, **{f"{role}_resource_request": "cpu=1,memory=32Mi"})
        finally:
            jobs.remove("resourcequotas", "small", None)
        assert message.startswith(
            f"the quota of namespace {jobs.namespace!r} has no room for a {role} pod: "
        )
        assert f"lower --{role}_resource_request" in message

    def test_no_priority_class(self, jobs):
        assert not jobs.has_priority_class("laptop-none")
        message = refusal(jobs, worker_pod_priority="laptop-none")
        assert message.startswith("--worker_pod_priority=laptop-none: ")
        assert "elastic install --priority_classes --apply" in message

    def test_what_a_limit_range_forbids(self, jobs):
        limits = [{"type": "Container", "max": {"memory": "16Mi"}}]
        jobs.create_object("limitranges", {"metadata": {"name": "l"}, "spec": {"limits": limits}})
        try:
            message = eventually(lambda: self._limited(jobs))
        finally:
            jobs.remove("limitranges", "l", None)
        assert message.startswith("the cluster refuses the master pod of the job: ")
        assert "maximum memory usage per Container is 16Mi" in message

    def _limited(self, jobs):
        try:
            jobs.submit("limited")
        except PlatformError as error:
            return str(error)
        # The API server's own copy of the limits may lag behind.
        jobs.end_pods()
        jobs.objects("limited").delete_belongings()
        jobs.objects("limited").delete_memory()
        return None

    @pytest.mark.parametrize("error", [KeyboardInterrupt(), AwayError("gone"), ZeroDivisionError()])
    def test_what_ends_half_way_is_undone(self, jobs, job_name, error):
        before = jobs.belongings()
        with pytest.raises(type(error)):
            broken_platform(jobs, error).submit(jobs.spec(job_name))
        assert jobs.belongings() == before

    def test_what_cannot_be_undone_is_said(self, jobs, job_name):
        class Lost(Cluster):
            def patch(self, path, change):
                raise AwayError("gone")

            def delete(self, path, grace_s=None, uid=None):
                if grace_s == 0.0:
                    raise AwayError("still gone")
                super().delete(path, grace_s, uid)

        cluster = Lost(find_access(KUBECONFIG))
        with pytest.raises(PlatformError, match=r"gone; .*still gone.*elastic kill .* --forget"):
            KubernetesPlatform(cluster, jobs.namespace).submit(jobs.spec(job_name))
        jobs.platform.kill(job_name, 0.0)
        jobs.platform.forget(job_name)


class TestNames:
    def test_resume_keeps_what_was_reached(self, jobs, job_name):
        objects = jobs.submit(job_name, "finish")
        submitted_s = jobs.until(JobPhase.SUCCEEDED, job_name).submitted_s
        jobs.submit(job_name, "mute", resume=True, checkpoint_dir="/ckpt")
        content = jobs.get("configmaps", f"elastic-{job_name}-status")
        status = JobStatus.model_validate_json(content["data"]["status.json"])
        assert (status.phase, status.ended_s) == (JobPhase.PENDING, None)
        assert status.progress.model_version == 7
        assert status.submitted_s == submitted_s
        assert content["metadata"]["labels"]["elastic-submission"] == objects.submission().uid

    def test_resume_without_a_place_for_checkpoints_is_refused(self, jobs, job_name):
        jobs.submit(job_name, "finish")
        jobs.until(JobPhase.SUCCEEDED, job_name)
        with pytest.raises(JobSpecError, match=r"--resume finds nothing.*--checkpoint_dir"):
            jobs.submit(job_name, resume=True)

    def test_resume_goes_on_in_the_folder_that_the_earlier_masters_volume_has(self, jobs, job_name):
        def folder(resumed=True, path="/tmp", **settings):
            volume = f"host_path={path},mount_path=/elastic/state"
            objects = jobs.submit(job_name, "finish", volume=volume, resume=resumed, **settings)
            jobs.until(JobPhase.SUCCEEDED, job_name)
            (container,) = objects.find_master()["spec"]["containers"]
            (mount,) = [m for m in container["volumeMounts"] if m["mountPath"].endswith("/cuts")]
            return mount["subPath"]

        first = folder(resumed=False)
        assert first == f"{job_name}/{jobs.objects(job_name).submission().uid}/cuts"
        assert folder() == first
        assert folder() == first
        with pytest.raises(JobSpecError, match=r"--resume finds nothing.*at /elastic/state"):
            folder(path="/var/tmp")
        # What was begun anew does not go on from what was overwritten.
        assert folder(resumed=False, overwrite=True) != first

    @pytest.mark.parametrize("how", ["overwrite", "resume"])
    def test_a_failed_overwrite_leaves_the_old_job_readable(self, jobs, job_name, how):
        objects = jobs.submit(job_name, "finish")
        before = jobs.until(JobPhase.SUCCEEDED, job_name)
        old = objects.submission()
        spec = jobs.spec(job_name, checkpoint_dir="/c", **{how: True})
        with pytest.raises(AwayError):
            broken_platform(jobs, AwayError("gone")).submit(spec)
        assert objects.submission() == old
        assert jobs.platform.status(job_name) == before
        assert jobs.platform.spec(job_name).checkpoint_dir == ""

    def test_of_racing_submits_exactly_one_wins(self, jobs, job_name):
        def submit(_):
            try:
                ClusterJobs(jobs.namespace).submit(job_name)
            except JobExistsError:
                return False
            return True

        with ThreadPoolExecutor(4) as pool:
            assert sorted(pool.map(submit, range(4))) == [False] * 3 + [True]
        jobs.until(JobPhase.RUNNING, job_name)
        (pod,) = jobs.objects(job_name).pods()
        uid = json.loads(jobs.objects(job_name).record()["data"]["submission.json"])["uid"]
        assert pod["metadata"]["labels"]["elastic-submission"] == uid


class TestDryRunsLeaveNothing:
    def test_a_priority_class_that_is_there_is_taken(self, jobs, job_name):
        with jobs.priority_classes(priority_classes()):
            objects = jobs.submit(job_name, worker_pod_priority="0.5", master_pod_priority="high")
            assert objects.find_master()["spec"]["priority"] == 1000
