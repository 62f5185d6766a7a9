"""What jobs of a cluster did becomes a workload: when they came, how long they took."""

import pytest

from elastic.controller.snapshots.reading import history_of
from elastic.errors import DescriptionError
from elastic.platforms.base import JobControl
from elastic.platforms.kubernetes.objects.manifests import Submission, record, status
from elastic.platforms.kubernetes.objects.podspec import Job
from elastic.simulation.workload import Amdahl
from elastic.spec.job import JobSpec
from elastic.spec.status import JobPhase, JobStatus, Progress, ScalingStatus, SizeSpeed


def moment(second):
    return f"2026-01-01T00:{second // 60:02}:{second % 60:02}Z"


def succeeded(came, began, ended):
    return {
        "startTime": moment(began),
        "completionTime": moment(ended),
        "conditions": [
            {
                "type": "Succeeded",
                "status": "True",
                "reason": "done",
                "message": "",
                "lastUpdateTime": moment(ended),
                "lastTransitionTime": moment(ended),
            }
        ],
    }


def elastic_job(name, came, status):
    containers = [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]
    worker = {"replicas": 2, "template": {"spec": {"containers": containers}}}
    return {
        "kind": "ElasticJob",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"{name * 8}-uid",
            "creationTimestamp": moment(came),
        },
        "spec": {"minReplicas": 1, "maxReplicas": 4, "replicaSpecs": {"Worker": worker}},
        "status": status,
    }


def test_jobs_that_have_succeeded_are_replayed():
    jobs = [
        elastic_job("b", 90, succeeded(90, 100, 220)),
        elastic_job("a", 30, succeeded(30, 40, 100)),
        elastic_job("c", 50, {}),
    ]
    first, second = history_of({"elasticjob": jobs}, (), 0.1).submissions
    assert (first.job.name, second.job.name) == ("a-aaaaaaaa", "b-bbbbbbbb")
    assert (first.job.submitted_s, second.job.submitted_s) == (0, 60)
    assert (first.work.seconds, second.work.seconds) == (60, 120)
    assert first.work.speed == Amdahl(0.1)
    workers = first.job.workers
    assert (workers.min, workers.max, first.asked, workers.replicas) == (1, 4, 2, 0)
    assert workers.requests["cpu"] == 2000


def test_a_job_of_ours_is_replayed_by_what_it_told():
    values = {
        "job_name": "night", "model_zoo": "/model_zoo", "model_def": "m.M", "minibatch_size": 8,
        "training_data_dir": "/data", "num_workers": "1:4", "platform": "kubernetes",
        "autoscale": True,
    }  # fmt: skip
    job = Job(JobSpec(**values), "team", "uid-1", "image:1")
    speeds = ((1, 10.0), (2, 18.0))
    told = JobStatus(
        job_name="night",
        phase=JobPhase.SUCCEEDED,
        started_s=1030.0,
        ended_s=1100.0,
        progress=Progress(records_done=900, records_total=900),
        scaling=ScalingStatus(
            speeds=tuple(SizeSpeed(workers=n, nodes=1, samples_per_s=each) for n, each in speeds),
            rescale_s=2.5,
        ),
    )
    resized = JobControl(3, autoscaled_for="+2: idle")
    maps = [record(job, Submission("uid-1", 1000.0, "image:1"), resized), status(job, told)]
    maps[0]["metadata"]["uid"] = "record-uid"
    [one] = history_of({}, (), 0.1, maps).submissions
    assert (one.job.name, one.asked, one.rescale_s) == ("night-record-u", 1, 2.5)
    assert (one.job.workers.min, one.job.workers.max) == (1, 4)
    assert (one.work.seconds, one.work.samples_per_s) == (90.0, 10.0)
    assert one.work.speed.at(2, 1) == 18.0
    untold = told.model_copy(update={"scaling": ScalingStatus()})
    [one] = history_of({}, (), 0.1, [maps[0], status(job, untold)]).submissions
    assert (one.work.seconds, one.work.speed) == (70.0, Amdahl(0.1))


def test_nothing_to_replay_is_said():
    with pytest.raises(DescriptionError, match="there is nothing to replay"):
        history_of({"elasticjob": [elastic_job("c", 50, {})]}, (), 0)
