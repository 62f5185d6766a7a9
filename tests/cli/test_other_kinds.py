"""`elastic status` of objects of other kinds: all of them in one table, and one in depth."""

import json
import re
import threading
from itertools import pairwise

import pytest
from support.schema import problems
from support.team import (
    ELASTIC_JOB,
    RUNNING,
    TF_JOB,
    TRAIN_JOB,
    TRAINING_JOB,
    pod_labels,
    team_of,
    training_job_runs,
)

from elastic.cli.showing import status_schema
from elastic.controller.resources import elastic_job, elastic_train_job, tf_job, training_job
from elastic.controller.resources.definitions import DEFINITIONS
from elastic.platforms.kubernetes.api.resources import EVENTS

SCHEMA = json.loads(json.dumps(status_schema()))


@pytest.fixture
def team(run, tmp_path):
    with team_of(run, tmp_path / "kubeconfig") as made:
        yield made


class TestAll:
    def test_one_table_has_our_own_jobs_and_the_objects_of_all_kinds(self, team):
        team.add_own("mnist")
        training_job_runs(team)
        team.add(elastic_job.RESOURCE, "ddp", ELASTIC_JOB, status={"phase": "Restarting"})
        team.add(tf_job.RESOURCE, "between", TF_JOB)
        team.add(elastic_train_job.RESOURCE, "new", TRAIN_JOB)
        rows = [line.split() for line in team.out("status").splitlines()]
        assert rows[0] == ["JOB", "KIND", "PHASE", "READY", "MIN", "MAX", "PROGRESS", "AGE"]
        assert [row[:6] for row in rows[1:]] == [
            ["mnist", "train", "Pending", "0/4", "1", "4"],
            ["paddlejob", "TrainingJob", "running", "1/2", "2", "6"],
            ["ddp", "ElasticJob", "Restarting", "0/3", "2", "5"],
            ["between", "TFJob", "-", "0/2", "1", "4"],
            ["new", "ElasticTrainJob", "-", "0/8", "2", "8"],
        ]

    def test_our_own_jobs_alone_have_the_table_that_they_always_had(self, team):
        team.add_own("mnist")
        training_job_runs(team, namespace="other")
        assert team.out("status").split()[:4] == ["JOB", "PHASE", "PROGRESS", "WORKERS"]

    def test_an_object_that_is_a_job_of_ours_is_listed_once_and_as_its_kind(self, team):
        team.add_own("mnist")
        team.add(elastic_train_job.RESOURCE, "mnist", TRAIN_JOB)
        [_, row] = team.out("status").splitlines()
        assert row.split()[:3] == ["mnist", "ElasticTrainJob", "Pending"]

    def test_those_of_all_namespaces_are_told_with_theirs(self, team):
        team.add_own("mnist")
        team.add_own("mnist", namespace="other")
        training_job_runs(team, namespace="third")
        rows = [line.split()[:3] for line in team.out("status", "-A").splitlines()]
        assert rows == [
            ["NAMESPACE", "JOB", "KIND"],
            ["team", "mnist", "train"],
            ["other", "mnist", "train"],
            ["third", "paddlejob", "TrainingJob"],
        ]
        told = json.loads(team.out("status", "--all-namespaces", "-o", "json"))
        assert [each["namespace"] for each in told] == ["team", "other", "third"]

    @pytest.mark.parametrize(
        ("argv", "words"),
        [
            (("mnist", "-A"), "a job is in one namespace"),
            (("-A", "-n", "team"), "--namespace and --all_namespaces exclude each other"),
        ],
    )
    def test_all_namespaces_go_with_no_other_place(self, team, argv, words):
        code, _, err = team.run("status", *argv)
        assert code == 2
        assert words in err

    def test_the_documents_keep_to_the_schema(self, team):
        team.add_own("mnist")
        training_job_runs(team)
        told = json.loads(team.out("status", "-o", "json"))
        assert problems(told, SCHEMA) == []
        assert [each["kind"] for each in told] == ["train", "TrainingJob"]
        assert set(told[1]) == set(SCHEMA["$defs"]["ObjectStatus"]["properties"])
        assert (told[1]["pods"], told[1]["events"]) == (None, None)

    def test_a_cluster_without_the_types_is_as_it_was(self, team):
        for definition in DEFINITIONS.values():
            team.api.uninstall(definition.resource.plural)
        team.add_own("mnist")
        assert team.out("status").split()[0:2] == ["JOB", "PHASE"]
        assert all("apis/" not in path for _, path in team.api.requests)

    def test_a_missing_right_is_named_once_and_the_rest_is_shown(self, team):
        training_job_runs(team)
        team.add(tf_job.RESOURCE, "between", TF_JOB)
        team.api.deny("trainingjobs", "list")
        team.api.deny("elasticjobs", "list")
        code, out, err = team.run("status")
        assert code == 0
        assert "between" in out
        assert "paddlejob" not in out
        assert err == (
            "note: this account may not list trainingjobs.paddlepaddle.org, "
            "elasticjobs.elastic.pytorch.org in namespace team: not shown\n"
        )

    def test_a_type_that_is_not_there_is_no_missing_right(self, team):
        team.add_own("mnist")
        team.api.uninstall("tfjobs")
        team.api.deny("tfjobs")
        assert "mnist" in team.out("status")


