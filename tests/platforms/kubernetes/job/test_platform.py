"""`KubernetesPlatform` on a real cluster: status, scale, kill, and what stays."""

import io
import json
import re
import time

import pytest
from support.cluster import eventually, needs_cluster

from elastic.cli.exit_codes import ExitCode
from elastic.cli.job_command import follow_to_end
from elastic.errors import JobNotFoundError
from elastic.spec.status import JobPhase

pytestmark = needs_cluster

KILL_S = 90.0


class TestStatus:
    def test_a_job_runs_to_its_end_and_stays_readable(self, jobs, job_name):
        jobs.submit(job_name, "finish")
        status = jobs.until(JobPhase.SUCCEEDED, job_name)
        assert status.progress.model_version == 7
        jobs.end_pods()
        assert jobs.platform.status(job_name) == status

    def test_an_image_that_is_not_there_is_said_and_stays_said(self, jobs, job_name):
        image = "127.0.0.1:5000/no/such:1"
        jobs.submit(job_name, image=image, image_pull_policy="Always")
        # Whatever the kubelet calls it from moment to moment.
        for _ in range(2):
            status = jobs.until(JobPhase.PENDING, job_name, "ErrImagePull")
            assert status.message.startswith(f"image {image} cannot be used: ")
            assert "not found" in status.message
            assert "--docker_image_repository" in status.message
            master = jobs.objects(job_name).find_master
            eventually(lambda m=master: "ImagePullBackOff" in json.dumps(m()["status"]))

    def test_what_no_node_has_room_for_is_said(self, jobs, job_name):
        jobs.submit(job_name, master_resource_request="cpu=900,memory=32Mi")
        status = jobs.until(JobPhase.PENDING, job_name, "Unschedulable")
        assert status.message.startswith("the master waits for a node: 0/")
        assert "Insufficient cpu" in status.message

    def test_a_volume_that_cannot_be_mounted_is_said(self, jobs, job_name):
        jobs.submit(job_name, volume="host_path=/no/such,type=Directory,mount_path=/data")
        status = jobs.until(JobPhase.PENDING, job_name, "Starting")
        assert "/no/such is not a directory" in status.message

    def test_a_master_that_crashes_is_said_with_its_last_words(self, jobs, job_name):
        jobs.submit(job_name, "crash")
        status = jobs.until(JobPhase.RECOVERING, job_name, "MasterLost")
        assert "the master ended (these are its last words) and is started" in status.message

    def test_a_master_that_published_nothing_has_failed(self, jobs, job_name):
        jobs.submit(job_name, "mute")
        assert jobs.until(JobPhase.FAILED, job_name).reason == "MasterLost"

    def test_an_unknown_job_is_said_with_where_it_was_looked_for(self, jobs):
        with pytest.raises(
            JobNotFoundError, match=f"no job 'none' in namespace '{jobs.namespace}'"
        ):
            jobs.platform.status("none")


class TestAMasterThatNeverStarts:
    def test_fails_its_job_in_time_and_nothing_of_it_waits_on(self, jobs, job_name):
        image = "127.0.0.1:5000/no/such:1"
        # Long enough for the node to try the image.
        jobs.submit(job_name, image=image, image_pull_policy="Always", start_timeout=8)
        seen = io.StringIO()
        assert follow_to_end(jobs.platform, job_name, seen, 0.0, job_name) == ExitCode.JOB_FAILED
        assert f"image {image} cannot be used" in seen.getvalue()
        status = jobs.platform.status(job_name)
        assert (status.phase, status.reason) == (JobPhase.FAILED, "StartTimeout")
        assert "within 8 s (start_timeout=8): image" in status.message
        assert [b for b in jobs.belongings() if job_name in b] == [
            f"configmaps/elastic-{job_name}", f"configmaps/elastic-{job_name}-status",
        ]  # fmt: skip

    def test_is_failed_for_who_only_looks_too_and_may_be_replaced(self, jobs, job_name):
        jobs.submit(job_name, master_resource_request="cpu=900,memory=32Mi", start_timeout=1)
        status = jobs.until(JobPhase.FAILED, job_name, "StartTimeout")
        assert "the master waits for a node: 0/" in status.message
        assert jobs.objects(job_name).find_master() is not None
        [listed] = [s for s in jobs.platform.statuses() if s.job_name == job_name]
        assert listed == status
        jobs.submit(job_name, "finish", overwrite=True)
        jobs.until(JobPhase.SUCCEEDED, job_name)

    def test_whose_program_cannot_run_is_not_restarted_for_ever(self, jobs, job_name):
        # A base without elastic: no life of such a master can count the ones before.
        jobs.submit(job_name, image="python:3.11-slim", start_timeout=1)
        # Until its first end is known it could only have started later.
        jobs.until(JobPhase.FAILED, job_name, "StartTimeout")
        told = r": each time it ended \(.*No module named 'elastic'"
        eventually(lambda: re.search(told, jobs.platform.status(job_name).message))
        status = jobs.platform.status(job_name)
        assert (status.phase, status.reason) == (JobPhase.FAILED, "StartTimeout")
        jobs.platform.kill(job_name, KILL_S)
        assert jobs.platform.status(job_name) == status


class TestKill:
    def test_the_master_is_asked_first_and_no_pod_is_left(self, jobs, job_name):
        jobs.submit(job_name)
        jobs.until(JobPhase.RUNNING, job_name)
        jobs.start_worker(0, job_name)
        jobs.platform.kill(job_name, KILL_S)
        assert jobs.objects(job_name).pods() == []
        status = jobs.platform.status(job_name)
        assert (status.phase, status.message) == (JobPhase.CANCELLED, "the master says so")
        assert [b for b in jobs.belongings() if job_name in b] == [
            f"configmaps/elastic-{job_name}", f"configmaps/elastic-{job_name}-status",
        ]  # fmt: skip
        jobs.platform.kill(job_name, KILL_S)

    def test_a_master_that_hears_nothing_is_ended_all_the_same(self, jobs, job_name):
        jobs.submit(job_name, "deaf")
        jobs.until(JobPhase.RUNNING, job_name)
        # Half of the time is the master's, and a pod's end takes the node its time.
        jobs.platform.kill(job_name, KILL_S / 2)
        assert jobs.objects(job_name).pods() == []
        status = jobs.platform.status(job_name)
        assert (status.phase, status.message) == (JobPhase.CANCELLED, "cancelled by its user")

    def test_a_master_that_could_never_start_is_not_waited_for(self, jobs, job_name):
        jobs.submit(job_name, master_resource_request="cpu=900,memory=32Mi")
        jobs.until(JobPhase.PENDING, job_name, "Unschedulable")
        started_s = time.monotonic()
        jobs.platform.kill(job_name, KILL_S)
        assert time.monotonic() - started_s < KILL_S / 3
        assert jobs.platform.status(job_name).phase is JobPhase.CANCELLED

    def test_in_no_time_the_api_server_forgets_the_pods(self, jobs, job_name):
        jobs.submit(job_name, "deaf")
        jobs.until(JobPhase.RUNNING, job_name)
        jobs.platform.kill(job_name, 0.0)
        assert jobs.objects(job_name).pods() == []
