"""Jobs of ours are planned where they say so, by their submission and by what they tell."""

from dataclasses import replace

import pytest

from elastic.controller.snapshots.reading import Objects, snapshot_of
from elastic.platforms.base import JobControl
from elastic.platforms.kubernetes.objects.manifests import Submission, example_pod, record, status
from elastic.platforms.kubernetes.objects.names import ResourceOwner
from elastic.platforms.kubernetes.objects.podspec import Job
from elastic.policy.cluster import ElasticBatch, Gradients, Shown, Speed
from elastic.spec.job import JobSpec
from elastic.spec.status import (
    BatchStatus,
    JobPhase,
    JobStatus,
    Progress,
    ScalingStatus,
    SizeSpeed,
)

NOW_S = 1_767_225_600.0
SETTINGS = {
    "job_name": "night",
    "model_zoo": "/model_zoo",
    "model_def": "m.M",
    "training_data_dir": "/data",
    "minibatch_size": 8,
    "num_workers": "2:6",
    "autoscale": True,
    "platform": "kubernetes",
    "worker_resource_request": "cpu=3,memory=1Gi",
}
OWNER = ResourceOwner("elastic.dev/v1", "ElasticTrainJob", "night", "uid-2")


def job_of(**settings):
    return Job(JobSpec(**SETTINGS | settings), "team", "uid-1", "image:1")


def seen(*, control=None, owner=None, told=None, pods=(), **settings):
    job = job_of(**settings)
    maps = [record(job, Submission("uid-1", NOW_S - 60, "image:1", owner), control)]
    if told is not None:
        maps.append(status(job, JobStatus(job_name="night", **told)))
    return snapshot_of(Objects(NOW_S, [], pods, {}, config_maps=maps))


def worker(node):
    pod = example_pod(job_of())
    pod["spec"]["nodeName"] = node
    return pod


def test_it_begins_with_its_fewest_and_may_have_its_most():
    [job] = seen(pods=[worker("n0")]).jobs
    assert job.key == "train/team/night"
    group = job.workers
    assert (group.min, group.max, group.replicas, group.asked) == (2, 6, 2, 2)
    assert (group.requests["cpu"], group.placement) == (3000, {"n0": 1})
    assert [(each.role, each.min, each.max) for each in job.others] == [("master", 1, 1)]
    assert job.submitted_s == NOW_S - 60


def test_one_that_was_made_from_a_resource_has_its_kind():
    [job] = seen(owner=OWNER).jobs
    assert job.key == "ElasticTrainJob/team/night"


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"autoscale": False}, id="not-to-be-scaled"),
        pytest.param({"control": JobControl(cancelled=True)}, id="cancelled"),
        pytest.param({"told": {"phase": JobPhase.SUCCEEDED}}, id="over"),
        pytest.param({"told": {"phase": JobPhase.SUSPENDED}}, id="suspended"),
    ],
)
def test_others_are_no_jobs_and_their_pods_are_nobodys(more):
    snapshot = seen(pods=[worker("n0")], **more)
    assert snapshot.jobs == ()
    assert [each.node for each in snapshot.pods] == ["n0"]


@pytest.mark.parametrize(
    ("control", "limits"),
    [
        (JobControl(4, autoscaled_for="+2: idle"), (2, 6, 4)),
        (JobControl().by_user(4), (4, 4, 4)),
        (JobControl(4, held_until_s=NOW_S + 1), (4, 4, 4)),
        (JobControl(4, held_until_s=NOW_S), (2, 6, 4)),
    ],
)
def test_whose_size_it_is(control, limits):
    [job] = seen(control=control).jobs
    assert (job.workers.min, job.workers.max, job.workers.replicas) == limits


def test_one_that_may_have_none_is_a_job_that_may_be_stopped():
    [job] = seen(num_workers="0:6").jobs
    assert (job.workers.min, job.workers.replicas) == (1, 1)
    assert job.is_stoppable
    assert not job.is_movable
    assert not seen().jobs[0].is_stoppable


def test_one_that_is_stopped_has_waited_since_then():
    paused = JobControl(0, autoscaled_for="-2: others", autoscaled_s=NOW_S - 5)
    [job] = seen(num_workers="0:6", control=paused).jobs
    assert (job.workers.min, job.workers.replicas, job.is_waiting) == (1, 0, True)
    assert (job.last_scaled_s, job.waiting_since_s) == (NOW_S - 5, NOW_S - 5)
    grown = replace(paused, num_workers=2)
    [job] = seen(num_workers="0:6", control=grown).jobs
    assert job.waiting_since_s == job.submitted_s == NOW_S - 60


def test_what_it_tells_of_itself():
    speeds = (SizeSpeed(workers=2, nodes=1, samples_per_s=70.0),)
    told = {
        "phase": JobPhase.RUNNING,
        "progress": Progress(records_done=100, records_total=400),
        "scaling": ScalingStatus(speeds=speeds, rescale_s=1.5),
    }
    telling = seen(told=told).jobs[0].telling
    # Of six workers' gradients of eight records each.
    assert telling.speeds == (Speed(2, 1, 70.0, 48),)
    assert (telling.remaining_samples, telling.trained_samples, telling.rescale_s) == (
        300,
        100,
        1.5,
    )
    assert (telling.global_batch_size, telling.max_local_batch) == (48, 8)