class TestOne:
    @pytest.mark.parametrize(
        "word",
        ["trainingjob", "TrainingJob", "trainingjobs", "TJ", "trainingjobs.paddlepaddle.org"],
    )
    def test_a_kind_is_named_as_to_kubectl(self, team, word):
        training_job_runs(team)
        assert team.out("status", f"{word}/paddlejob").startswith("paddlejob  running")

    def test_conditions_replicas_and_events_are_shown(self, team):
        conditions = [
            {"type": "Created", "status": "True", "reason": "TFJobCreated", "message": "is there"},
            {"type": "Scheduled", "status": "False", "reason": "No", "message": "no node has room"},
        ]
        made = team.add(tf_job.RESOURCE, "tf", TF_JOB, status={"conditions": conditions})
        team.add_pod("tf-worker-1", pod_labels("tf", "worker", 1, "kubeflow.org"))
        waits = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
        status = {"containerStatuses": [{"name": "tensorflow", "state": waits, "restartCount": 3}]}
        labels = pod_labels("tf", "ps", 0, "kubeflow.org")
        team.add_pod("tf-ps-0", labels, phase="Pending", **status)
        team.add_pod("tf-worker-0", pod_labels("else", "worker", 0, "kubeflow.org"))
        event = {
            "metadata": {"name": "e", "namespace": "team"},
            "involvedObject": {"uid": made["metadata"]["uid"]},
            "type": "Warning",
            "reason": "FailedScheduling",
            "message": "no node has room",
            "count": 4,
            "lastTimestamp": "2026-01-01T00:00:00Z",
        }
        team.api.objects.create(team.world.place("e", "team", EVENTS), event)
        text = team.out("status", "tfjob/tf")
        assert text.splitlines()[0] == "tf  Created  No: no node has room"
        assert "workers    0/2 run (min 1, max 4)" in text
        assert [" ".join(line.split()) for line in text.splitlines() if "Scheduled" in line] == [
            "Scheduled False - no node has room"
        ]
        told = json.loads(team.out("status", "tfjob/tf", "-o", "json"))
        assert problems(told, SCHEMA) == []
        assert [(each["replica"], each["restarts"]) for each in told["pods"]] == [
            ("ps-0", 3),
            ("worker-1", 0),
        ]
        assert "ErrImagePull: no such image" in text
        assert text.splitlines()[-1].endswith("FailedScheduling: no node has room (4 times)")

    def test_rights_that_only_the_depth_needs_are_named_and_the_rest_is_shown(self, team):
        training_job_runs(team)
        team.api.deny("pods", "list")
        team.api.deny("events", "list")
        code, out, err = team.run("status", "tj/paddlejob")
        assert code == 0
        assert out.startswith("paddlejob  running")
        assert err.count("note: this account may not list") == 2

    @pytest.mark.parametrize(("phase", "code"), [("running", 0), ("failed", 100), ("succeeded", 0)])
    def test_the_exit_code_tells_how_it_stands(self, team, phase, code):
        status = RUNNING | {"phase": phase}
        team.add(training_job.RESOURCE, "paddlejob", TRAINING_JOB, status=status)
        assert team.run("status", "tj/paddlejob")[0] == code

    def test_what_no_controller_has_seen_says_so(self, team):
        team.add(elastic_job.RESOURCE, "ddp", ELASTIC_JOB)
        assert team.out("status", "ej/ddp").startswith("ddp  no controller has seen it yet")

    def test_a_watch_ends_with_the_object_and_names_a_missing_right_once(self, team):
        training_job_runs(team)
        team.api.deny("events", "list")
        timer = threading.Timer(
            0.2,
            lambda: team.world.change(
                "paddlejob",
                {"status": {"phase": "failed", "reason": "a trainer failed"}},
                training_job.RESOURCE,
                "status",
            ),
        )
        timer.start()
        code, out, err = team.run("status", "tj/paddlejob", "--watch", "-o", "json")
        timer.join()
        assert code == 100
        assert err.count("may not list events") == 1
        assert [json.loads(line)["phase"] for line in out.splitlines()] == ["running", "failed"]

    def test_an_object_whose_spec_is_wrong_is_shown_all_the_same(self, team):
        team.add(elastic_job.RESOURCE, "ddp", {"minReplicas": "many"}, status={"phase": "Failed"})
        assert team.run("status", "ej/ddp")[0] == 100
        assert "0/-" in team.out("status")

    def test_the_status_of_somebody_elses_controller_is_no_error(self, team):
        team.add(elastic_job.RESOURCE, "ddp", ELASTIC_JOB, status={"phase": 7, "conditions": "x"})
        assert "0/3" in team.out("status")

    @pytest.mark.parametrize(
        ("job", "code", "words"),
        [
            ("tfjob/none", 102, "no TFJob 'none' in namespace 'team'"),
            ("tfjbo/none", 2, "there is no kind 'tfjbo': did you mean tfjob/none?"),
            ("pod/none", 2, "use trainingjob, elasticjob, tfjob, elastictrainjob"),
            ("tfjob/", 2, "'' is no name of an object"),
            ("tfjob/a/b", 2, "'a/b' is no name of an object"),
            ("tfjob/a#b", 2, "'a#b' is no name of an object"),
        ],
    )
    def test_what_is_not_there_is_named(self, team, job, code, words):
        got, _, err = team.run("status", job)
        assert (got, words in err) == (code, True), err

    def test_a_type_that_the_cluster_does_not_know_is_named(self, team):
        team.api.uninstall("tfjobs")
        code, _, err = team.run("status", "tfjob/x")
        assert code == 102
        assert "does not know the type TFJob; `elastic install --controller` installs it" in err

    def test_kinds_are_in_clusters(self, run):
        code, _, err = run("status", "tfjob/x", "--platform", "local")
        assert code == 2
        assert "objects of other kinds are in a cluster" in err


