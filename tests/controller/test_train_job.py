"""What an ElasticTrainJob's controller makes, tells and makes again, played through in a world."""

import json
from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.invalid_objects import changed
from support.invalid_objects.elastic_train_job import ROWS
from support.played_kind import START_S, CrashError
from support.train_job_world import JOB, TEMPLATE, UID, World, begun, resource

from elastic.controller.kinds.common import Queues
from elastic.controller.kinds.elastic_train_job.judgement import PROGRESS_S
from elastic.controller.kinds.elastic_train_job.view import create_token, job_of_record
from elastic.controller.reconciling import Create, Delete, Rejection
from elastic.platforms.certificates import make_certificate
from elastic.platforms.kubernetes.api.resources import CONFIGMAPS, PODS, SECRETS, SERVICES
from elastic.platforms.kubernetes.api.resources import PERSISTENT_VOLUME_CLAIMS as CLAIMS
from elastic.platforms.kubernetes.objects.manifests import spec_of, submission_of
from elastic.platforms.kubernetes.objects.names import (
    CHAIN_KEY,
    KEY_KEY,
    KUEUE_QUEUES,
    KUEUE_WORKLOADS,
    TOKEN_KEY,
    QueueSystem,
)
from elastic.platforms.kubernetes.pods import OVERDUE_S
from elastic.policy.accounts import as_of
from elastic.spec.status import EvaluationStatus, JobPhase, TimeSplit, WorkerStatus

MASTER = "elastic-night-master"
WORKER = "elastic-night-worker-0"
ENDS = [JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.CANCELLED]


def created(world):
    return [a.manifest["metadata"]["name"] for a in world.actions if isinstance(a, Create)]


def forced(world):
    return [a.name for a in world.actions if isinstance(a, Delete) and a.grace_s == 0]


def is_pending(world):
    return world.master["status"]["phase"] == "Pending"


def made_secret(world, random_hex):
    """What the Secret of the job would hold, were it made of these digits."""
    job = job_of_record(world.job, world.record)
    return create_token(job, random_hex, True).manifest["stringData"]


class TestBeginning:
    def test_all_objects_are_made_and_the_record_is_the_first(self):
        world = World().settle()
        assert created(world) == [
            "elastic-night",
            "elastic-night-state",
            "elastic-night-status",
            MASTER,
            "elastic-night-token",
            MASTER,
        ]
        assert world.names_of(SERVICES) == [MASTER]
        assert world.names_of(PODS) == [MASTER]
        assert (world.phase, world.status["master_pod"]) == ("Pending", MASTER)
        assert world.condition("Created") == "True"

    def test_the_claim_is_that_of_the_template(self):
        claim = World().settle().objects[CLAIMS]["elastic-night-state"]
        assert claim["spec"] == TEMPLATE["spec"]
        assert claim["metadata"]["labels"]["team"] == "night"

    @pytest.mark.parametrize("state", [False, {"claimName": "mine"}])
    def test_no_claim_is_made_where_none_is_asked_for(self, state):
        assert World(state=state).settle().names_of(CLAIMS) == []

    def test_a_master_that_is_made_again_is_of_the_same_submission(self):
        world = begun()
        first = deepcopy(world.master["metadata"]["labels"])
        assert submission_of(world.record).uid == UID.replace("-", "")
        assert submission_of(world.record).submitted_s == START_S
        world.lose_master()
        assert world.master["metadata"]["labels"] == first

    def test_the_token_is_random_and_stays(self):
        world = World().settle()
        token = world.objects[SECRETS]["elastic-night-token"]["stringData"][TOKEN_KEY]
        assert len(token) == 64
        world.lose_master()
        assert world.objects[SECRETS]["elastic-night-token"]["stringData"][TOKEN_KEY] == token

    def test_the_certificate_is_made_of_other_digits_than_the_token(self):
        certificate = make_certificate("b" * 64)
        assert made_secret(World().settle(), "a" * 64 + "b" * 64) == {
            TOKEN_KEY: "a" * 64, CHAIN_KEY: certificate.chain, KEY_KEY: certificate.key
        }  # fmt: skip

    def test_the_certificate_stays(self):
        world = World().settle()
        kept = world.objects[SECRETS]["elastic-night-token"]["stringData"]
        assert set(kept) == {TOKEN_KEY, CHAIN_KEY, KEY_KEY}
        world.lose_master()
        assert world.objects[SECRETS]["elastic-night-token"]["stringData"] == kept

    def test_a_job_without_tls_has_no_certificate(self):
        world = World(job={**JOB, "tls": False}).settle()
        assert set(made_secret(world, "a" * 128)) == {TOKEN_KEY}
        assert set(world.objects[SECRETS]["elastic-night-token"]["stringData"]) == {TOKEN_KEY}

    def test_what_cannot_be_made_ends_the_job_but_beside_a_master(self):
        world = World().settle()
        create = next(each for each in world.actions if isinstance(each, Create))
        rejection = Rejection(create, 'spec.ports: Invalid value: "x"')
        assert world.kind.rejected(world.observe(), rejection) is None
        world.pods.clear()
        end = world.kind.rejected(world.observe(), rejection).status
        assert (end["phase"], end["reason"]) == ("Failed", "InvalidSpec")
        assert 'spec.ports: Invalid value: "x"' in end["message"]
        world = begun()
        world.pods.clear()
        assert world.kind.rejected(world.observe(), rejection) is None, "it has begun"

    def test_a_second_look_does_nothing(self):
        world = World().settle()
        num_actions, num_writes = len(world.actions), world.num_status_writes
        world.settle()
        assert (len(world.actions), world.num_status_writes) == (num_actions, num_writes)

    def test_what_somebody_removes_is_made_again(self):
        world = begun()
        for of, name in ((CONFIGMAPS, "elastic-night"), (SERVICES, MASTER)):
            world.delete(name, of)
            world.settle()
            assert name in world.objects[of]

    def test_a_tensorboard_follows_the_master(self):
        job = JOB | {
            "volume": "claim_name=a,mount_path=/curves", "tensorboard_log_dir": "/curves/x"
        }  # fmt: skip
        world = World(job=job).settle()
        board = "elastic-night-tensorboard"
        world.run()
        assert board in world.pods
        assert world.names_of(SERVICES) == [MASTER, board]
        world.run(board)
        world.lose_master()
        assert "deletionTimestamp" in world.pods[board]["metadata"], "it holds a volume"
        world.finish_deletions()
        assert board in world.pods


