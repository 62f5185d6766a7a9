"""What an engine makes of jobs of a toy kind, against an API server over HTTP."""

import random
import threading
import time

import pytest
from support.toy_kind import PODS, TEAM, TOYS, ToyKind, is_quiet, soon

from elastic.controller.machinery.informers import Informers
from elastic.controller.reconciling import Create, Note, Outcome, Patch
from elastic.platforms.kubernetes.api.resources import CONFIGMAPS, NODES, Resource

OTHERS = Resource("tests.elastic.dev", "v1", "others", "Other")
SETS = Resource("apps", "v1", "replicasets", "ReplicaSet")


def owner_of(item, **fields):
    metadata = item["metadata"]
    owner = {"apiVersion": item["apiVersion"], "kind": item["kind"], "controller": True}
    return [owner | {"name": metadata["name"], "uid": metadata["uid"]} | fields]


def owners(item):
    return [each["uid"] for each in item["metadata"].get("ownerReferences", ())]


def test_jobs_get_what_they_want_and_follow_their_spec(world):
    world.make("early", 3)
    with world.engine() as engine:
        soon(lambda: world.is_running("early", 3))
        assert engine.is_synced
        world.make("late", 1)
        soon(lambda: world.is_running("late", 1))
        world.change("early", {"spec": {"size": 5}})
        soon(lambda: world.is_running("early", 5))
        world.change("early", {"spec": {"size": 2}})
        soon(lambda: list(world.pods("early")) == ["early-0", "early-1"])
        soon(lambda: world.is_running("early", 2))