class TestPlainNames:
    @pytest.mark.parametrize(
        "command", [("status",), ("kill",), ("logs",), ("scale", "--workers=2")]
    )
    def test_an_object_of_that_name_is_pointed_at(self, team, command):
        training_job_runs(team)
        name, *rest = command
        code, _, err = team.run(name, "paddlejob", *rest, "-n", "team")
        assert code == 102
        assert "there is a TrainingJob of that name" in err
        assert f"`elastic {name} trainingjob/paddlejob --namespace team --kubeconfig" in err

    def test_a_plain_name_stays_our_own_job(self, team):
        team.add_own("same")
        training_job_runs(team, "same")
        assert team.out("status", "same").startswith("same  Pending")

    def test_an_object_that_is_a_job_of_ours_has_its_view(self, team):
        team.add_own("mnist")
        team.add(elastic_train_job.RESOURCE, "mnist", TRAIN_JOB)
        # All but how long ago, which may be another number the second time.
        view, own = (
            re.sub(r" \S+s$", "", team.out("status", name).partition("\n")[0])
            for name in ("elastictrainjob/mnist", "mnist")
        )
        assert view == own
        assert "ElasticTrainJob" not in view

    def test_one_that_is_none_yet_is_shown_as_an_object(self, team):
        team.add(elastic_train_job.RESOURCE, "mnist", TRAIN_JOB)
        assert "ElasticTrainJob (elastic.dev/v1)" in team.out("status", "etj/mnist")


def test_a_screen_of_80_columns_folds_names_and_cuts_nothing(team, monkeypatch):
    name = "a-training-job-with-a-very-long-name-that-somebody-chose"
    namespace = "another-namespace-of-some-length"
    training_job_runs(team, name, namespace)
    team.add(elastic_train_job.RESOURCE, "new", TRAIN_JOB)
    monkeypatch.setattr("elastic.cli.showing._PIPE_WIDTH", 80)
    lines = team.out("status", "-A").splitlines()
    assert max(map(len, lines)) <= 80
    assert "PROGRESS" not in lines[0]
    starts = [lines[0].index(title) for title in ("NAMESPACE", "JOB", "KIND")]
    columns = ["".join(line[begin:end].strip() for line in lines[1:])
               for begin, end in pairwise(starts)]  # fmt: skip
    assert columns == [f"{namespace}team", f"{name}new"]
