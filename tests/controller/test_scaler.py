"""What a decision means for an object of each kind, as values: nothing is written here."""

import pytest
from support.tf_job_world import tf_job

from elastic.controller.assembly import assembled
from elastic.controller.autoscaling import (
    SCALED,
    ClusterScaler,
    Share,
    elastic_job_change,
    elastic_job_hold,
    tf_job_change,
    train_job_change,
    train_job_hold,
    training_job_change,
)
from elastic.controller.kinds.placing import Seat, demand_of, rooms_of, take
from elastic.controller.kinds.tf_replicas import seated_of
from elastic.controller.kinds.training_look import given_sizes
from elastic.controller.reconciling import Overview
from elastic.controller.resources import elastic_job, training_job
from elastic.controller.resources.common import time_text
from elastic.controller.resources.tf_job import read_tf_job
from elastic.controller.settings import Autoscaling
from elastic.controller.snapshots.objects import AUTOSCALED, HELD, given, holding, is_held, is_news
from elastic.errors import JobSpecError
from elastic.platforms.base import JobControl
from elastic.platforms.kubernetes.api.resources import CONFIGMAPS
from elastic.platforms.kubernetes.objects.manifests import Submission, control_of, record
from elastic.platforms.kubernetes.objects.names import CONTROL_KEY
from elastic.platforms.kubernetes.objects.podspec import Job
from elastic.policy.cluster import Decision
from elastic.policy.scaling.fulfillment import Fulfillment
from elastic.spec.job import JobSpec

NOW_S = 1_767_225_600.0


def decision(replicas, **more):
    return Decision("KIND/team/job", replicas, "+1: 6 CPU idle on n3", **more)


# -- TrainingJob


def a_training_job(trainers=3, pservers=1, phase="running", **spec):
    scale = {"trainer": {"wanted": trainers}, "pserver": {"wanted": pservers}}
    return {
        "kind": "TrainingJob",
        "metadata": {"name": "job", "namespace": "team"},
        "spec": {
            "fault_tolerant": True,
            "trainer": {"min-instance": 2, "max-instance": 6},
            "pserver": {"min-instance": 1, "max-instance": 3},
        }
        | spec,
        "status": {"phase": phase, "scale_status": scale},
    }


def test_sizes_of_a_training_job_are_in_its_status_with_reason_and_time():
    change = training_job_change(a_training_job(), decision(4, ps_replicas=2), NOW_S)
    assert change.part == "status"
    told = {"reason": "+1: 6 CPU idle on n3", "time": time_text(NOW_S)}
    assert change.change == {
        "status": {
            "scale_status": {"trainer": {"wanted": 4} | told, "pserver": {"wanted": 2} | told}
        }
    }


@pytest.mark.parametrize(
    ("job", "decided"),
    [
        pytest.param(a_training_job(), decision(3), id="as-it-is"),
        pytest.param(a_training_job(2), decision(0), id="one-that-is-to-wait-keeps-its-smallest"),
        pytest.param(a_training_job(phase=""), decision(4), id="not-looked-at-yet"),
        pytest.param(a_training_job(trainer={}), decision(4), id="unreadable"),
    ],
)
def test_nothing_is_written_into_a_training_job(job, decided):
    assert training_job_change(job, decided, NOW_S) is None


@pytest.mark.parametrize(
    ("written", "size", "reason"),
    [
        (0, 2, "min-instance is 2"),
        (1, 2, "min-instance is 2"),
        (2, 2, "given"),
        (4, 4, "given"),
        (9, 6, "max-instance is 6"),
    ],
)
def test_a_given_size_stays_within_the_range_as_it_is_now(written, size, reason):
    job = a_training_job()
    spec = training_job.TrainingJobSpec.model_validate(job["spec"])
    scale = {"trainer": {"wanted": written, "reason": "given"}}
    status = training_job.TrainingJobStatus.model_validate({"scale_status": scale})
    sizes = given_sizes(spec, status)
    assert (sizes.trainers.wanted, sizes.trainers.reason) == (size, reason)
    rigid = spec.model_copy(update={"fault_tolerant": False})
    assert given_sizes(rigid, status).trainers.wanted == 2


# -- ElasticJob, and whose a size is


def an_elastic_job(replicas, annotations=None, **limits):
    return {
        "kind": "ElasticJob",
        "metadata": {"name": "job", "namespace": "team", "annotations": annotations or {}},
        "spec": {
            "replicaSpecs": {
                "Worker": {
                    "replicas": replicas,
                    "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
                }
            },
            **limits,
        },
    }