def test_it_tells_the_batch_that_its_master_chooses_and_by_what():
    batch = BatchStatus(
        records=64, minimum=32, maximum=128, grad_sqr=2.0, grad_var=320.0, updates_measured=50
    )
    speeds = (
        SizeSpeed(workers=2, nodes=1, samples_per_s=70.0, batch=32),
        SizeSpeed(workers=2, nodes=1, samples_per_s=90.0, batch=64),
    )
    told = {
        "phase": JobPhase.RUNNING,
        "progress": Progress(records_done=100, records_total=400),
        "scaling": ScalingStatus(speeds=speeds, batch=batch),
    }
    telling = seen(told=told, elastic_batch="32:128").jobs[0].telling
    assert telling.speeds == (Speed(2, 1, 70.0, 32), Speed(2, 1, 90.0, 64))
    assert (telling.global_batch_size, telling.max_local_batch) == (64, 8)
    # A master of before did not tell with which batch that was measured.
    assert telling.elastic_batch == ElasticBatch(32, 128, 2.0, 10.0, 8, 64)
    grows = {"measured_at": 32, "noise_growth": 0.0, "changes_measured": 1}
    told["scaling"] = ScalingStatus(batch=batch.model_copy(update=grows))
    telling = seen(told=told, elastic_batch="32:128").jobs[0].telling
    assert telling.elastic_batch == ElasticBatch(32, 128, 2.0, 10.0, 8, 32, 0.0)
    told["scaling"] = ScalingStatus(batch=batch.model_copy(update={"updates_measured": 1}))
    telling = seen(told=told, elastic_batch="32:128").jobs[0].telling
    assert telling.elastic_batch == ElasticBatch(32, 128, step=8)


def program(**settings):
    return seen(**settings).jobs[0].program


@pytest.mark.parametrize(
    ("settings", "is_alike"),
    [
        ({"job_name": "other", "num_workers": "1:9", "seed": 7, "num_epochs": 9}, True),
        ({"training_data_dir": "/other"}, True),
        ({"model_params": {"width": "9"}}, False),
        ({"minibatch_size": 16}, False),
        ({"worker_resource_request": "cpu=4,memory=1Gi"}, False),
    ],
)
def test_jobs_are_alike_whose_workers_take_the_same_steps(settings, is_alike):
    assert (program(**settings) == program()) is is_alike


def test_what_jobs_told_that_have_succeeded_is_known_of_their_program():
    speeds = (SizeSpeed(workers=2, nodes=1, samples_per_s=70.0),)
    told = {
        "progress": Progress(records_done=400, records_total=400),
        "scaling": ScalingStatus(speeds=speeds),
    }
    over = seen(told={"phase": JobPhase.SUCCEEDED, **told})
    assert over.jobs == ()
    assert over.shown == {program(): Shown((Speed(2, 1, 70.0, 48),))}
    assert seen(told={"phase": JobPhase.FAILED, **told}).shown == {}


def test_what_gradients_were_when_a_job_succeeded_is_known_of_its_program():
    batch = BatchStatus(
        records=64, minimum=32, maximum=128, grad_sqr=2.0, grad_var=320.0, updates_measured=50
    )
    told = {
        "phase": JobPhase.SUCCEEDED,
        "progress": Progress(records_done=400, records_total=400),
        "scaling": ScalingStatus(batch=batch),
    }
    shown = seen(told=told, elastic_batch="32:128").shown
    assert shown == {program(elastic_batch="32:64"): Shown((), Gradients(2.0, 320.0))}


def test_what_gradients_were_at_the_begin_is_told_once_it_is_known():
    batch = BatchStatus(
        records=64, minimum=32, maximum=128, grad_sqr=2.0, grad_var=320.0, updates_measured=90,
        first_grad_sqr=4.0, first_grad_var=80.0,
    )  # fmt: skip

    def first(batch, **settings):
        told = {"phase": JobPhase.RUNNING, "scaling": ScalingStatus(batch=batch)}
        return seen(told=told, **settings).jobs[0].telling.first_gradients

    assert first(batch, elastic_batch="32:128") == Gradients(4.0, 80.0)
    assert first(batch) is None
    few = batch.model_copy(update={"updates_measured": 1})
    assert first(few, elastic_batch="32:128") is None
    over = {
        "phase": JobPhase.SUCCEEDED,
        "progress": Progress(records_done=400, records_total=400),
        "scaling": ScalingStatus(batch=batch),
    }
    [shown] = seen(told=over, elastic_batch="32:128").shown.values()
    assert shown.gradients == Gradients(4.0, 80.0)


def test_before_it_tells_anything_nothing_is_known():
    telling = seen().jobs[0].telling
    assert (telling.speeds, telling.remaining_samples) == ((), None)
    # Of what it goes by what it was submitted with says.
    assert (telling.global_batch_size, telling.max_local_batch) == (48, 8)
    batch = seen(elastic_batch="32:128").jobs[0].telling.elastic_batch
    assert batch == ElasticBatch(32, 128, step=8)
