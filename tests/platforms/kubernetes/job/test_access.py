"""What masters and submitters may do: as declared, as in `manifests/`, as a cluster sees it."""

from pathlib import Path

import pytest
import yaml
from support.cluster import needs_cluster
from support.kubernetes_jobs import ClusterJobs

import elastic
from elastic.cli.main import main
from elastic.controller.inspection.kinds import KINDS
from elastic.errors import JobSpecError
from elastic.platforms.kubernetes.api.cluster import RefusedError
from elastic.platforms.kubernetes.job import installing
from elastic.platforms.kubernetes.job.installing import apply, check_cluster
from elastic.platforms.kubernetes.objects.names import QueueSystem
from elastic.spec.status import JobPhase

MANIFESTS = Path(elastic.__file__).parents[1] / "manifests"
ALLOWED = {"pods", "services", "configmaps", "events", "leases"}
"""All that a master could ever need, of its own namespace."""

GROUPS = {"", "coordination.k8s.io", "authorization.k8s.io"}

EVERYBODYS = {"selfsubjectaccessreviews", "selfsubjectrulesreviews"}
"""What Kubernetes lets everybody do: ask what they may do."""


@pytest.mark.parametrize(
    ("file", "wanted"),
    [
        ("install.yaml", installing.master_access("default", "elastic-master")),
        ("submitter.yaml", installing.submitter_access("default", ["jane"])),
        ("priority-classes.yaml", installing.priority_classes()),
    ],
)
def test_the_manifests_are_what_install_applies(file, wanted):
    assert list(yaml.safe_load_all((MANIFESTS / file).read_text())) == wanted


def test_the_declared_rights_are_the_few_allowed():
    assert {installing.split_right(each)[0] for each in installing.MASTER_RIGHTS} <= ALLOWED
    for manifest in installing.master_access("team", "m"):
        assert manifest["kind"] in {"ServiceAccount", "Role", "RoleBinding"}
        assert manifest["metadata"]["namespace"] == "team"


def _rights(manifests, group):
    role = next(each for each in manifests if each["kind"] == "Role")
    return {
        (resource, verb)
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if rule["apiGroups"] == [group]
    }


def test_a_submitter_may_use_the_objects_of_all_kinds():
    known = {(each.resource.plural, each.resource.group) for each in KINDS}
    assert {installing.split_right(each) for each in installing.CONTROLLED} == known
    for plural, group in known:
        of_kind = _rights(installing.submitter_access("team", ["jane"]), group)
        assert of_kind == {(plural, verb) for verb in installing.OBJECT_VERBS}


@pytest.mark.parametrize(
    ("queue", "group", "of_master", "of_submitter"),
    [
        ("kueue", "kueue.x-k8s.io", {("workloads", "delete")},
         {("workloads", "delete"), ("localqueues", "get")}),
        *(
            (queue, group, set(), {("podgroups", verb) for verb in ("create", "patch", "delete")})
            for queue, group in (
                ("volcano", "scheduling.volcano.sh"), ("native", "scheduling.k8s.io"),
            )
        ),
        ("kai", "scheduling.run.ai", set(), set()),
    ],
)  # fmt: skip
def test_rights_to_queues_are_given_where_one_is_used(queue, group, of_master, of_submitter):
    queues = [QueueSystem(queue)]
    assert _rights(installing.master_access("team", "m", queues), group) == of_master
    assert _rights(installing.submitter_access("team", ["jane"], queues), group) == of_submitter
    plain = [*installing.master_access("team", "m"), *installing.submitter_access("team", ["jane"])]
    assert group not in str(plain)


def test_install_refuses_a_system_that_nobody_knows(capsys):
    assert main(["install", "-n", "team", "--queues", "kueue,slurm"]) == 2
    assert "there is no system 'slurm': there are kueue, volcano, kai, native" in (
        capsys.readouterr().err
    )


