"""`elastic kill`, `logs` and `scale` of objects of other kinds, under their real controller."""

import pytest
from support.team import (
    ELASTIC_JOB,
    RUNNING,
    TF_JOB,
    TF_TEMPLATE,
    TRAINING_JOB,
    pod_labels,
    team_of,
    training_job_runs,
)
from support.toy_kind import soon

from elastic.controller.inspection.objects import Objects
from elastic.controller.kinds.elastic_job import ElasticJobs
from elastic.controller.resources import elastic_job, tf_job, training_job
from elastic.platforms.kubernetes.api.resources import PODS


@pytest.fixture
def team(run, tmp_path):
    with team_of(run, tmp_path / "kubeconfig") as made:
        yield made


class TestKill:
    def test_it_is_deleted_with_all_that_belongs_to_it(self, team):
        team.kubelet.start()
        with team.world.engine(ElasticJobs()):
            team.add(elastic_job.RESOURCE, "ddp", ELASTIC_JOB)
            soon(lambda: len(team.world.pods("ddp")) == 3)
            assert team.out("kill", "ej/ddp") == "elasticjob/ddp has been stopped and deleted\n"
            assert team.names(elastic_job.RESOURCE) == []
            assert team.world.pods("ddp") == {}
        team.kubelet.close()

    def test_one_that_has_ended_is_no_error(self, team):
        status = RUNNING | {"phase": "succeeded"}
        team.add(training_job.RESOURCE, "old", TRAINING_JOB, status=status)
        out = team.out("kill", "tj/old", "--forget")
        assert out == "trainingjob/old had ended before: succeeded; it has been deleted\n"

    def test_what_does_not_leave_is_named(self, team):
        # Of a node that answers no more.
        training_job_runs(team)
        team.add_pod("paddlejob-trainer-x", {"paddle-job": "paddlejob"}, phase="Running")
        code, _, err = team.run("kill", "tj/paddlejob", "--timeout=0.1")
        assert code == 101
        assert "paddlejob-trainer-x (node node-0)" in err
        assert team.names(training_job.RESOURCE) == []
        assert "paddlejob-trainer-x" in team.world.pods("paddlejob")
        out = team.out("kill", "tj/paddlejob", "--timeout=0")
        assert out == "nothing is left of trainingjob/paddlejob, which had been deleted before\n"
        assert team.world.pods("paddlejob") == {}
        assert team.run("kill", "tj/paddlejob")[0] == 102

    def test_with_no_time_its_pods_are_forgotten_at_once(self, team):
        training_job_runs(team)
        team.add_pod("paddlejob-trainer-x", {"paddle-job": "paddlejob"}, phase="Running")
        assert team.run("kill", "tj/paddlejob", "--timeout=0")[0] == 0
        assert team.world.pods("paddlejob") == {}