def test_children_are_controlled_and_in_the_jobs_namespace(world):
    job = world.make("job", 1)
    with world.engine():
        (pod,) = soon(lambda: list(world.pods().values()))
    assert pod["metadata"]["namespace"] == TEAM
    assert pod["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "tests.elastic.dev/v1",
            "kind": "Toy",
            "name": "job",
            "uid": job["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def test_a_pass_over_what_is_as_it_should_be_writes_nothing(world):
    world.make("job", 3)
    with world.engine() as engine:
        soon(lambda: world.is_running("job", 3))
        is_quiet(engine, world.api)
        writes, passes = len(world.api.writes), len(world.kind.seen)
        # A change that matters to nobody, but is one.
        world.change("job", {"metadata": {"labels": {"a": "b"}}})
        soon(lambda: len(world.kind.seen) > passes)
        is_quiet(engine, world.api)
        assert len(world.api.writes) == writes


def test_another_engine_touches_nothing_that_is_well(world):
    for number in range(5):
        world.make(f"job{number}", 3)
    with world.engine() as engine:
        soon(lambda: all(world.is_running(f"job{number}", 3) for number in range(5)))
        is_quiet(engine, world.api)
    uids, writes = world.uids(), len(world.api.writes)
    with world.engine() as engine:
        soon(lambda: engine.sample().passes.get("Toy", 0) >= 5)
        is_quiet(engine, world.api)
    assert world.uids() == uids
    assert len(world.api.writes) == writes


def test_a_pass_sees_at_once_what_the_one_before_has_done(world):
    """Otherwise it would do the same again, and be refused."""
    world.make("job", 20)
    with world.engine() as engine:
        soon(lambda: world.is_running("job", 20))
        world.change("job", {"spec": {"size": 0}})
        soon(lambda: not world.pods())
        is_quiet(engine, world.api)
    assert sum(verb == "create" for verb, _ in world.api.writes) == 20
    assert sum(verb == "delete" for verb, _ in world.api.writes) == 20


def test_what_was_asked_to_go_is_seen_as_going_before_the_watch_tells_so(world):
    world.make("job", 1)
    with world.engine() as engine:
        soon(lambda: world.is_running("job", 1))
        is_quiet(engine, world.api)
        # The watch of pods tells nothing more; deletions go on.
        world.api.deny("pods", "watch", "list")
        world.api.cut()
        world.kubelet.is_cut_off = True
        world.change("job", {"spec": {"size": 0}})
        soon(lambda: "deletionTimestamp" in world.pods()["job-0"]["metadata"])
        passes = len(world.kind.seen)
        world.change("job", {"metadata": {"labels": {"look": "again"}}})
        soon(lambda: len(world.kind.seen) > passes)
        (pod,) = world.kind.seen[-1].children[PODS]
        assert "deletionTimestamp" in pod["metadata"]
        is_quiet(engine, world.api)
    assert sum(verb == "delete" for verb, _ in world.api.writes) == 1


def test_lost_pods_are_made_again_whatever_happened_to_them(world):
    for number in range(4):
        world.make(f"job{number}", 4)
    rng = random.Random(7)
    with world.engine():
        for _ in range(40):
            pods = list(world.pods())
            if pods:
                name = rng.choice(pods)
                if rng.random() < 0.5:
                    world.remove(name, PODS, gracePeriodSeconds=0)
                else:
                    world.kubelet.end(TEAM, name, rng.choice([0, 1, 137]))
            soon(lambda: len(world.kind.seen) > 0)
        soon(lambda: all(world.is_running(f"job{number}", 4) for number in range(4)))
        assert len(world.pods()) == 16


def test_a_job_that_is_deleted_takes_its_pods_along_and_none_is_made_again(world):
    world.make("job", 3)
    world.make("held", 2, finalizers=["tests.elastic.dev/hold"])
    with world.engine() as engine:
        soon(lambda: world.is_running("job", 3) and world.is_running("held", 2))
        world.remove("job")
        world.remove("held")
        # A copy may be a moment behind: the pods go once the engine knows.
        is_quiet(engine, world.api)
        for name in list(world.pods("held")):
            world.remove(name, PODS)
        soon(lambda: not world.pods())
        is_quiet(engine, world.api)
        assert not world.pods()


def test_a_job_of_the_same_name_waits_for_the_pods_of_the_one_before(world):
    world.make("job", 1)
    with world.engine():
        soon(lambda: world.is_running("job", 1))
        world.kubelet.is_cut_off = True
        first = world.uids()
        world.remove("job")
        world.make("job", 1)
        (event,) = soon(lambda: world.events("FailedCreatePod"))
        assert event["message"] == (
            "Create of Pod job-0 failed: Pod job-0 of an earlier Toy job is still there: this one "
            "waits until it is gone"
        )
        assert world.uids() == first
        world.kubelet.is_cut_off = False
        soon(lambda: world.is_running("job", 1))
        assert world.uids() != first


def test_a_name_that_is_anothers_is_told_with_what_to_do(world):
    other = world.make("other", 0, resource=OTHERS)
    world.make_pod("job-0", labels={"toy": "job"}, ownerReferences=owner_of(other))
    world.make("job", 1)
    with world.engine():
        (event,) = soon(lambda: world.events("FailedCreatePod"))
    assert "belongs to Other other: rename one of the two" in event["message"]
    assert event["type"] == "Warning"


def test_an_orphan_with_the_labels_is_adopted_and_not_made_again(world):
    orphan = world.make_pod("job-1", labels={"toy": "job"})
    foreign = world.make_pod("elsewhere", labels={"toy": "nobody"})
    job = world.make("job", 2)
    with world.engine():
        soon(lambda: world.is_running("job", 2))
        pods = world.pods()
        assert pods["job-1"]["metadata"]["uid"] == orphan["metadata"]["uid"]
        assert owners(pods["job-1"]) == [job["metadata"]["uid"]]
        assert owners(pods["elsewhere"]) == owners(foreign) == []
        late = world.make_pod("job-9", labels={"toy": "job"})
        soon(lambda: "job-9" not in world.pods())
        assert late["metadata"]["name"] not in world.pods()
        assert {each["reason"] for each in world.events()} >= {"AdoptedPod"}


def test_a_job_that_is_about_to_go_adopts_nothing(world):
    job = world.make("job", 0, finalizers=["tests.elastic.dev/hold"])
    with world.engine() as engine:
        soon(lambda: job["metadata"]["uid"] and world.job("job").get("status"))
        # The copy of the engine does not know it yet.
        world.api.deny("toys", "watch", "list")
        world.api.cut()
        world.remove("job")
        world.make_pod("job-0", labels={"toy": "job"})
        soon(lambda: ("get", "/apis/tests.elastic.dev/v1/namespaces/team/toys/job") in
             world.api.requests)  # fmt: skip
        is_quiet(engine, world.api)
    assert owners(world.pods()["job-0"]) == []


def test_what_loses_its_labels_is_released_and_replaced_where_it_has_another_name(world):
    world.make("job", 2)
    with world.engine():
        soon(lambda: world.is_running("job", 2))
        released = world.uids()["job-1"]
        world.change("job-1", {"metadata": {"labels": {"toy": None}}}, PODS)
        soon(lambda: owners(world.pods()["job-1"]) == [])
        assert world.uids()["job-1"] == released
        # Its name is taken, which is told, until somebody makes room.
        soon(lambda: world.events("FailedCreatePod"))
        world.remove("job-1", PODS)
        soon(lambda: world.is_running("job", 2))


def test_pods_of_a_set_that_the_job_controls_are_seen_too(world):
    kind = ToyKind(children=(SETS, PODS))
    job = world.make("job", 0)
    group = world.make("set", 0, resource=SETS, labels={"toy": "job"},
                       ownerReferences=owner_of(job))  # fmt: skip
    with world.engine(kind):
        soon(lambda: kind.seen)
        with world.api.objects.lock:
            world.make_pod("b", ownerReferences=owner_of(group))
            world.make_pod("a", ownerReferences=owner_of(group))
        world.make_pod("c", ownerReferences=owner_of(group, uid="another"))

        def names(observed):
            return [[item["metadata"]["name"] for item in observed.children[each]]
                    for each in (SETS, PODS)]  # fmt: skip

        # Which the kind wants none of.
        soon(lambda: [["set"], ["a", "b"]] in map(names, kind.seen))
        soon(lambda: list(world.pods()) == ["c"] or not world.pods())


def test_a_refusal_is_told_in_the_api_servers_own_words_and_tried_again(world):
    world.api.refuse("create", "pods", 403, 'pods "job-0" is forbidden: exceeded quota', times=3)
    world.make("job", 1)
    with world.engine() as engine:
        soon(lambda: world.is_running("job", 1))
        assert engine.sample().errors["Toy"] >= 3
        (event,) = soon(lambda: world.events("FailedCreatePod"))
        soon(lambda: world.events("FailedCreatePod")[0]["count"] == 3)
    assert event["message"] == (
        'Create of Pod job-0 failed: pods "job-0" is forbidden: exceeded quota'
    )
    assert event["source"] == {"component": "toy-controller"}
    assert event["involvedObject"]["kind"] == "Toy"


def test_conflicts_are_looked_at_again_and_told_to_nobody(world):
    world.api.refuse("patch", "toys", 409, "the object has been modified", "Conflict", times=5)
    world.make("job", 1)
    with world.engine():
        soon(lambda: world.is_running("job", 1))
    assert not [each for each in world.events() if each["type"] == "Warning"]


def test_a_status_of_the_past_never_overwrites_a_newer_one(world):
    """What was decided on an old state of the job is dropped, and decided anew."""
    world.make("job", 1)
    with world.engine() as engine:
        soon(lambda: world.is_running("job", 1))
        for number in range(30):
            world.change("job", {"status": {"running": -1, "phase": f"x{number}"}}, part="status")
            soon(lambda: world.is_running("job", 1))
        is_quiet(engine, world.api)
    assert world.job("job")["status"] == {"running": 1, "phase": "Running"}


def test_an_api_server_that_is_away_changes_nothing(world):
    world.make("job", 3)
    with world.engine() as engine:
        soon(lambda: world.is_running("job", 3))
        is_quiet(engine, world.api)
        uids, writes = world.uids(), len(world.api.writes)
        with world.api.away():
            world.change("job", {"metadata": {"labels": {"a": "b"}}})
            soon(lambda: engine.sample().errors.get("Toy", 0) == 0)
        passes = len(world.kind.seen)
        soon(lambda: len(world.kind.seen) > passes)
        is_quiet(engine, world.api)
        assert (world.uids(), len(world.api.writes)) == (uids, writes)
        world.change("job", {"spec": {"size": 4}})
        soon(lambda: world.is_running("job", 4))


def test_an_api_server_that_is_away_at_first_is_waited_for(world):
    world.make("job", 1)
    with world.api.away(), world.engine() as engine:
        assert not engine.is_synced
        world.api.is_away = False
        soon(lambda: world.is_running("job", 1))


def test_work_goes_on_where_it_was_when_the_api_server_comes_back(world):
    world.make("job", 30)
    with world.engine():
        for _ in range(5):
            soon(lambda: world.pods())
            world.api.cut()
        soon(lambda: world.is_running("job", 30))


def test_history_that_is_gone_is_listed_anew(world):
    world.make("job", 2)
    with world.engine():
        soon(lambda: world.is_running("job", 2))
        world.api.is_away = True
        world.api.cut()
        world.remove("job-0", PODS, gracePeriodSeconds=0)
        world.api.objects.forget_history()
        world.api.is_away = False
        soon(lambda: len(world.pods()) == 2)
        soon(lambda: world.is_running("job", 2))


def test_a_right_that_is_lacking_holds_up_its_own_kind_alone(world, caplog):
    other = ToyKind(OTHERS, (CONFIGMAPS, PODS))
    world.api.deny("configmaps", "list", "watch")
    world.make("job", 1)
    world.make("held", 1, resource=OTHERS)
    with world.engine(world.kind, other) as engine:
        soon(lambda: world.is_running("job", 1))
        (event,) = soon(lambda: world.events("MissingRight"))
        assert "cannot list resource" in event["message"]
        assert engine.is_synced
        assert engine.sample().missing == ("configmaps",)
        named = [each for each in caplog.records if "cannot be seen" in each.getMessage()]
        assert len(named) == 1
        assert not other.seen
        world.api.allow("configmaps")
        soon(lambda: "held-0" in world.pods())
        soon(lambda: engine.sample().missing == ())
    assert len(world.events("MissingRight")) == 1


@pytest.mark.parametrize("is_denied", [False, True])
def test_a_type_that_is_not_installed_has_no_objects_and_holds_up_nobody(world, is_denied):
    world.api.uninstall("sharepods")
    if is_denied:
        # An API server says so before it says that there is no such type.
        world.api.deny("sharepods", "list")
    shares = Resource("kubeshare.nthu", "v1", "sharepods", "SharePod")
    kind = ToyKind(children=(PODS, shares))
    world.make("job", 1)
    with world.engine(kind) as engine:
        soon(lambda: world.is_running("job", 1))
        assert engine.sample().missing == ("sharepods.kubeshare.nthu",)
        assert kind.seen[-1].children[shares] == []


def test_a_definition_that_comes_later_is_found(world):
    world.api.uninstall("toys")
    with world.engine() as engine:
        soon(lambda: engine.is_synced)
        world.api.install("toys")
        world.make("job", 1)
        soon(lambda: world.is_running("job", 1))


def test_a_kind_that_raises_is_told_once_and_holds_up_nobody(world, caplog):
    world.make("bad", "bad")
    world.make("good", 1)
    with world.engine() as engine:
        soon(lambda: world.is_running("good", 1))
        soon(lambda: engine.sample().errors["Toy"] >= 3)
        (event,) = soon(lambda: world.events("ReconcileFailed"))
        assert event["message"].endswith("ValueError: size is 'bad'")
        assert "Traceback" in caplog.text
        world.change("bad", {"spec": {"size": 1}})
        soon(lambda: world.is_running("bad", 1))
    (event,) = world.events("ReconcileFailed")
    assert event["count"] == 1


def test_labels_that_a_kind_does_not_get_along_with_end_nothing(world):
    class Strict(ToyKind):
        def job_of(self, resource, child):
            return child["metadata"]["labels"]["toy"]

    world.make_pod("unlabelled")
    world.make("job", 1)
    with world.engine(Strict()):
        soon(lambda: world.is_running("job", 1))
        world.make_pod("unlabelled-too")
        world.change("job", {"spec": {"size": 2}})
        soon(lambda: world.is_running("job", 2))


def test_an_object_that_its_own_kind_would_release_is_not_made(world):
    class Forgetful(ToyKind):
        def _make(self, job, name):
            return super()._make("another", name)

    world.make("job", 1)
    with world.engine(Forgetful()):
        (event,) = soon(lambda: world.events("ReconcileFailed"))
    assert "it would be released at once" in event["message"]
    assert not world.pods()


def test_the_first_action_that_fails_ends_the_pass_and_the_status_waits(world):
    class Ordered(ToyKind):
        children = (PODS, CONFIGMAPS)

        def reconcile(self, observed):
            manifest = {"metadata": {"name": "a", "labels": {"toy": "job"}}}
            actions = [
                Create(CONFIGMAPS, manifest),
                Patch(CONFIGMAPS, "a", {"data": {"k": "v"}}, Note("Patched", "a")),
                Create(CONFIGMAPS, {"metadata": {"name": "b", "labels": {"toy": "job"}}}),
            ]
            there = observed.children[CONFIGMAPS]
            actions = actions[:0] if len(there) == 2 else actions
            return Outcome(actions, {"phase": "Done"}, [Note("Done", "all")])

    kind = Ordered(children=Ordered.children)
    world.api.refuse("patch", "configmaps", 422, "data: Invalid value", "Invalid", times=None)
    world.make("job", 0)
    with world.engine(kind):
        soon(lambda: world.events("FailedPatchConfigMap"))
        names = [path for verb, path in world.api.writes if verb == "create"]
        assert all(path.endswith("configmaps") for path in names)
        assert "status" not in world.job("job")
        assert not world.events("Done")
        world.api.relent()
        soon(lambda: world.job("job").get("status") == {"phase": "Done"})
        soon(lambda: world.events("Done"))
        assert world.events("Patched")


def test_a_pass_comes_again_when_it_was_asked_to(world):
    class Patient(ToyKind):
        def reconcile(self, observed):
            super().reconcile(observed)
            looks = observed.job.get("status", {}).get("looks", 0)
            again = None if looks >= 5 or len(self.seen) > 30 else 0.0
            return Outcome(status={"looks": min(5, len(self.seen))}, again_in_s=again)

    world.make("job", 0)
    with world.engine(Patient()):
        soon(lambda: world.job("job").get("status") == {"looks": 5})


def test_fields_of_a_status_that_are_wanted_no_more_are_removed(world):
    class Short(ToyKind):
        def reconcile(self, observed):
            return Outcome(status={"phase": "Done", "nothing": None})

    world.make("job", 0)
    world.change("job", {"status": {"phase": "Old", "reason": "x", "deep": {"a": 1}}},
                 part="status")  # fmt: skip
    with world.engine(Short()) as engine:
        soon(lambda: world.job("job")["status"] == {"phase": "Done"})
        is_quiet(engine, world.api)
    assert len(world.api.writes) == 1


def test_all_namespaces_are_kept_where_none_is_given_and_one_where_one_is(world):
    world.make("here", 1)
    world.make("there", 1, namespace="other")
    with world.engine():
        soon(lambda: world.is_running("here", 1))
    assert list(world.pods()) == ["here-0"]
    with world.engine(namespace=None):
        soon(lambda: sorted(world.pods()) == ["here-0", "there-0"])


def test_kinds_that_place_pods_see_the_cluster_and_hear_of_its_changes(world):
    kind = ToyKind(sees_cluster=True)
    world.make("job", 0)
    with world.engine(kind):
        soon(lambda: kind.seen and kind.seen[-1].cluster)
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
        place = world.place("n", "", NODES)
        world.api.objects.create(place, node)
        soon(lambda: [len(kind.seen[-1].cluster.nodes)] == [1])
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}}
        world.api.objects.create(world.place("p", "elsewhere", PODS), pod)
        soon(lambda: len(kind.seen[-1].cluster.pods) == 1)