class TestStatus:
    def test_it_is_what_the_master_has_published(self):
        world = begun()
        assert world.phase == "Running"
        assert world.condition("Running") == "True"
        assert world.status["progress"]["records_done"] == 100
        assert world.status["workers"][0]["phase"] == "Running"

    def test_what_json_has_no_number_for_is_left_out(self):
        nothing = EvaluationStatus(version=1, epoch=0, metrics={"auc": float("nan")})
        world = begun()
        world.advance(PROGRESS_S)
        world.train(metrics={"auc": float("nan")}, evaluations=(nothing,))
        assert world.status["metrics"] == {}
        assert world.status["evaluations"] == [{"version": 1, "epoch": 0, "metrics": {}}]

    def test_mere_progress_is_told_now_and_then(self):
        world = begun()
        world.advance(PROGRESS_S)
        before = world.num_status_writes
        for second in range(60):
            world.train(1000 + second)
            world.advance(1.0)
        writes = world.num_status_writes - before
        assert 60 / PROGRESS_S - 1 <= writes <= 60 / PROGRESS_S + 1
        world.advance(PROGRESS_S)
        assert world.status["progress"]["records_done"] == 1059, "the last is told, too"

    def test_whatever_else_is_told_at_once(self):
        world = begun()
        world.train(101)
        assert world.status["progress"]["records_done"] == 100
        world.train(102, master_restarts=1)
        assert world.status["progress"]["records_done"] == 102
        lost = (WorkerStatus(index=0, launch=2, phase="Pending"),)
        world.publish(workers=lost)
        assert world.status["workers"][0]["phase"] == "Pending"

    def test_no_time_that_passes_is_written(self):
        world = begun()
        world.advance(PROGRESS_S)
        before = world.num_status_writes
        for _ in range(5):
            world.now_s += 100
            world.settle()
        assert world.num_status_writes == before

    def test_a_status_of_another_version_tells_nothing_and_stops_nothing(self):
        world = begun()
        world.job["status"] = {"phase": "Odd", "conditions": "none", "written_s": "yesterday"}
        world.settle()
        assert world.phase == "Running"
        change = {"data": {"status.json": "{"}}
        world.change(CONFIGMAPS, "elastic-night-status", change)
        world.settle()
        assert world.status["reason"] == "StatusUnreadable"
        assert world.phase == "Running"


