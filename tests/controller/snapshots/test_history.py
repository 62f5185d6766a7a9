"""What jobs of a cluster did becomes a workload: when they came, how long they took."""

import pytest

from elastic.controller.snapshots.history import history_of
from elastic.errors import DescriptionError
from elastic.simulation.speeds import Amdahl


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


def test_nothing_to_replay_is_said():
    with pytest.raises(DescriptionError, match="there is nothing to replay"):
        history_of({"elasticjob": [elastic_job("c", 50, {})]}, (), 0)