def test_a_kind_that_takes_long_to_place_its_pods_holds_up_no_other(world):
    may_go_on, begun = threading.Event(), threading.Event()

    class Slow(ToyKind):
        def reconcile(self, observed):
            begun.set()
            may_go_on.wait(20.0)
            return super().reconcile(observed)

    slow = Slow(OTHERS, sees_cluster=True)
    for number in range(3):
        world.make(f"slow-{number}", 1, resource=OTHERS)
    with world.engine(world.kind, slow, num_workers=1):
        begun.wait(20.0)
        world.make("job", 1)
        soon(lambda: world.is_running("job", 1))
        assert not slow.seen
        may_go_on.set()
        soon(lambda: len({each.job["metadata"]["name"] for each in slow.seen}) == 3)


def test_jobs_that_place_pods_are_looked_at_one_by_one(world):
    in_work = threading.Lock()

    class Placing(ToyKind):
        def reconcile(self, observed):
            assert in_work.acquire(blocking=False), "two at once"
            try:
                time.sleep(0.02)
                return super().reconcile(observed)
            finally:
                in_work.release()

    kind = Placing(sees_cluster=True)
    for number in range(5):
        world.make(f"job-{number}", 1)
    with world.engine(kind, num_workers=4) as engine:
        soon(lambda: all(world.is_running(f"job-{number}", 1) for number in range(5)))
        assert engine.sample().errors == {}