class TestLogs:
    def prepare(self, team):
        team.add(tf_job.RESOURCE, "tf", TF_JOB)
        containers = ("log-shipper", "tensorflow")
        for role, index in (("worker", 1), ("worker", 0), ("ps", 0)):
            name = f"tf-{role}-{index}"
            labels = pod_labels("tf", role, index, "kubeflow.org")
            state = {"name": "tensorflow", "state": {"terminated": {"exitCode": 0}}}
            team.add_pod(name, labels, containers, phase="Succeeded", containerStatuses=[state])
            lines = [f"{role} {index} begins", f"{role} {index} ends"]
            team.api.logs["team", name, "tensorflow"] = lines

    def test_the_container_that_counts_is_read_of_all_pods(self, team):
        self.prepare(team)
        assert team.out("logs", "tfjob/tf", "--tail=1").splitlines() == [
            "[ps-0] ps 0 ends",
            "[worker-0] worker 0 ends",
            "[worker-1] worker 1 ends",
        ]

    @pytest.mark.parametrize(
        ("argv", "replicas"),
        [
            (("--role=worker",), {"[worker-0]", "[worker-1]"}),
            (("--role=ps", "--index=0"), {"[ps-0]"}),
            (("--index=1",), {"[worker-1]"}),
        ],
    )
    def test_some_of_them(self, team, argv, replicas):
        self.prepare(team)
        lines = team.out("logs", "tfjob/tf", *argv).splitlines()
        assert {line.split()[0] for line in lines} == replicas

    def test_following_ends_with_the_object(self, team):
        self.prepare(team)
        done = {"type": "Succeeded", "status": "True"}
        team.world.change("tf", {"status": {"conditions": [done]}}, tf_job.RESOURCE, "status")
        lines = team.out("logs", "tfjob/tf", "-f", "--timestamps").splitlines()
        assert len(lines) == 6
        assert "[ps-0] 2026-01-01T00:00:00.5Z ps 0 begins" in lines

    @pytest.mark.parametrize(
        ("job", "argv", "words"),
        [
            ("tfjob/tf", ("--role=trainer",), "has the roles chief, master, ps, worker, evaluator"),
            ("tj/paddlejob", ("--index=0",), "the pods of a TrainingJob have no index"),
        ],
    )
    def test_roles_and_indexes_are_those_of_the_kind(self, team, job, argv, words):
        self.prepare(team)
        training_job_runs(team)
        code, _, err = team.run("logs", job, *argv)
        assert (code, words in err) == (2, True), err

    def test_pods_without_an_index_are_known_by_the_end_of_their_names(self, team):
        training_job_runs(team)
        team.add_pod("paddlejob-trainer-x7", {"paddle-job": "paddlejob"}, phase="Running")
        team.api.logs["team", "paddlejob-trainer-x7", "main"] = ["trains"]
        assert team.out("logs", "tj/paddlejob", "--role=trainer") == "[trainer-x7] trains\n"

    def test_our_own_jobs_have_their_own_roles(self, team):
        team.add_own("mnist")
        code, _, err = team.run("logs", "mnist", "--role=trainer")
        assert code == 2
        assert "'trainer' is not one of 'master', 'worker', 'ps'" in err


