"""The logs of pods in a real cluster, whole, followed, and of a life before."""

import itertools
import threading
from contextlib import suppress

import pytest
from support.api_proxy import ApiProxy, cluster_through
from support.cluster import KUBECONFIG, eventually, needs_cluster

from elastic.errors import PlatformError
from elastic.platforms.kubernetes.api.resources import CONFIGMAPS
from elastic.platforms.kubernetes.job.logs import ExcuseError, _order, _whole_second
from elastic.platforms.kubernetes.job.platform import KubernetesPlatform
from elastic.platforms.kubernetes.objects import names
from elastic.platforms.kubernetes.objects.manifests import dump_last_words
from elastic.platforms.kubernetes.supervisor import MAX_UNCOUNTED
from elastic.spec.status import JobPhase


def texts(lines, replica="master-0"):
    return [line.text for line in lines if line.replica == replica]


def test_stamps_are_ordered_whatever_zeros_they_have_lost():
    stamps = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.12Z", "2026-01-01T00:00:00.123Z"]
    mixed = [stamps[1], stamps[2], stamps[0]]
    assert sorted(mixed, key=_order) == stamps
    assert _whole_second(stamps[2]) == stamps[0]
    assert _whole_second("2026-01-01T08:00:00.5+08:00") == "2026-01-01T08:00:00+08:00"


class TestLogs:
    pytestmark = needs_cluster

    def test_logs_are_told_replica_by_replica_the_master_first(self, jobs, job_name):
        jobs.submit(job_name)
        jobs.until(JobPhase.RUNNING, job_name)
        for index in (1, 0):
            jobs.start_worker(index, job_name)

        def read():
            lines = list(jobs.platform.logs(job_name, [], False, None))
            return lines if len({line.replica for line in lines}) == 3 else None

        lines = eventually(read)
        order = [replica for replica, _ in itertools.groupby(line.replica for line in lines)]
        assert order == ["master-0", "worker-0", "worker-1"]
        assert texts(lines)[:2] == ["master does obey", "master line 1"]
        assert texts(lines, "worker-1")[0] == "worker-1-1 line 1"

        def of(*names):
            found = jobs.platform.logs(job_name, names, False, 2)
            return [line.replica for line in found]

        for replica in ("worker-0", "worker-1"):
            eventually(lambda r=replica: jobs.logged(job_name, r) >= 2)
        assert of("worker-1") == ["worker-1"] * 2
        assert of("worker") == ["worker-0"] * 2 + ["worker-1"] * 2

    def test_following_gives_every_line_once_until_the_job_ends(self, jobs, job_name):
        jobs.submit(job_name)
        lines = []
        following = threading.Thread(
            target=lambda: lines.extend(jobs.platform.logs(job_name, [], True, None))
        )
        following.start()
        jobs.until(JobPhase.RUNNING, job_name)
        # A worker that begins meanwhile is followed too.
        jobs.start_worker(0, job_name)
        eventually(lambda: jobs.logged(job_name, "master-0") >= 8)
        eventually(lambda: jobs.logged(job_name, "worker-0") >= 3)
        jobs.platform.kill(job_name, 90.0)
        following.join(30.0)
        assert not following.is_alive()
        numbers = [int(text.split()[-1]) for text in texts(lines)[1:]]
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) >= 7
        numbers = [int(text.split()[-1]) for text in texts(lines, "worker-0")]
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) >= 3

    def test_a_connection_that_breaks_costs_no_line_and_repeats_none(self, jobs, job_name):
        jobs.submit(job_name)
        proxy = ApiProxy(jobs.cluster.server)
        try:
            platform = KubernetesPlatform(
                cluster_through(proxy, KUBECONFIG, patience_s=30.0), jobs.namespace
            )
            lines = []
            following = threading.Thread(
                target=lambda: lines.extend(platform.logs(job_name, [], True, None))
            )
            following.start()
            for number in (4, 8, 12):
                eventually(lambda n=number: len(lines) > n)
                proxy.cut()
            jobs.platform.kill(job_name, 90.0)
            following.join(60.0)
            assert not following.is_alive()
        finally:
            proxy.close()
        numbers = [int(text.split()[-1]) for text in texts(lines)[1:]]
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) >= 12

    def test_the_life_before_can_be_read(self, jobs, job_name):
        jobs.submit(job_name, "crash")

        def has_restarted():
            master = jobs.objects(job_name).find_master()
            return master["status"]["containerStatuses"][0]["restartCount"] >= 1

        with pytest.raises(PlatformError, match="no container was restarted"):
            list(jobs.platform.logs(job_name, [], False, None, previous=True))
        eventually(lambda: jobs.has_started(job_name) and has_restarted())

        def of_the_life_before():
            # It crashes again and again, and the node may be about to remove what is asked for.
            with suppress(ExcuseError):
                return texts(jobs.platform.logs(job_name, [], False, None, previous=True))

        # A container has several lives of its master, one after the other.
        lines = eventually(of_the_life_before)
        assert lines[:2] == ["master does crash", "these are its last words"]
        assert lines[2].endswith("ended with exit code 1 and is started again")
        assert lines[-2:] == lines[:2]
        assert lines.count("master does crash") == MAX_UNCOUNTED

    def test_of_a_replaced_worker_there_are_its_last_words(self, jobs, job_name):
        jobs.submit(job_name, "finish")
        jobs.until(JobPhase.SUCCEEDED, job_name)
        words = {"worker-1": "Traceback:\n  line 3\nValueError: bad", "worker-0": "killed"}
        change = {"data": {names.LAST_WORDS_KEY: dump_last_words(words)}}
        path = f"{CONFIGMAPS.path(jobs.namespace)}/elastic-{job_name}-status"
        jobs.cluster.patch(path, change)
        # They outlive the pods.
        jobs.platform.kill(job_name, 90.0)

        def read(*replicas, tail=None):
            lines = jobs.platform.logs(job_name, replicas, False, tail, previous=True)
            return [(line.replica, line.text) for line in lines]

        assert read(tail=1) == [("worker-0", "killed"), ("worker-1", "ValueError: bad")]
        assert [text for _, text in read("worker-1")] == words["worker-1"].splitlines()
        with pytest.raises(PlatformError, match="nothing is left of an earlier life"):
            read("worker-2")

    def test_a_replica_that_has_written_nothing_is_said(self, jobs, job_name):
        jobs.submit(job_name, image="127.0.0.1:5000/no/such:1", image_pull_policy="Always")
        jobs.until(JobPhase.PENDING, job_name, "ErrImagePull")
        with pytest.raises(PlatformError, match="master-0 has written nothing yet: "):
            list(jobs.platform.logs(job_name, [], False, None))

    def test_a_job_without_pods_has_no_logs(self, jobs, job_name):
        jobs.submit(job_name)
        jobs.platform.kill(job_name, 0.0)
        with pytest.raises(PlatformError, match="no pods any more"):
            list(jobs.platform.logs(job_name, [], False, None))