class TestInTheCluster:
    pytestmark = needs_cluster

    def test_a_master_may_do_nothing_beyond_its_few_rights(self, jobs, kubeconfig_of):
        rules = self._rules(jobs, kubeconfig_of("elastic-master"))
        found = {
            (resource, verb)
            for rule in rules
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
        assert {resource for resource, _ in found} - EVERYBODYS <= ALLOWED
        wanted = {
            (installing.split_right(resource)[0], verb)
            for resource, v in installing.MASTER_RIGHTS.items()
            for verb in v
        }
        assert {(r, v) for r, v in found if r not in EVERYBODYS} == wanted
        assert all(set(rule["apiGroups"]) <= GROUPS for rule in rules)
        assert not any(rule.get("resourceNames") for rule in rules)

    def test_a_right_too_many_would_be_seen(self, jobs, kubeconfig_of):
        role = installing.master_access(jobs.namespace, "greedy")
        role[1]["rules"].append({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]})
        list(apply(jobs.cluster, role))
        rules = self._rules(jobs, kubeconfig_of("greedy"))
        assert "secrets" in {resource for rule in rules for resource in rule["resources"]}

    def _rules(self, jobs, kubeconfig):
        """All that the owner of a kubeconfig may do in the namespace."""
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "metadata": {},
            "spec": {"namespace": jobs.namespace},
        }
        who = ClusterJobs(jobs.namespace, kubeconfig)
        path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
        status = who.cluster.create(path, review)["status"]
        assert not status["incomplete"]
        return status["resourceRules"]

    @pytest.mark.parametrize(
        "path",
        [
            "/api/v1/namespaces/{0}/secrets",
            "/api/v1/namespaces/default/pods",
            "/api/v1/namespaces/kube-system/configmaps",
            "/api/v1/nodes",
            "/api/v1/namespaces",
            "/api/v1/namespaces/{0}/pods/any/log",
            "/apis/rbac.authorization.k8s.io/v1/namespaces/{0}/roles",
        ],
    )
    def test_a_master_is_refused_everything_else(self, jobs, kubeconfig_of, path):
        who = ClusterJobs(jobs.namespace, kubeconfig_of("elastic-master"))
        with pytest.raises(RefusedError, match="not permitted") as refused:
            who.cluster.get(path.format(jobs.namespace))
        assert refused.value.code == 403

    def test_a_submitter_can_run_jobs_and_no_more(self, jobs, job_name, kubeconfig_of):
        who = ClusterJobs(jobs.namespace, kubeconfig_of("submitter"))
        role = installing.submitter_access(jobs.namespace, [])
        account = {"kind": "ServiceAccount", "name": "submitter", "namespace": jobs.namespace}
        role[1]["subjects"] = [account]
        list(apply(jobs.cluster, role))
        assert self._outcomes(who) == {
            "cluster": "ok", "namespace": "ok", "your rights": "ok", "master account": "ok",
            "master rights": "skip",
        }  # fmt: skip
        with pytest.raises(JobSpecError, match="has no Secret of that name"):
            who.submit(job_name, env_secret="keys")
        jobs.create_object("secrets", {"metadata": {"name": "keys"}})
        who.submit(job_name, volume="host_path=/tmp,mount_path=/d", env_secret="keys")
        who.until(JobPhase.RUNNING, job_name)
        who.platform.scale(job_name, 2)
        assert any(
            line.text == "master does obey" for line in who.platform.logs(job_name, [], False, None)
        )
        who.platform.kill(job_name, 90.0)
        who.platform.forget(job_name)
        with pytest.raises(RefusedError, match="not permitted"):
            who.cluster.get(f"/api/v1/namespaces/{jobs.namespace}/secrets")

    def _outcomes(self, who, account="elastic-master"):
        found = check_cluster(who.cluster, who.namespace, account)
        return {check.subject: str(check.outcome) for check in found}

    def test_the_doctor_finds_what_is_missing(self, jobs, kubeconfig_of):
        stranger = ClusterJobs(jobs.namespace, kubeconfig_of("stranger"))
        assert self._outcomes(stranger)["your rights"] == "fail"
        assert self._outcomes(jobs, "nobody")["master account"] == "fail"
        jobs.create_object("serviceaccounts", {"metadata": {"name": "bare"}})
        assert self._outcomes(jobs, "bare")["master rights"] == "fail"
        assert self._outcomes(ClusterJobs("laptop-none"))["namespace"] == "fail"
        assert set(self._outcomes(jobs).values()) == {"ok"}

    def test_install_brings_a_namespace_to_what_it_needs_and_no_further(self, jobs, capsys):
        def install():
            assert main(["install", "-n", jobs.namespace, "--service_account=mine", "--apply"]) == 0
            lines = capsys.readouterr().out.splitlines()
            return [line.partition(": ")[2] for line in lines[:3]]

        assert install() == ["created"] * 3
        assert install() == ["unchanged"] * 3
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{jobs.namespace}"
        jobs.cluster.patch(f"{path}/roles/mine", {"rules": []})
        assert install() == ["unchanged", "changed", "unchanged"]
        jobs.cluster.delete(f"{path}/rolebindings/mine")
        binding = installing.master_access(jobs.namespace, "other")[2]
        binding["metadata"]["name"] = "mine"
        list(apply(jobs.cluster, [binding]))
        assert install() == ["unchanged", "unchanged", "changed"]
        assert self._outcomes(jobs, "mine")["master rights"] == "ok"