def test_replicas_of_an_elastic_job_stay_within_its_range():
    job = an_elastic_job(2, minReplicas=2, maxReplicas=4)
    change = elastic_job_change(job, decision(9))
    assert change.change["spec"] == {"replicaSpecs": {"Worker": {"replicas": 4}}}
    assert change.change["metadata"]["annotations"] == {AUTOSCALED: "4", HELD: None}
    assert change.note.message == "from 2 to 4 workers, +1: 6 CPU idle on n3"
    assert elastic_job_change(job, decision(2)) is None


def test_a_limit_that_moves_with_the_replicas_is_written_down():
    change = elastic_job_change(an_elastic_job(2, maxReplicas=4), decision(3))
    assert change.change["spec"]["minReplicas"] == 2
    assert "maxReplicas" not in change.change["spec"]


def test_whose_size_it_is():
    new = an_elastic_job(2)
    assert not is_held(new, 2, NOW_S)
    scaled = an_elastic_job(3, given(3) | {HELD: ""})
    assert not is_held(scaled, 3, NOW_S)
    edited = an_elastic_job(2, {AUTOSCALED: "3"})
    assert is_held(edited, 2, NOW_S)
    assert is_news(edited, 2)
    noted = an_elastic_job(2, {AUTOSCALED: "3"} | holding(2, NOW_S + 60))
    assert is_held(noted, 2, NOW_S)
    assert not is_news(noted, 2)
    assert not is_held(noted, 2, NOW_S + 60)
    again = an_elastic_job(1, {AUTOSCALED: "3"} | holding(2, NOW_S + 60))
    assert is_news(again, 1)
    damaged = an_elastic_job(2, {AUTOSCALED: "3", HELD: "2 soon"})
    assert is_news(damaged, 2)


def test_a_users_size_is_noted_once():
    edited = an_elastic_job(2, {AUTOSCALED: "3"}, minReplicas=1, maxReplicas=4)
    change = elastic_job_hold(edited, NOW_S, 600)
    assert change.note.reason == "Held"
    noted = change.change["metadata"]["annotations"]
    edited["metadata"]["annotations"] |= noted
    assert elastic_job_hold(edited, NOW_S, 600) is None


# -- our own


def a_record(control=None, **settings):
    values = {
        "job_name": "job",
        "model_zoo": "/model_zoo",
        "model_def": "m.M",
        "training_data_dir": "/data",
        "minibatch_size": 8,
        "num_workers": "1:4",
        "autoscale": True,
        "platform": "kubernetes",
    }
    spec = JobSpec(**values | settings)
    job = Job(spec, "team", "uid-1", "image:1")
    return record(job, Submission("uid-1", NOW_S, "image:1"), control)


def test_a_master_is_asked_as_by_elastic_scale_and_told_why():
    change = train_job_change(a_record(), None, decision(3), NOW_S)
    assert change.change["data"].keys() == {CONTROL_KEY}
    asked = control_of(a_record() | change.change)
    assert asked == JobControl(3, autoscaled_for="+1: 6 CPU idle on n3", autoscaled_s=NOW_S)
    assert change.note.message == "from 1 to 3 workers, +1: 6 CPU idle on n3"


@pytest.mark.parametrize(
    ("workers", "decided", "size"),
    [("1:4", 9, 4), ("1:4", 0, None), ("1:4", 1, None), ("0:4", 0, 0)],
)
def test_a_job_of_ours_stays_within_its_range(workers, decided, size):
    record = a_record(num_workers=workers)
    change = train_job_change(record, None, decision(decided), NOW_S)
    found = None if change is None else control_of(record | change.change).num_workers
    assert found == size


def test_a_wish_of_a_user_is_noted_once_and_only_of_jobs_that_are_scaled():
    asked = JobControl().by_user(2)
    change = train_job_hold(a_record(asked), None, NOW_S, 600)
    assert (
        change.note.message == f"2 workers, as a user has set them, until {time_text(NOW_S + 600)}"
    )
    noted = control_of(a_record() | change.change)
    assert noted == JobControl(2, held_until_s=NOW_S + 600)
    assert train_job_hold(a_record(noted), None, NOW_S, 600) is None
    assert train_job_hold(a_record(), None, NOW_S, 600) is None
    fixed = a_record(asked, autoscale=False)
    assert train_job_hold(fixed, None, NOW_S, 600) is None