def test_kinds_that_place_pods_decide_nothing_before_they_see_the_cluster(world):
    kind = ToyKind(sees_cluster=True)
    world.api.deny("nodes", "list", "watch")
    world.make("job", 1)
    with world.engine(kind):
        (event,) = soon(lambda: world.events("MissingRight"))
        assert "nodes" in event["message"]
        assert not kind.seen
        world.api.allow("nodes")
        soon(lambda: world.is_running("job", 1))
    assert all(each.cluster is not None for each in kind.seen)


def test_what_was_observed_before_all_was_seen_is_not_decided_by(world, monkeypatch):
    """The last list may come between a look at the copies and the question whether they are."""
    kind = ToyKind(sees_cluster=True)
    observe = Informers.observe

    def observe_and_be_late(informers, key, now_s):
        observed = observe(informers, key, now_s)
        if observed is not None and observed.cluster is None and world.events("MissingRight"):
            world.api.allow("nodes")
            soon(lambda: informers.is_ready(kind))
        return observed

    monkeypatch.setattr(Informers, "observe", observe_and_be_late)
    world.api.deny("nodes", "list", "watch")
    world.make("job", 1)
    with world.engine(kind):
        soon(lambda: world.events("MissingRight"))
        world.change("job", {"metadata": {"labels": {"looked": "at"}}})
        soon(lambda: world.is_running("job", 1))
    assert all(each.cluster is not None for each in kind.seen)


def test_numbers_tell_what_was_done(world):
    world.make("job", 3)
    with world.engine() as engine:
        soon(lambda: world.is_running("job", 3))
        is_quiet(engine, world.api)
        sample = engine.sample()
    assert sample.actions["create"] == 3
    assert sample.actions["status"] >= 1
    assert sample.passes["Toy"] == sum(sample.latency.counts)
    assert sample.latency.sum_s > 0.0
    assert (sample.errors, sample.queue_depth, sample.missing) == ({}, 0, ())


def test_an_engine_that_has_stopped_writes_no_more(world):
    world.make("job", 1)
    with world.engine() as engine:
        soon(lambda: world.is_running("job", 1))
        is_quiet(engine, world.api)
    writes = len(world.api.writes)
    world.change("job", {"spec": {"size": 3}})
    with world.engine():
        soon(lambda: world.is_running("job", 3))
    # The second engine alone has made them.
    created = [verb for verb, _ in world.api.writes[writes:] if verb == "create"]
    assert len(created) == 2
    assert TOYS.path(TEAM, "job", "status") in {path for _, path in world.api.writes[writes:]}
