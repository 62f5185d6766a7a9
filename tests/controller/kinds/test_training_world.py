"""TrainingJobs in a cluster in miniature: their lives, and what must hold whatever happens."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.training_world import ENDED, World

from elastic.controller.kinds.training_look import Size, Sizes
from elastic.controller.reconciling import Create, EventType, Patch
from elastic.platforms.kubernetes.api.resources import BATCH_JOBS, PODS, REPLICA_SETS


def spec(master=True, pservers=2, trainers=2, most=None, tolerant=False):
    return {
        "fault_tolerant": tolerant,
        **({"master": {}} if master else {}),
        "pserver": {"min-instance": pservers, "max-instance": pservers},
        "trainer": {"min-instance": trainers, "max-instance": most or trainers},
    }


def running(**how):
    """A world whose job runs."""
    world = World(spec(**how))
    world.settle()
    assert world.phase == "running"
    return world


def created(world):
    return [a.manifest["metadata"]["name"] for a in world.actions if isinstance(a, Create)]


def reasons(world):
    return [note.reason for note in world.notes]


def test_the_life_of_a_job():
    world = World(spec())
    world.looks()
    assert (world.phase, created(world)) == ("creating", ["j-master"])
    world.kubernetes()
    world.looks()
    assert created(world) == ["j-master"], "its pod is not ready"
    world.run(world.of("master")[0])
    world.looks()
    assert created(world) == ["j-master", "j-pserver"]
    world.kubernetes()
    world.run(world.of("pserver")[0])
    world.looks()
    assert created(world) == ["j-master", "j-pserver"], "one of two is not ready"
    world.run(world.of("pserver")[1])
    world.looks()
    assert created(world) == ["j-master", "j-pserver", "j-trainer"]
    world.kubernetes()
    world.run(world.of("trainer")[0])
    world.looks()
    assert world.phase == "creating", "one of two trainers does not run"
    world.run(world.of("trainer")[1])
    world.looks()
    assert world.phase == "running"
    for pod in world.of("trainer"):
        world.end(pod)
    world.settle()
    assert world.phases == ["", "creating", "running", "succeeded"]
    assert world.owners[REPLICA_SETS] == {}
    assert [pod["status"]["phase"] for pod in world.of("trainer")] == ["Succeeded", "Succeeded"]
    assert reasons(world) == ["Creating", "Running", "Succeeded"]
    noted = [action.note.reason for action in world.actions]
    assert noted == ["Created", "Created", "Created", "Released", "Released"]


def test_without_a_master_the_pservers_come_first():
    world = running(master=False)
    assert created(world) == ["j-pserver", "j-trainer"]


def test_a_job_is_seen_running_however_short_it_is():
    world = World(spec(master=False))
    world.looks()
    world.kubernetes()
    for pod in world.of("pserver"):
        world.run(pod)
    world.looks()
    world.kubernetes()
    for pod in world.of("trainer"):
        world.end(pod)
    world.looks()
    assert world.phases == ["", "creating", "running", "succeeded"]


def test_a_short_job_whose_pservers_are_gone_again_has_succeeded():
    world = running(master=False)
    world.delete(world.of("pserver")[0])
    for pod in world.of("trainer"):
        world.end(pod)
    world.settle()
    assert world.phase == "succeeded"


class TestFailure:
    def test_one_trainer_is_enough_without_fault_tolerance(self):
        world = running()
        failing, other = world.of("trainer")
        world.end(failing, 137, "OOMKilled")
        world.settle()
        assert world.phases == ["", "creating", "running", "failed"]
        assert world.status["reason"] == (
            f"a trainer failed: pod {failing['metadata']['name']} on node node-1: OOMKilled, "
            "exit code 137"
        )
        assert world.owners[REPLICA_SETS] == {}
        assert failing["metadata"]["name"] in world.pods, "its log is what tells why"
        assert other["metadata"]["name"] not in world.pods, "it would wait for ever"
        assert world.notes[-1].type is EventType.WARNING

    def test_it_may_come_before_all_run(self):
        world = World(spec(master=False))
        world.looks()
        world.kubernetes()
        for pod in world.of("pserver"):
            world.run(pod)
        world.looks()
        world.kubernetes()
        world.end(world.of("trainer")[0], 1)
        world.settle()
        assert world.phases == ["", "creating", "failed"]

    def test_nothing_is_started_any_more(self):
        world = running()
        world.end(world.of("trainer")[0], 1)
        world.kubernetes()
        world.settle()
        assert world.phase == "failed"
        assert world.alive("trainer") == []

    def test_some_are_replaced_with_fault_tolerance(self):
        world = running(tolerant=True, trainers=3)
        for _ in range(4):
            world.end(world.alive("trainer")[0], 1)
            world.settle()
        assert world.phase == "running"
        assert len(world.alive("trainer")) == 3
        trainers = world.status["replica_statuses"][2]
        assert (trainers["active"], trainers["failed"]) == (3, 4)

    def test_all_fail_a_tolerant_job(self):
        world = running(tolerant=True, trainers=3)
        for pod in world.of("trainer"):
            world.end(pod, 2)
        world.looks()
        assert world.phase == "failed"
        world.kubernetes()
        assert world.alive("trainer") == [], "Kubernetes replaces none any more"
        names = [pod["metadata"]["name"] for pod in world.of("trainer")]
        assert all(
            f"pod {name} on node node-1: exit code 2" in world.status["reason"] for name in names
        )

    def test_old_failures_do_not_count_when_the_others_are_deleted(self):
        world = running(tolerant=True, trainers=2)
        for _ in range(3):
            world.end(world.alive("trainer")[0], 1)
            world.settle()
        for pod in world.alive("trainer"):
            world.delete(pod)
            world.end(pod, 143)
        world.looks()
        assert world.phase == "running"
        world.settle()
        assert (world.phase, len(world.alive("trainer"))) == ("running", 2)

    def test_a_tolerant_job_needs_one_success_and_nobody_left(self):
        world = running(tolerant=True, trainers=3)
        first, second, third = world.of("trainer")
        world.end(first)
        world.end(second, 1)
        world.settle()
        assert world.phase == "running"
        world.end(third, 1)
        world.settle()
        assert world.phase == "succeeded"

    def test_many_failures_are_told_of_a_few(self):
        world = running(tolerant=True, trainers=8)
        for pod in world.of("trainer"):
            world.end(pod, 1)
        world.looks()
        assert world.status["reason"].count("exit code 1") == 5
        assert world.status["reason"].endswith("; and 3 more")

    def test_a_trainer_deleted_after_the_first_success_is_missed(self):
        world = running(trainers=2)
        first, second = world.of("trainer")
        world.end(first)
        world.settle()
        world.delete(second)
        world.settle()
        assert world.phase == "failed"
        assert "1 of 2 trainers succeeded" in world.status["reason"]

    def test_a_job_that_kubernetes_gave_up(self):
        world = running()
        conditions = [{"type": "Failed", "status": "True", "reason": "X", "message": "why"}]
        for pod in world.of("trainer"):
            world.delete(pod)
        world.owner("trainer")["status"]["conditions"] = conditions
        world.settle()
        assert world.phase == "failed"
        assert world.status["reason"].endswith("X: why")

    def test_a_success_counts_though_its_pod_was_cleaned_up(self):
        world = running(trainers=2)
        first, second = world.of("trainer")
        world.end(first)
        world.settle()
        world.delete(first)
        world.settle()
        world.end(second)
        world.settle()
        assert world.phase == "succeeded"
        assert world.status["replica_statuses"][2]["succeeded"] == 2

    def test_pods_of_an_earlier_job_of_that_name_do_not_count(self):
        world = running()
        old = copy.deepcopy(world.of("trainer")[0])
        old["metadata"] |= {"name": "old", "ownerReferences": [{"uid": "x", "controller": True}]}
        old["status"]["phase"] = "Failed"
        observed = world.observed()
        observed.children[PODS].append(old)
        assert world.kind.reconcile(observed).status == world.status

    def test_a_job_of_no_pods_has_not_succeeded(self):
        """As for a moment, where somebody has scaled it so."""
        world = running()
        world.owner("trainer")["spec"]["parallelism"] = 0
        world.kubernetes()
        world.bury()
        world.settle()
        assert (world.phase, len(world.alive("trainer"))) == ("running", 2)


class TestDeletedByHand:
    @pytest.mark.parametrize("role", ["master", "pserver", "trainer"])
    def test_a_pod_comes_back_and_nobody_fails(self, role):
        world = running()
        lost = world.of(role)[0]
        world.delete(lost)
        world.end(lost, 143)
        world.settle()
        assert (world.phase, len(world.alive(role))) == ("running", 1 if role == "master" else 2)

    @pytest.mark.parametrize("role", ["master", "pserver", "trainer"])
    def test_a_whole_role_comes_back(self, role):
        world = running()
        others = {p["metadata"]["name"] for r in world.pods.values() for p in [r]} - {
            p["metadata"]["name"] for p in world.of(role)
        }
        world.remove(BATCH_JOBS if role == "trainer" else REPLICA_SETS, f"j-{role}")
        world.settle()
        assert world.phase == "running"
        assert world.ready(role)
        assert others <= set(world.pods), "no other pod was touched"

    def test_a_name_is_not_taken_before_it_is_free(self):
        world = running()
        world.owner("trainer")["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        before = len(world.actions)
        world.looks()
        assert world.actions[before:] == []

    @pytest.mark.parametrize("code", [0, 1])
    def test_nothing_comes_back_in_a_final_phase(self, code):
        world = running()
        for pod in world.of("trainer"):
            world.end(pod, code)
        world.settle()
        ended, before = world.phase, len(world.actions)
        world.remove(BATCH_JOBS, "j-trainer")
        world.settle()
        assert (world.phase, world.actions[before:]) == (ended, [])

    def test_what_is_being_released_is_not_released_again(self):
        world = running()
        for pod in world.of("trainer"):
            world.end(pod)
        world.look()
        observed = world.observed()
        leaving = copy.deepcopy(running().owner("pserver"))
        leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        observed.children[REPLICA_SETS].append(leaving)
        assert world.kind.reconcile(observed).actions == []

    def test_a_job_that_is_deleted_is_left_to_be_collected(self):
        world = running()
        world.job["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        world.remove(REPLICA_SETS, "j-pserver")
        before = len(world.actions)
        world.looks()
        assert world.actions[before:] == []


class TestSize:
    def test_editing_the_minimum_is_obeyed(self):
        world = running(most=6, tolerant=True)
        old = set(world.pods)
        world.edit(pserver={"min-instance": 3, "max-instance": 4}, trainer={"min-instance": 4})
        world.settle()
        assert (len(world.alive("pserver")), len(world.alive("trainer"))) == (3, 4)
        assert old <= set(world.pods), "no pod was touched"
        assert world.phase == "running"
        patches = [action for action in world.actions if isinstance(action, Patch)]
        assert [patch.change["spec"] for patch in patches] == [{"parallelism": 4}, {"replicas": 3}]
        assert "parallelism from 2 to 4" in patches[0].note.message
        assert "min-instance is 4" in patches[0].note.message
        assert {patch.note.reason for patch in patches} == {"Scaled"}

    def test_shrinking_is_no_failure(self):
        world = running(pservers=3, trainers=4)
        world.edit(pserver={"min-instance": 1}, trainer={"min-instance": 2})
        world.looks()
        world.kubernetes()
        for pod in world.of("trainer"):
            if "deletionTimestamp" in pod["metadata"]:
                world.end(pod, 143)
        world.settle()
        assert (world.phase, len(world.alive("trainer")), len(world.alive("pserver"))) == (
            "running",
            2,
            1,
        )
        patches = [a.change["spec"] for a in world.actions if isinstance(a, Patch)]
        assert patches == [{"replicas": 1}, {"parallelism": 2}], "pservers leave first"
        for pod in world.alive("trainer"):
            world.end(pod)
        world.settle()
        assert world.phase == "succeeded"

    @pytest.mark.parametrize("tolerant", [False, True])
    @pytest.mark.parametrize("code", [0, 1])
    def test_a_trainer_that_goes_with_0_has_not_succeeded(self, tolerant, code):
        """Kubernetes thinks so, and starts none any more; how the others end decides."""
        world = running(trainers=3, most=6, tolerant=tolerant)
        world.edit(trainer={"min-instance": 2})
        world.looks()
        world.kubernetes()
        leaving = [pod for pod in world.of("trainer") if "deletionTimestamp" in pod["metadata"]]
        assert len(leaving) == 1
        world.end(leaving[0])
        world.settle()
        assert (world.phase, len(world.alive("trainer"))) == ("running", 2)
        assert world.status["replica_statuses"][2]["succeeded"] == 0
        world.edit(trainer={"min-instance": 4})
        world.settle()
        assert world.phase == "running"
        for pod in world.alive("trainer"):
            world.end(pod, code)
        world.settle()
        assert world.phase == ("failed" if code else "succeeded")

    def test_nobody_is_left_of_trainers_that_went_with_0(self):
        world = running(trainers=2, tolerant=True)
        for pod in world.of("trainer"):
            world.delete(pod)
            world.end(pod)
        world.settle()
        assert world.phase == "failed"
        assert world.status["reason"].startswith("no trainer succeeded")

    def test_it_may_be_edited_before_there_are_trainers(self):
        world = World(spec())
        world.looks()
        world.edit(trainer={"min-instance": 5, "max-instance": 5})
        world.settle()
        assert (world.phase, len(world.alive("trainer"))) == ("running", 5)

    def test_what_somebody_else_scaled_is_put_back(self):
        world = running()
        world.owner("pserver")["spec"]["replicas"] = 0
        world.settle()
        assert len(world.ready("pserver")) == 2

    def test_after_the_first_success_the_size_is_what_it_is(self):
        world = running(trainers=3, tolerant=True)
        world.end(world.of("trainer")[0])
        world.settle()
        world.edit(trainer={"min-instance": 1})
        before = len(world.actions)
        world.settle()
        assert world.actions[before:] == []
        assert world.status["scale_status"]["trainer"]["reason"] == (
            "Kubernetes starts no trainer after the first success"
        )

    def test_the_status_tells_size_reason_and_time(self):
        world = running()
        began = world.status["scale_status"]["trainer"]
        assert began == {
            "current": 2,
            "wanted": 2,
            "reason": "min-instance is 2",
            "time": "1970-01-12T13:46:40Z",
        }
        world.now_s += 60
        world.looks()
        assert world.status["scale_status"]["trainer"] == began
        world.edit(trainer={"min-instance": 3, "max-instance": 3})
        world.looks()
        assert world.status["scale_status"]["trainer"] == {
            "current": 2,
            "wanted": 3,
            "reason": "min-instance is 3",
            "time": "1970-01-12T13:47:40Z",
        }
        assert world.status["scale_status"]["pserver"]["time"] == began["time"]

    def test_whoever_else_decides_the_sizes_is_obeyed(self):
        world = World(
            spec(most=6, tolerant=True),
            sizes=lambda *_: Sizes(Size(5, "room was free"), Size(2, "as ever")),
        )
        world.settle()
        assert (world.phase, len(world.alive("trainer"))) == ("running", 5)
        assert world.status["scale_status"]["trainer"]["reason"] == "room was free"

    def test_servers_come_after_the_trainers_and_leave_before_them(self):
        decided = {"trainer": 2, "pserver": 2}

        def sizes(*_):
            return Sizes(*(Size(decided[role], "as decided") for role in ("trainer", "pserver")))

        world = World(spec(most=6, tolerant=True), sizes=sizes)
        world.settle()
        for trainers, pservers, expected in (
            (4, 3, ["j-trainer", "j-pserver"]),
            (3, 2, ["j-pserver", "j-trainer"]),
        ):
            decided.update(trainer=trainers, pserver=pservers)
            before = len(world.actions)
            world.settle()
            assert [action.name for action in world.actions[before:]] == expected
            assert (len(world.alive("trainer")), len(world.alive("pserver"))) == (
                trainers,
                pservers,
            )


class TestTold:
    def test_a_range_without_fault_tolerance_is_warned_of_once(self):
        world = running(trainers=2, most=6)
        told = [note for note in world.notes if note.reason == "NotElastic"]
        assert [note.type for note in told] == [EventType.WARNING]
        assert "spec.trainer.max-instance=6" in told[0].message
        assert "min-instance=2" in told[0].message
        assert len(world.alive("trainer")) == 2

    def test_a_tolerant_one_is_not(self):
        assert "NotElastic" not in reasons(running(trainers=2, most=6, tolerant=True))

    def test_unknown_fields_are_told_once_and_do_no_harm(self):
        world = World(spec() | {"priority": "high"})
        world.settle()
        told = [note for note in world.notes if note.reason == "UnknownFields"]
        assert [(note.type, "spec.priority" in note.message) for note in told] == [
            (EventType.WARNING, True)
        ]
        assert world.phase == "running"

    def test_a_wrong_spec_fails_a_new_job(self):
        world = World(spec(trainers=3, most=2))
        world.settle()
        assert world.phases == ["", "failed"]
        assert "spec.trainer.max-instance=2" in world.status["reason"]
        assert world.actions == []
        assert [(n.reason, n.type) for n in world.notes] == [("Failed", EventType.WARNING)]

    def test_a_wrong_edit_ends_no_training(self):
        world = running()
        before = len(world.actions)
        world.edit(trainer={"min-instance": 0})
        world.settle()
        assert (world.phase, world.actions[before:]) == ("running", [])
        assert "spec.trainer.min-instance=0" in world.status["reason"]
        assert reasons(world).count("InvalidSpec") == 1
        world.edit(trainer={"min-instance": 2})
        for pod in world.of("trainer"):
            world.end(pod)
        world.settle()
        assert (world.phase, world.status.get("reason")) == ("succeeded", None)

    def test_a_change_that_reaches_no_pod_is_told_once(self):
        world = running()
        before = len(world.actions)
        world.edit(image="other")
        world.settle()
        assert world.actions[before:] == []
        [told] = [note for note in world.notes if note.reason == "ChangeIgnored"]
        assert "j-master, j-pserver, j-trainer" in told.message

    def test_pods_are_told_by_role(self):
        world = running()
        world.end(world.of("trainer")[0])
        world.looks()
        statuses = {
            each["training_resource_type"]: each for each in world.status["replica_statuses"]
        }
        assert list(statuses) == ["master", "pserver", "trainer"]
        trainers = statuses["trainer"]
        assert (trainers["active"], trainers["succeeded"], trainers["failed"]) == (1, 1, 0)
        assert trainers["resource_states"] == {
            world.of("trainer")[0]["metadata"]["name"]: "Succeeded",
            world.of("trainer")[1]["metadata"]["name"]: "Running",
        }
        assert statuses["master"]["active"] == 1

    def test_of_very_many_failed_trainers_the_newest_are_told(self):
        world = running(tolerant=True, trainers=2)
        first = world.of("trainer")[0]["metadata"]["name"]
        for _ in range(201):
            world.end(world.alive("trainer")[0], 1)
            world.kubernetes()
        world.settle()
        trainers = world.status["replica_statuses"][2]
        assert (trainers["active"], trainers["failed"]) == (2, 201)
        assert len(trainers["resource_states"]) == 202
        assert first not in trainers["resource_states"]

    def test_a_status_that_somebody_broke_restarts_nothing(self):
        world = running()
        for pod in world.of("trainer"):
            world.end(pod)
        world.settle()
        before = len(world.actions)
        world.job["status"]["replica_statuses"] = "none"
        world.looks()
        assert (world.phase, world.actions[before:]) == ("succeeded", [])


def test_what_is_looked_at_is_not_changed():
    for world in (running(), World(spec(trainers=3, most=2))):
        observed = world.observed()
        before = copy.deepcopy(observed)
        world.kind.reconcile(observed)
        assert observed == before


def test_a_controller_that_begins_again_changes_nothing():
    world = running()
    writes, actions = world.num_status_writes, len(world.actions)
    world.kind = type(world.kind)()
    for _ in range(5):
        assert not world.look()
    assert (world.num_status_writes, len(world.actions)) == (writes, actions)


ANY_POD = st.integers(0, 30)
EVENTS = st.one_of(
    st.tuples(st.just("look"), st.booleans()),
    st.tuples(st.just("kubernetes"), st.none()),
    st.tuples(st.sampled_from(["run", "succeed", "fail", "delete"]), ANY_POD),
    st.tuples(st.just("bury"), st.none()),
    st.tuples(st.just("remove"), st.sampled_from(["master", "pserver", "trainer"])),
    st.tuples(st.sampled_from(["pservers", "trainers"]), st.integers(0, 4)),
)


def play(world, what, how):
    """One event; ends of trainers are told for the oracle."""
    pods = list(world.pods.values())
    match what:
        case "look":
            world.look(dies_before_status=how)
        case "kubernetes":
            world.kubernetes()
        case "bury":
            world.bury()
        case "remove":
            owner = world.owner(how)
            if owner is not None:
                resource = BATCH_JOBS if how == "trainer" else REPLICA_SETS
                world.remove(resource, owner["metadata"]["name"])
        case "pservers" | "trainers":
            world.edit(**{what[:-1]: {"min-instance": how, "max-instance": 4}})
        case _ if pods:
            one_pod(world, what, pods[how % len(pods)])


def one_pod(world, what, pod):
    is_trainer = "paddle-job" in pod["metadata"]["labels"]
    match what:
        case "run":
            world.run(pod)
        case "delete":
            world.delete(pod)
        case "succeed" | "fail" if is_trainer and pod["status"]["phase"] == "Running":
            world.end(pod, int(what == "fail"))
            note_success(world, pod)


def note_success(world, pod):
    """One that was asked to go may end as it likes: that is no success."""
    if pod["status"]["phase"] == "Succeeded" and "deletionTimestamp" not in pod["metadata"]:
        world.succeeded.add(pod["metadata"]["ownerReferences"][0]["uid"])


@given(
    st.booleans(),
    st.booleans(),
    st.integers(1, 3),
    st.integers(1, 3),
    st.lists(EVENTS, max_size=40),
    st.booleans(),
)
def test_whatever_happens(master, tolerant, pservers, trainers, events, finally_fails):
    """Order, legal phases, notes once and no touched pod are checked with every look; here the end.

    A minimum of 0 in an edit is a spec that cannot be read.
    """
    world = World(spec(master, pservers, trainers, 4, tolerant))
    for what, how in events:
        final = world.phase if world.phase in {"succeeded", "failed"} else None
        play(world, what, how)
        assert final in {None, world.phase}, "an end is an end"
    world.edit(pserver={"min-instance": pservers}, trainer={"min-instance": trainers})
    world.settle()
    for _ in range(60):
        alive = world.alive("trainer")
        if world.phase in {"succeeded", "failed"}:
            break
        assert alive, (world.phase, world.status)
        for pod in alive:
            world.end(pod, int(finally_fails))
            note_success(world, pod)
        world.settle()
    check_end(world, tolerant)
    before = copy.deepcopy((world.job, world.owners, world.pods))
    world.looks()
    assert (world.job, world.owners, world.pods) == before


def check_end(world, tolerant):
    assert world.phase in {"succeeded", "failed"}
    assert world.owners[REPLICA_SETS] == {}
    phases = [pod["status"]["phase"] for pod in world.of("trainer")]
    assert set(phases) <= ENDED
    if world.owner("trainer") is None:
        return
    if world.phase == "succeeded":
        assert world.owner("trainer")["metadata"]["uid"] in world.succeeded
    if world.phase == "failed":
        assert world.status["reason"]
        if tolerant:
            assert "Succeeded" not in phases
    elif not tolerant:
        assert "Failed" not in phases
