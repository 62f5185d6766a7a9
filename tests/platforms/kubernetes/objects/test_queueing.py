"""How the pods of a job wait in each queue: their groups, names, labels and owners."""

import pytest
from pydantic import ValidationError

from elastic.platforms.base import ReplicaId
from elastic.platforms.kubernetes.objects import manifests
from elastic.platforms.kubernetes.objects.manifests import (
    Submission,
    dump_submission,
    read_submission,
)
from elastic.platforms.kubernetes.objects.names import GROUPS, Owner, QueueSystem
from elastic.platforms.kubernetes.objects.podspec import Hook, Job, job_group
from elastic.spec.job import JobSpec

LABEL = "kueue.x-k8s.io/queue-name"
OWNER = Owner("elastic-j-master", "uid-m")


def make_job(system, hook=None, name="j"):
    spec = JobSpec(
        job_name=name, model_zoo="z", model_def="m.C", training_data_dir="d", minibatch_size=1,
        num_workers="2:4", queue="" if system is None else "team-a",
    )  # fmt: skip
    return Job(spec, "ns", "0123456789abcdef", "img:1", hook, queue_system=system)


def worker(job, index, launch=1):
    return manifests.replica_pod(job, ReplicaId("worker", index, launch), OWNER)


@pytest.mark.parametrize("system", [None, *QueueSystem])
def test_pods_tell_their_queue_and_no_other_object_of_a_pod(system):
    job = make_job(system)
    pods = [manifests.master_pod(job), worker(job, 0), worker(job, 3)]
    expected = None if system is None else "team-a"
    assert [pod["metadata"]["labels"].get(LABEL) for pod in pods] == [expected] * 3
    others = [manifests.service(job), manifests.token_secret(job, "t")]
    assert LABEL not in str(others)


def test_in_kueue_the_minimum_is_a_group_of_this_submission_alone():
    job = make_job(QueueSystem.KUEUE)
    made = [worker(job, index)["metadata"] for index in range(4)]
    group = "kueue.x-k8s.io/pod-group-name"
    assert [each["labels"].get(group) for each in made] == [
        *["elastic-j-01234567"] * 2, None, None,
    ]  # fmt: skip
    counts = [each.get("annotations", {}) for each in made]
    assert [each.get("kueue.x-k8s.io/pod-group-total-count") for each in counts] == [
        "2", "2", None, None,
    ]  # fmt: skip
    names = [worker(job, index, 7)["metadata"]["name"] for index in (1, 2)]
    assert names == ["elastic-j-worker-1-7", "elastic-j-worker-2"]


@pytest.mark.parametrize("system", [None, *QueueSystem])
def test_a_queued_master_controls_no_worker_in_kueue_alone(system):
    [owner] = worker(make_job(system), 0)["metadata"]["ownerReferences"]
    assert owner["uid"] == "uid-m"
    assert owner["controller"] is (system is not QueueSystem.KUEUE)


@pytest.mark.parametrize("system", GROUPS)
def test_the_group_is_named_by_its_workers(system):
    job = make_job(system)
    resource, group = job_group(job)
    assert resource is GROUPS[system]
    assert group["metadata"]["labels"]["elastic-submission"] == job.submission_uid
    named = {
        QueueSystem.NATIVE: lambda pod: pod["spec"].get("schedulingGroup"),
        QueueSystem.VOLCANO: lambda pod: (
            pod["metadata"].get("annotations", {}).get("scheduling.k8s.io/group-name")
        ),
    }[system]
    name = group["metadata"]["name"]
    expected = {"podGroupName": name} if system is QueueSystem.NATIVE else name
    assert [named(worker(job, index)) for index in (0, 3)] == [expected] * 2
    assert named(manifests.master_pod(job)) != expected


@pytest.mark.parametrize("system", [None, QueueSystem.KUEUE, QueueSystem.KAI])
def test_of_the_others_there_is_no_group(system):
    assert job_group(make_job(system)) is None


def test_the_longest_names_are_still_labels():
    job = make_job(QueueSystem.KUEUE, name="j" * 40)
    assert max(map(len, worker(job, 1)["metadata"]["labels"].values())) <= 63


def test_a_cluster_spec_cannot_take_a_pod_out_of_its_queue():
    hook = Hook("cluster_spec.yaml", f"metadata: {{labels: {{{LABEL}: other}}}}")
    pod = worker(make_job(QueueSystem.KUEUE, hook), 0)
    assert pod["metadata"]["labels"][LABEL] == "team-a"


def test_the_record_tells_the_master_which_system_it_is():
    submission = Submission("u", 1.0, "img", queue_system=QueueSystem.VOLCANO)
    assert read_submission(dump_submission(submission), "here") == submission
    earlier = '{"uid": "u", "submitted_s": 1.0, "image": "img"}'
    assert read_submission(earlier, "here").queue_system is None


@pytest.mark.parametrize("queue", ["a b", "x" * 64, "-a"])
def test_a_name_that_no_queue_can_have_is_refused_at_once(queue):
    with pytest.raises(ValidationError, match="is no name of a queue"):
        JobSpec(model_zoo="z", model_def="m.C", queue=queue)