class TestMasterIsLost:
    def test_one_that_was_deleted_is_made_again_at_once(self):
        world = begun()
        world.lose_master()
        assert world.status.get("reason") != "Failed"
        assert (world.phase, world.condition("Running")) == ("Recovering", "False")
        assert world.master["status"]["phase"] == "Pending"
        assert "goes on from its newest cut in elastic-night-state" in world.told("MasterLost")[0]
        assert WORKER in world.pods, "workers wait for their next master"
        world.run()
        world.train(200)
        assert (world.phase, world.condition("Recovering")) == ("Running", "False")

    def test_losses_are_told_one_by_one(self):
        world = begun()
        for num in range(1, 4):
            world.lose_master()
            world.run()
            world.train(100 + num)
            assert len(world.told("MasterLost")) == num

    def test_without_a_volume_it_begins_again_and_says_so(self):
        world = begun(state=False)
        world.lose_master()
        assert (
            "no volume for its state (spec.state): it begins again" in world.told("BeginsAgain")[0]
        )
        assert world.master is not None

    def test_before_it_has_begun_nothing_is_lost(self):
        world = World(state=False).settle()
        world.lose_master()
        assert world.phase == "Pending"
        assert "BeginsAgain" not in world.reasons()

    def test_the_cluster_ended_it_and_the_next_waits_ever_longer(self):
        world = begun()
        pauses = []
        for _ in range(4):
            world.fail()
            assert world.phase == "Recovering"
            pauses.append(0 if is_pending(world) else round(world.again_in_s))
            world.advance(pauses[-1] + 0.1)
            assert is_pending(world)
            world.run()
        assert pauses == [0, 10, 20, 40]
        assert world.status["master_failures"] == 4
        assert "ended by the cluster (Evicted: The node was low on memory.)" in str(
            world.told("MasterLost")
        )

    def test_one_that_ran_for_long_before_is_made_again_at_once(self):
        world = begun()
        for _ in range(3):
            world.advance(1000)
            world.fail()
            assert world.master["status"]["phase"] == "Pending"
            world.run()
        assert world.status["master_failures"] == 1

    def test_a_controller_that_dies_counts_its_end_once(self):
        for crash_after in range(3):
            world = begun()
            world.end_master(137, "Failed")
            world.crash_after = crash_after
            with pytest.raises(CrashError):
                world.settle()
            world.crash_after = None
            world.settle()
            assert world.status["master_failures"] == 1
            assert world.master["status"]["phase"] == "Pending"

    def test_one_that_leaves_has_its_time(self):
        world = begun()
        world.delete(MASTER)
        world.settle()
        assert world.phase == "Recovering"
        grace_s = world.master["spec"]["terminationGracePeriodSeconds"]
        world.advance(grace_s + OVERDUE_S - 1)
        assert forced(world) == []
        world.finish_deletions()
        assert "deletionTimestamp" not in world.master["metadata"]

    def test_one_that_does_not_end_in_time_is_forgotten_and_made_again(self):
        world = begun()
        world.delete(MASTER)
        world.settle()
        grace_s = world.master["spec"]["terminationGracePeriodSeconds"]
        world.advance(grace_s + OVERDUE_S + 1)
        assert forced(world) == [MASTER]
        assert "deletionTimestamp" not in world.master["metadata"]
        assert "does not tell" in world.told("MasterLost")[0]

    def test_one_on_a_node_that_does_not_answer_is_not_waited_for(self):
        world = begun()
        world.cut_off(MASTER)
        assert forced(world) == [MASTER]
        assert world.master["status"]["phase"] == "Pending"

    def test_a_container_that_restarts_is_left_to_its_node(self):
        world = begun()
        uid = world.master["metadata"]["uid"]
        ended = {"exitCode": 1, "finishedAt": "2025-06-15T15:06:40Z"}
        world.master["status"]["containerStatuses"] = [
            {
                "name": "elastic",
                "restartCount": 1,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": ended},
            }
        ]
        world.settle()
        assert world.phase == "Recovering"
        assert world.master["metadata"]["uid"] == uid