def test_a_job_that_is_not_scaled_is_left_alone():
    maps = {CONFIGMAPS: [a_record(autoscale=False)]}
    scaler = ClusterScaler([Share(SCALED, Fulfillment())])
    assert list(scaler.plan(Overview(NOW_S, [], [], maps))) == []


# -- TFJob


def tf_pod(name, node, job="job1", **metadata):
    labels = {"group-name": "kubeflow.org", "job-name": job}
    return {
        "metadata": {"name": name, "namespace": "default", "labels": labels, **metadata},
        "spec": {"nodeName": node, "containers": []},
        "status": {"phase": "Running"},
    }


def seats_of(change):
    return {name: seat["node"] for name, seat in change.change["status"]["seats"].items() if seat}


def test_a_tf_job_that_begins_gets_a_seat_for_each_replica():
    job = tf_job(workers=2)
    decided = decision(2, placement={"n0": 2}, ps_placement={"n1": 1}, ps_replicas=1)
    change = tf_job_change(job, decided, [], NOW_S)
    assert seats_of(change) == {"job1-ps-0": "n1", "job1-worker-0": "n0", "job1-worker-1": "n0"}
    status = change.change["status"]
    assert (status["size"], status["sizeAsked"]) == (2, 2)
    assert change.note.message.startswith("from 0 to 2 workers")