class TestScale:
    def test_an_elastic_job_gets_the_workers_that_are_asked_for(self, team):
        team.kubelet.start()
        with team.world.engine(ElasticJobs()):
            team.add(elastic_job.RESOURCE, "ddp", ELASTIC_JOB)
            soon(lambda: "3/3" in team.run("status")[1])
            out = team.out("scale", "elasticjob/ddp", "--num_workers=5")
            assert out == "elasticjob/ddp: 3 → 5 workers\n"
            assert len(team.world.pods("ddp")) == 5
            assert team.out("scale", "ej/ddp", "2") == "elasticjob/ddp: 5 → 2 workers\n"
            assert len(team.world.pods("ddp")) == 2
        team.kubelet.close()

    def test_who_has_yet_to_leave_is_waited_for(self, team):
        """A controller counts the wanted ones, and may end before it has removed the others."""
        told = {"phase": "Running", "replicaStatuses": {"Worker": {"active": 2}}}
        team.add(elastic_job.RESOURCE, "ddp", ELASTIC_JOB, status=told)
        for index in range(4):
            team.add_pod(f"ddp-worker-{index}", pod_labels("ddp", "worker", index), phase="Running")
        code, out, _ = team.run("scale", "ej/ddp", "2", "--timeout=0")
        assert (code, out) == (
            101,
            "elasticjob/ddp: worker-2, worker-3 still there beside 2 workers; see elastic status "
            "elasticjob/ddp\n",
        )
        for index in (2, 3):
            team.api.objects.delete(
                team.world.place(f"ddp-worker-{index}", "team", PODS), {"gracePeriodSeconds": 0}
            )
        assert team.out("scale", "ej/ddp", "2") == "elasticjob/ddp: 2 → 2 workers\n"

    def test_what_a_queue_holds_of_ended_pods_is_no_replica(self, team):
        told = {"phase": "Running", "replicaStatuses": {"Worker": {"active": 2}}}
        team.add(elastic_job.RESOURCE, "ddp", ELASTIC_JOB, status=told)
        for index, phase in enumerate(["Running", "Running", "Failed"]):
            team.add_pod(f"ddp-worker-{index}", pod_labels("ddp", "worker", index), phase=phase)
        held = team.world.place("ddp-worker-2", "team", PODS)
        team.api.objects.merge(held, {"metadata": {"finalizers": ["kueue.x-k8s.io/managed"]}})
        team.api.objects.delete(held, {"gracePeriodSeconds": 0})
        assert "ddp-worker-2" in team.world.pods("ddp")
        assert team.out("scale", "ej/ddp", "2") == "elasticjob/ddp: 2 → 2 workers\n"

    def test_what_others_have_changed_meanwhile_is_looked_at_again(self, team, monkeypatch):
        team.add(elastic_job.RESOURCE, "ddp", ELASTIC_JOB)
        read = Objects.get

        def read_then_edited(objects, reference):
            job = read(objects, reference)
            team.world.change("ddp", {"spec": {"maxReplicas": 4}}, elastic_job.RESOURCE)
            return job

        monkeypatch.setattr(Objects, "get", read_then_edited)
        code, _, err = team.run("scale", "ej/ddp", "5")
        assert (code, "outside the range 2:4" in err) == (2, True), err

    def test_one_that_does_not_come_is_told(self, team):
        team.add(elastic_job.RESOURCE, "ddp", ELASTIC_JOB)
        code, out, _ = team.run("scale", "ej/ddp", "5", "--timeout=0")
        assert code == 101
        assert out.startswith("elasticjob/ddp: 0 of 5 workers run so far")

    @pytest.mark.parametrize(
        ("resource", "spec", "field"),
        [
            (elastic_job.RESOURCE, ELASTIC_JOB, "spec.replicaSpecs.Worker.replicas"),
            (tf_job.RESOURCE, TF_JOB, "spec.tfReplicaSpecs.Worker.replicas"),
            (training_job.RESOURCE, TRAINING_JOB, "spec.trainer.min-instance"),
        ],
    )
    def test_the_field_that_its_controller_obeys_is_edited(self, team, resource, spec, field):
        team.add(resource, "j", spec)
        before = team.get(resource, "j")
        team.out("scale", f"{resource.kind}/j", "4", "--no_wait")
        after = team.get(resource, "j")
        *path, last = field.split(".")
        edited = after
        for name in path:
            edited = edited[name]
        assert edited[last] == 4
        edited[last] = 3 if resource == elastic_job.RESOURCE else 2
        assert after["spec"] == before["spec"], "nothing else is changed"

    @pytest.mark.parametrize(
        ("resource", "change", "status", "words"),
        [
            pytest.param(elastic_job.RESOURCE, {}, None, "outside the range 2:5", id="limits"),
            pytest.param(tf_job.RESOURCE, {}, None, "outside the range 1:4", id="instances"),
            pytest.param(training_job.RESOURCE, {}, None, "outside the range 1:6", id="instance"),
            pytest.param(
                tf_job.RESOURCE,
                {"min-instances": None, "max-instances": None},
                {"startTime": "2026-01-01T00:00:00Z"},
                "outside the range 1:2",
                id="pods-know-of-no-more",
            ),
            pytest.param(
                training_job.RESOURCE,
                {"fault_tolerant": False},
                RUNNING,
                "stays at its 2 trainers: without fault_tolerant",
                id="not-elastic",
            ),
            pytest.param(
                training_job.RESOURCE,
                {},
                RUNNING | {"phase": "succeeded"},
                "has ended as succeeded",
                id="ended",
            ),
            pytest.param(
                training_job.RESOURCE,
                {},
                RUNNING
                | {"replica_statuses": [{"training_resource_type": "trainer", "succeeded": 1}]},
                "Kubernetes starts no trainer after the first success",
                id="frozen",
            ),
            pytest.param(
                tf_job.RESOURCE,
                {"tfReplicaSpecs": {"Chief": {"template": TF_TEMPLATE}},
                 "min-instances": None, "max-instances": None},
                None,
                "has no workers",
                id="no-workers",
            ),
        ],
    )  # fmt: skip
    def test_what_a_kind_cannot_is_refused_with_the_reason(
        self, team, resource, change, status, words
    ):
        spec = {
            training_job.RESOURCE: TRAINING_JOB,
            elastic_job.RESOURCE: ELASTIC_JOB,
            tf_job.RESOURCE: TF_JOB,
        }[resource]
        spec = {name: value for name, value in (spec | change).items() if value is not None}
        team.add(resource, "j", spec, status=status)
        before = team.get(resource, "j")
        code, _, err = team.run("scale", f"{resource.kind}/j", "9")
        assert (code, words in err) == (2, True), err
        assert team.get(resource, "j") == before