class TestEnd:
    @pytest.mark.parametrize("phase", ENDS)
    def test_what_the_master_publishes_is_the_end(self, phase):
        world = begun()
        world.publish(phase, reason="Because", ended_s=world.now_s)
        assert (world.phase, world.condition(phase)) == (phase, "True")
        assert world.condition("Running") == "False"
        num_actions = len(world.actions)
        world.end_master(0, "Succeeded")
        world.settle()
        world.delete(MASTER, PODS, 0)
        world.settle()
        made = created(world)
        assert made.count(MASTER) == 2, "its service, and one pod"
        assert {type(each) for each in world.actions[num_actions:]} <= {Delete}

    def test_workers_that_a_master_left_behind_are_ended(self):
        world = begun()
        world.publish(JobPhase.SUCCEEDED, ended_s=world.now_s)
        assert "deletionTimestamp" not in world.pods[WORKER]["metadata"], "its master's to end"
        world.end_master(0, "Succeeded")
        world.settle()
        assert "deletionTimestamp" in world.pods[WORKER]["metadata"]

    def test_its_end_may_be_heard_of_before_what_it_has_published(self):
        world = begun()
        world.end_master(0, "Succeeded")
        world.settle()
        assert world.phase == "Recovering"
        world.advance(5)
        world.publish(JobPhase.SUCCEEDED, ended_s=world.now_s)
        assert world.phase == "Succeeded"

    def test_one_that_published_no_end_has_failed(self):
        world = begun()
        world.end_master(0, "Succeeded")
        world.settle()
        world.advance(60)
        assert (world.phase, world.status["reason"]) == ("Failed", "MasterLost")
        assert world.published.phase is JobPhase.FAILED, "`elastic status` says the same"

    def test_an_end_that_only_the_pod_tells_is_published(self):
        world = begun()
        world.end_master(1, "Failed")
        end = {"job_name": "night", "phase": "Succeeded", "reason": "", "ended_s": 5.0}
        terminated = world.master["status"]["containerStatuses"][0]["state"]["terminated"]
        terminated["message"] = json.dumps({"job_end": end})
        world.settle()
        assert world.phase == "Succeeded"
        assert world.published.phase is JobPhase.SUCCEEDED

    def test_a_master_that_never_starts_ends_the_job(self):
        world = World(job=JOB | {"start_timeout": 60}).settle()
        world.advance(50)
        assert world.phase == "Pending"
        world.advance(30)
        assert (world.phase, world.status["reason"]) == ("Failed", "StartTimeout")
        assert world.pods == {}, "nothing waits on for what it did not get in time"
        assert world.published.reason == "StartTimeout"

    def test_a_next_master_is_waited_for_as_long_as_it_takes(self):
        world = begun(job=JOB | {"start_timeout": 60})
        world.lose_master()
        world.advance(1000)
        assert world.phase == "Recovering"

    def test_it_is_removed_when_its_time_has_come(self):
        world = begun(ttlSecondsAfterFinished=100)
        world.advance(1000)
        assert not world.is_job_gone
        world.publish(JobPhase.SUCCEEDED, ended_s=world.now_s)
        world.advance(98)
        assert not world.is_job_gone
        world.advance(4)
        assert world.is_job_gone

    def test_without_a_time_it_stays(self):
        world = begun()
        world.publish(JobPhase.SUCCEEDED, ended_s=world.now_s)
        world.advance(10**6)
        assert not world.is_job_gone


class TestCancelled:
    def test_no_master_is_made_for_a_job_that_its_user_has_ended(self):
        world = begun()
        world.ask(cancelled=True)
        assert (world.phase, world.status["reason"]) == ("Running", "Cancelling")
        world.lose_master()
        assert world.phase == "Cancelled"
        assert world.master is None
        assert "deletionTimestamp" in world.pods[WORKER]["metadata"]
        assert world.published.phase is JobPhase.CANCELLED

    def test_an_end_that_was_published_counts(self):
        world = begun()
        world.ask(cancelled=True)
        world.publish(JobPhase.CANCELLED, ended_s=world.now_s)
        assert world.phase == "Cancelled"


