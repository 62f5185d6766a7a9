"""Whom the objects of a job belong to that was made from a resource."""

from dataclasses import replace

import pytest

from elastic.platforms.base import ReplicaId
from elastic.platforms.kubernetes.objects import manifests, names
from elastic.platforms.kubernetes.objects.manifests import Submission, submission_of
from elastic.platforms.kubernetes.objects.names import Owner, ResourceOwner
from elastic.platforms.kubernetes.objects.podspec import LOST_NODE_S, Job
from elastic.spec.job import JobSpec
from elastic.spec.status import JobStatus

SPEC = JobSpec(
    job_name="a1",
    model_zoo="/model_zoo",
    model_def="a.B",
    training_data_dir="/data",
    minibatch_size=1,
    num_workers=2,
    volume="claim_name=c,mount_path=/results",
    tensorboard_log_dir="/results/events",
)
RESOURCE = ResourceOwner("elastic.dev/v1", "ElasticTrainJob", "a1", "0a-1b")
BY_RESOURCE = {
    "apiVersion": "elastic.dev/v1",
    "kind": "ElasticTrainJob",
    "name": "a1",
    "uid": "0a-1b",
    "controller": True,
}
MASTER = Owner("elastic-a1-master", "uid-m")
BY_MASTER = {"apiVersion": "v1", "kind": "Pod", "name": "elastic-a1-master", "uid": "uid-m"}
PLAIN = Job(SPEC, "ns", "0a1b", "img:1")
OWNED = replace(PLAIN, owner=RESOURCE)
WORKER = ReplicaId("worker", 0, 1)
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"accessModes": ["ReadWriteOnce"]}}


def objects_of(job):
    """All that is there once for a job, by what it is."""
    submission = Submission(job.submission_uid, 1.0, job.image, job.owner)
    board = manifests.board_objects(job, MASTER)
    return {
        "record": manifests.record(job, submission),
        "status": manifests.status(job, JobStatus(job_name="a1")),
        "empty status": manifests.empty_status(job),
        "claim": manifests.state_claim(job, "elastic-a1-state", TEMPLATE),
        "token": manifests.token_secret(job, "t", MASTER),
        "service": manifests.service(job, MASTER),
        "master": manifests.master_pod(job),
        **{f"tensorboard {made['kind']}": made for made in board},
    }


@pytest.mark.parametrize("what", objects_of(OWNED))
def test_all_but_the_workers_belongs_to_the_resource_alone_and_names_it(what):
    metadata = objects_of(OWNED)[what]["metadata"]
    assert metadata["ownerReferences"] == [BY_RESOURCE]
    assert metadata["labels"][names.TRAIN_JOB_LABEL] == "a1"


@pytest.mark.parametrize("what", objects_of(PLAIN))
def test_a_job_without_a_resource_is_made_as_ever(what):
    metadata = objects_of(PLAIN)[what]["metadata"]
    is_the_masters = what == "token" or what == "service" or what.startswith("tensorboard")
    owned = [BY_MASTER | {"controller": True}] if is_the_masters else None
    assert metadata.get("ownerReferences") == owned
    assert names.TRAIN_JOB_LABEL not in metadata["labels"]


def test_a_worker_of_a_resource_outlives_its_master_and_goes_when_both_are_gone():
    metadata = manifests.replica_pod(OWNED, WORKER, MASTER)["metadata"]
    assert metadata["ownerReferences"] == [BY_RESOURCE, BY_MASTER]
    assert metadata["labels"][names.TRAIN_JOB_LABEL] == "a1"


def test_a_worker_without_one_goes_with_its_master():
    metadata = manifests.replica_pod(PLAIN, WORKER, MASTER)["metadata"]
    assert metadata["ownerReferences"] == [BY_MASTER | {"controller": True}]


def test_a_service_selects_the_same_pods_whoever_owns_it():
    selectors = [manifests.service(job)["spec"]["selector"] for job in (PLAIN, OWNED)]
    assert selectors[0] == selectors[1]
    assert selectors[1].items() <= manifests.master_pod(OWNED)["metadata"]["labels"].items()


def test_a_master_that_is_made_again_leaves_a_lost_node_as_soon_as_a_worker():
    def patience(pod):
        tolerations = pod["spec"]["tolerations"]
        return {t["key"]: t["tolerationSeconds"] for t in tolerations if "tolerationSeconds" in t}

    lost = dict.fromkeys(
        ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"), LOST_NODE_S
    )
    assert patience(manifests.master_pod(OWNED)) == lost
    assert patience(manifests.master_pod(PLAIN)) == {}


def test_a_claim_is_made_as_its_template_says():
    claim = manifests.state_claim(OWNED, "elastic-a1-state", TEMPLATE)
    assert claim["spec"] == TEMPLATE["spec"]
    assert claim["metadata"]["name"] == "elastic-a1-state"
    assert claim["metadata"]["labels"]["a"] == "b"
    assert claim["metadata"]["labels"][names.JOB_LABEL] == "a1"


def test_the_record_tells_to_which_resource_a_job_belongs():
    submission = Submission(RESOURCE.submission_uid, 1.0, "img:1", RESOURCE)
    assert submission.uid == "0a1b"
    assert submission_of(manifests.record(OWNED, submission)) == submission


def test_a_record_of_an_earlier_version_has_no_resource():
    data = {"submission.json": '{"uid": "u", "submitted_s": 1.0, "image": "i"}'}
    assert submission_of({"data": data}).owner is None