def sized(job, size, asked=None, seats=()):
    asked = job["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] if asked is None else asked
    job["status"] = {"size": size, "sizeAsked": asked, "seats": dict(seats)}
    return job


def test_replicas_stay_where_they_are_and_the_highest_leaves_a_node_that_gives():
    job = sized(tf_job(workers=4, min_instances=1), 4)
    pods = [tf_pod("job1-ps-0", "n0")]
    pods += [tf_pod(f"job1-worker-{i}", on) for i, on in enumerate(("n0", "n1", "n1", "n0"))]
    pods += [tf_pod("job1-worker-9", "n1", job="another")]
    change = tf_job_change(job, decision(3, placement={"n0": 2, "n1": 1}), pods, NOW_S)
    assert seats_of(change) == {
        "job1-ps-0": "n0",
        "job1-worker-0": "n0",
        "job1-worker-1": "n1",
        "job1-worker-3": "n0",
    }


def test_new_replicas_take_the_lowest_free_numbers():
    job = sized(tf_job(workers=2, max_instances=4), 2)
    leaving = tf_pod("job1-worker-1", "n0", deletionTimestamp="2026-01-01T00:00:00Z")
    pods = [tf_pod("job1-ps-0", "n0"), tf_pod("job1-worker-0", "n0"), leaving]
    change = tf_job_change(job, decision(3, placement={"n0": 2, "n1": 1}), pods, NOW_S)
    assert seats_of(change) == {
        "job1-ps-0": "n0",
        "job1-worker-0": "n0",
        "job1-worker-1": "n0",
        "job1-worker-2": "n1",
    }


def test_workers_with_seats_are_kept_whatever_their_numbers():
    job = tf_job(workers=2, max_instances=5)
    spec = read_tf_job(job).spec

    def workers(size, *seats):
        wanted = seated_of("job1", spec, size, {f"job1-worker-{index}" for index in seats})
        return {index for role, index in wanted.values() if role == "Worker"}

    assert workers(2, 0, 3) == {0, 3}
    assert workers(3, 0, 3) == {0, 1, 3}
    assert workers(1, 0, 3) == {0}


def test_seats_that_are_given_up_are_removed_from_the_status():
    job = sized(tf_job(workers=2, min_instances=1), 2, seats={"job1-worker-1": {"node": "n1"}})
    pods = [tf_pod("job1-ps-0", "n0"), tf_pod("job1-worker-0", "n0")]
    pods += [tf_pod("job1-worker-1", "n1")]
    change = tf_job_change(job, decision(1, placement={"n0": 1}), pods, NOW_S)
    assert change.change["status"]["seats"]["job1-worker-1"] is None


def test_what_a_user_has_just_written_is_waited_for():
    job = sized(tf_job(workers=3), 2, asked=2)
    assert tf_job_change(job, decision(3, placement={"n0": 3}), [], NOW_S) is None


def test_parts_of_cards_are_seated_by_card():
    job = tf_job(ps=0, workers=3)
    cards = {"worker": {"n0": {"card-a": 2, "card-b": 1}}}
    change = tf_job_change(job, decision(3, placement={"n0": 3}, cards=cards), [], NOW_S)
    seats = change.change["status"]["seats"]
    assert sorted(seat["card"] for seat in seats.values()) == ["card-a", "card-a", "card-b"]


# -- seats are taken when their room is there


def a_node(name, cpu="4", gpus="0"):
    return {
        "metadata": {"name": name},
        "status": {
            "allocatable": {"cpu": cpu, "pods": "110", "nvidia.com/gpu": gpus},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def a_demand(name, cpu="2", share=None):
    annotations = {}
    if share is not None:
        annotations = {
            "kubeshare/gpu_request": share, "kubeshare/gpu_limit": "1.0", "kubeshare/gpu_mem": "1",
        }  # fmt: skip
    resources = {"requests": {"cpu": cpu}}
    spec = {"containers": [{"name": "c", "resources": resources}]}
    return demand_of(name, {"metadata": {"annotations": annotations}, "spec": spec})


def test_a_seat_waits_for_its_room_and_for_nothing_else():
    rooms = rooms_of([a_node("n0"), a_node("n1")], [])
    demands = [a_demand(name) for name in ("a", "b", "c", "d")]
    seats = {name: Seat(name, "n0") for name in ("a", "b", "c")}
    found = take(demands, seats, rooms)
    assert [seat.pod for seat in found.seats] == ["a", "b"]
    assert found.missing == "c waits for its room on n0"
    assert take(demands[3:], seats, rooms).missing == "d waits for the scheduler"


def test_a_part_of_a_card_is_taken_of_that_card_alone():
    rooms = rooms_of([a_node("n0", cpu="64", gpus="2")], [])
    demands = [
        a_demand(name, share=share) for name, share in (("a", "0.6"), ("b", "0.6"), ("c", "0.5"))
    ]
    seats = {"a": Seat("a", "n0", "x"), "b": Seat("b", "n0", "y"), "c": Seat("c", "n0", "x")}
    found = take(demands, seats, rooms)
    assert [(seat.pod, seat.card) for seat in found.seats] == [("a", "x"), ("b", "y")]
    small = [*demands[:2], a_demand("c", share="0.4")]
    assert len(take(small, seats, rooms).seats) == 3
    # Both cards are given out, so there is no third.
    seats["c"] = Seat("c", "n0", "z")
    assert len(take(small, seats, rooms).seats) == 2


def test_items_of_lists_are_told_of_by_what_they_are():
    """An API server leaves out of each item what all of a list have in common."""
    job = an_elastic_job(1, minReplicas=1, maxReplicas=3)
    del job["kind"]
    job["metadata"]["creationTimestamp"] = time_text(NOW_S)
    labels = {"job-name": "job", "group-name": "elastic.pytorch.org", "replica-type": "worker"}
    pod = {"metadata": {"name": "job-worker-0", "namespace": "team", "labels": labels}}
    pod |= {"spec": {"nodeName": "n0", "containers": []}, "status": {"phase": "Running"}}
    overview = Overview(NOW_S, [a_node("n0")], [pod], {elastic_job.RESOURCE: [job]})
    [change] = ClusterScaler([Share(SCALED, Fulfillment())]).plan(overview)
    assert (change.target["kind"], change.target["apiVersion"]) == (
        "ElasticJob",
        "elastic.pytorch.org/v1alpha1",
    )


@pytest.mark.parametrize(
    ("autoscaling", "kinds", "flag"),
    [
        (Autoscaling("fulfillment"), ["tfjob"], "--autoscale fulfillment"),
        (Autoscaling(tf_scheduler="dragon"), ["elasticjob"], "--tf_scheduler dragon"),
    ],
)
def test_who_has_nothing_to_decide_on_is_refused(autoscaling, kinds, flag):
    with pytest.raises(JobSpecError, match=flag):
        assembled(autoscaling).make_scaler(kinds)


def test_each_decides_alone_or_beside_the_other():
    every = assembled().names()
    assert assembled().make_scaler(every) is None
    for autoscaling in (Autoscaling("goodput"), Autoscaling("fulfillment", "dragon", 0.9, 5, 6)):
        assert assembled(autoscaling).make_scaler(every) is not None


def test_flags_say_what_differs_from_the_default():
    assert Autoscaling().arguments() == []
    whole = Autoscaling("goodput", "dragon", 0.9, 20, 90, 60)
    assert whole.arguments() == [
        "--autoscale=goodput", "--tf_scheduler=dragon", "--max_load=0.9",
        "--starve_after=20s", "--grow_after=90s", "--hold=60s",
    ]  # fmt: skip