class TestSuspended:
    def test_the_master_goes_first_and_then_all_else(self):
        world = begun()
        world.edit(suspend=True)
        assert world.status["reason"] == "Suspending"
        assert "deletionTimestamp" in world.master["metadata"]
        assert "deletionTimestamp" not in world.pods[WORKER]["metadata"], "it still computes"
        world.finish_deletions()
        assert "deletionTimestamp" in world.pods[WORKER]["metadata"]
        world.finish_deletions()
        assert (world.pods, world.phase, world.condition("Suspended")) == ({}, "Suspended", "True")
        assert world.published.phase is JobPhase.SUSPENDED
        assert world.names_of(CLAIMS) == ["elastic-night-state"]
        world.advance(10**6)
        assert world.pods == {}

    def test_the_time_meanwhile_is_not_that_of_training(self):
        world = begun()
        world.advance(60)
        world.train(time_split=TimeSplit(train_s=60.0, current="train", until_s=START_S + 60))
        world.edit(suspend=True)
        world.finish_deletions()
        world.finish_deletions()
        world.advance(5000)
        rested = as_of(world.published, world.now_s).time_split
        assert (rested.train_s, rested.current) == (60.0, "queue")
        assert rested.queue_s >= 5000

    def test_it_goes_on(self):
        world = begun()
        world.edit(suspend=True)
        world.finish_deletions()
        world.finish_deletions()
        world.edit(suspend=False)
        assert (world.phase, world.condition("Suspended")) == ("Recovering", "False")
        world.run()
        assert world.phase == "Recovering"
        world.train(200)
        assert world.phase == "Running"
        assert "MasterLost" not in world.reasons()

    def test_from_the_start_nothing_is_made_until_it_is_to_begin(self):
        world = World(suspend=True).settle()
        assert (world.phase, world.actions) == ("Suspended", [])
        world.edit(suspend=False)
        assert (world.phase, world.names_of(PODS)) == ("Pending", [MASTER])

    def test_without_a_volume_it_says_what_is_lost(self):
        world = begun(state=False)
        world.edit(suspend=True)
        assert "it begins again when it is resumed" in world.told("BeginsAgain")[0]

    def test_pods_on_lost_nodes_hold_nothing_up(self):
        world = begun()
        world.cut_off(WORKER)
        world.edit(suspend=True)
        world.finish_deletions()
        assert world.phase == "Suspended"

    def test_a_job_that_has_ended_stays_as_it_is(self):
        world = begun()
        world.publish(JobPhase.SUCCEEDED, ended_s=world.now_s)
        world.edit(suspend=True)
        assert world.phase == "Succeeded"
        assert "deletionTimestamp" not in world.master["metadata"]

    def test_it_can_be_cancelled(self):
        world = begun()
        world.edit(suspend=True)
        world.finish_deletions()
        world.finish_deletions()
        world.ask(cancelled=True)
        assert world.phase == "Cancelled"


class TestEdits:
    def test_another_number_of_workers_is_asked_for_as_elastic_scale_does(self):
        world = begun()
        world.edit(job={"num_workers": 2})
        assert world.control["num_workers"] == 2
        assert world.told("Scaled") == ["Asked for 2 workers, as spec.job.num_workers has it now"]
        world.edit(job={"num_workers": "1:3"})
        assert world.control["num_workers"] == 3
        world.edit(job={"num_workers": "1:4"})
        assert world.control["num_workers"] == 4

    def test_what_elastic_scale_asks_for_is_not_taken_back(self):
        world = begun()
        world.edit(job={"num_workers": 2})
        world.ask(num_workers=3)
        world.lose_master()
        assert world.control["num_workers"] == 3

    def test_what_users_asked_before_stays(self):
        world = begun()
        world.edit(suspend=True)
        world.ask(cancelled=False)
        world.edit(suspend=False, job={"num_workers": 2})
        assert world.control.items() >= {"cancelled": False, "num_workers": 2}.items()

    def test_more_than_it_may_have_is_refused_once(self):
        world = begun()
        world.edit(job={"num_workers": 9})
        assert world.control["num_workers"] is None
        [message] = world.told("EditIgnored")
        assert "spec.job.num_workers=9" in message
        assert "1:4" in message
        world.train(200)
        assert len(world.told("EditIgnored")) == 1

    def test_any_other_edit_has_no_effect_and_is_told_once(self):
        world = begun()
        world.edit(job={"num_epochs": 9}, image="digits:2")
        [message] = world.told("EditIgnored")
        assert "spec.job.num_epochs" in message
        assert "spec.image" in message
        world.lose_master()
        assert len(world.told("EditIgnored")) == 1
        assert spec_of(world.record).num_epochs == 1
        assert world.master["spec"]["containers"][0]["image"] == "digits:1"

    def test_another_volume_is_no_volume_of_this_job(self):
        world = begun(state={"claimName": "mine"})
        world.edit(state={"claimName": None, "volumeClaimTemplate": TEMPLATE})
        assert world.names_of(CLAIMS) == []
        assert "spec.state" in world.told("EditIgnored")[0]

    def test_a_slip_ends_nothing(self):
        world = begun()
        world.edit(job={"minibatch_size": "many"})
        [message] = world.told("InvalidSpec")
        assert "spec.job.minibatch_size='many'" in message
        world.lose_master()
        assert world.master is not None
        assert world.phase == "Recovering"

    def test_unknown_fields_are_named(self):
        world = World(colour="red").settle()
        assert "spec.colour" in world.told("UnknownFields")[0]
        world.run()
        assert len(world.told("UnknownFields")) == 1


class TestInvalid:
    def test_a_damaged_record_is_named_and_nothing_is_touched(self):
        world = begun()
        world.change(CONFIGMAPS, "elastic-night", {"data": {"spec.json": "{"}})
        world.edit(ttlSecondsAfterFinished=5)
        num_actions = len(world.actions)
        world.lose_master()
        assert (
            "spec.json of ConfigMap team/elastic-night is damaged" in world.told("InvalidSpec")[0]
        )
        assert (len(world.actions), len(world.told("InvalidSpec"))) == (num_actions, 1)

    @pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.path}-{str(row.value)[:30]}")
    def test_a_job_that_cannot_be_is_failed_with_field_and_value(self, row):
        manifest = changed(resource(state={"claimName": "digits"}), row)
        world = World(manifest).settle()
        assert world.phase in ("Failed", "Pending")
        if world.phase == "Pending":
            # What only the schema refuses, of which the reader makes sense.
            return
        assert (world.status["reason"], world.actions) == ("InvalidSpec", [])
        assert row.names.rpartition(".")[2] in world.status["message"]
        assert world.condition("Failed") == "True"
        [note] = [each for each in world.notes if each.reason == "InvalidSpec"]
        assert world.status["message"] in note.message

    @pytest.mark.parametrize("name", ["a.b", "n" * 60])
    def test_a_name_that_no_job_can_have(self, name):
        world = World(resource(name)).settle()
        assert world.status["message"].startswith("metadata.name: ")

    def test_it_stays_failed_when_it_is_mended(self):
        world = World(resource(job=JOB | {"minibatch_size": 0})).settle()
        world.edit(job={"minibatch_size": 1})
        assert (world.phase, world.actions) == ("Failed", [])

    def test_with_a_time_to_live_a_mended_one_goes(self):
        world = World(resource(job=JOB | {"minibatch_size": 0})).settle()
        world.edit(job={"minibatch_size": 1}, ttlSecondsAfterFinished=5)
        world.advance(10)
        assert world.is_job_gone

    def test_what_is_there_of_an_invalid_one_is_left(self):
        world = begun()
        world.delete("elastic-night", CONFIGMAPS)
        world.edit(job={"minibatch_size": "many"})
        assert world.phase == "Running"
        assert world.master is not None
        assert len(world.told("InvalidSpec")) == 1


class TestQueueThatIsNotThere:
    """Kueue would hold its pods for ever, and tell nobody."""

    KUEUE = Queues((QueueSystem.KUEUE,), KUEUE_WORKLOADS[0], KUEUE_QUEUES[0])

    def world(self, *there, queues=KUEUE, **fields):
        world = World(queues=queues, queue="team-a", **fields)
        world.looked_at = {KUEUE_QUEUES[0]: [{"metadata": {"name": name}} for name in there]}
        return world

    def test_it_is_told_once_with_its_name_and_what_to_do(self):
        world = self.world("team-b").settle().run()
        [text] = world.told("QueueMissing")
        assert "queue=team-a is not there: namespace team has no LocalQueue" in text
        assert "kubectl get localqueues -n team" in text
        assert world.condition("QueueMissing") == "True"
        assert world.told("QueueFound") == []

    def test_its_master_is_made_nevertheless_and_waits(self):
        assert self.world().settle().master is not None

    def test_it_is_found_when_it_comes_and_told_again_when_it_goes(self):
        world = self.world().settle()
        for there, told in ((["team-a"], ("False", 1, 1)), ([], ("True", 2, 1))):
            world.looked_at = {KUEUE_QUEUES[0]: [{"metadata": {"name": name}} for name in there]}
            world.settle()
            number = (len(world.told("QueueMissing")), len(world.told("QueueFound")))
            assert (world.condition("QueueMissing"), *number) == told

    def test_one_that_is_there_is_not_told_of(self):
        world = self.world("team-a").settle()
        assert world.condition("QueueMissing") is None

    @pytest.mark.parametrize(
        "queues",
        [
            pytest.param(Queues((QueueSystem.KAI,)), id="another system"),
            pytest.param(Queues((QueueSystem.KUEUE,), KUEUE_WORKLOADS[0]), id="none are known of"),
        ],
    )
    def test_nothing_is_said_of_queues_that_are_no_local_queues(self, queues):
        assert self.world(queues=queues).settle().told("QueueMissing") == []

    def test_nothing_is_said_where_they_cannot_be_seen(self):
        world = self.world()
        world.looked_at = {}
        assert world.settle().told("QueueMissing") == []

    def test_a_job_that_has_ended_needs_none(self):
        world = self.world("team-a").settle()
        world.run().train()
        world.publish(JobPhase.SUCCEEDED, ended_s=world.now_s)
        world.looked_at = {KUEUE_QUEUES[0]: []}
        assert world.settle().told("QueueMissing") == []


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2)
    ),
    max_leaves=4,
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "image": st.sampled_from(["a:1", ""]) | ANYTHING,
        "state": st.sampled_from([{"claimName": "a"}, {"volumeClaimTemplate": TEMPLATE}])
        | ANYTHING,
        "suspend": st.booleans() | ANYTHING,
        "ttlSecondsAfterFinished": st.integers(0, 9) | ANYTHING,
        "queue": ANYTHING,
        "job": st.dictionaries(
            st.sampled_from([*JOB, "num_epochs", "volume", "tensorboard_log_dir", "envs", "kind"]),
            ANYTHING,
            max_size=3,
        ).map(lambda change: JOB | change)
        | st.sampled_from([JOB, JOB | {"num_workers": 2}, JOB | {"num_epochs": 3}])
        | ANYTHING,
    },
)
STEPS = st.lists(
    st.sampled_from(["run", "train", "lose", "fail", "leave", "wait", "cancel", "end"])
    | SPECS.map(lambda spec: ("edit", spec)),
    max_size=8,
)


def play(world, step):
    match step:
        case ("edit", spec):
            world.job["spec"] = deepcopy(spec)
            world.job["metadata"]["generation"] += 1
        case "run" if world.master is not None:
            world.run()
        case "train" if world.names_of(CONFIGMAPS):
            world.train(int(world.now_s))
        case "lose" if world.master is not None:
            world.lose_master()
        case "fail" if world.master is not None:
            world.fail()
        case "leave" if world.master is not None:
            world.delete(MASTER)
        case "cancel" if world.names_of(CONFIGMAPS):
            world.ask(cancelled=True)
        case "end" if world.names_of(CONFIGMAPS) and world.phase == "Running":
            world.publish(JobPhase.SUCCEEDED, ended_s=world.now_s)
    world.settle()
    world.advance(30)


def check_any_life(spec, steps):
    """Whatever is written and happens, each moment has a fixed point, and an end is the end."""
    world = World({"metadata": {"name": "night"}, "spec": deepcopy(spec)}).settle()
    for step in steps:
        if not world.is_job_gone:
            play(world, step)
    assert world.is_job_gone or world.phase is not None


@settings(max_examples=150, deadline=None)
@given(SPECS.map(lambda spec: {"image": "a:1", "job": JOB} | spec), STEPS)
def test_nothing_that_is_written_or_happens_stops_the_kind(spec, steps):
    check_any_life(spec, steps)


@pytest.mark.soak
@settings(max_examples=10_000, deadline=None)
@given(SPECS.map(lambda spec: {"image": "a:1", "job": JOB} | spec), STEPS)
def test_ten_thousand_of_them(spec, steps):
    check_any_life(spec, steps)
