"""What a controller needs in a cluster: printed, applied, and no more than that."""

import json
import re
import threading

import pytest
import yaml
from support.process_api import JOBS, OTHERS, ProcessApi, definition
from support.process_controller import KINDS, parts

from elastic.cli.main import main
from elastic.controller import assembly
from elastic.controller.assembly import assembled as real_parts
from elastic.controller.installing import Installation, manifests
from elastic.controller.machinery.registration import full_name, register
from elastic.controller.settings import NO_AUTOSCALING, Autoscaling

PROBES = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr(assembly, "assembled", parts)


@pytest.fixture
def api():
    with ProcessApi() as api:
        yield api


@pytest.fixture
def install(capsys, api, tmp_path):
    """Run the command; gives its exit code, output and errors."""
    kubeconfig = api.kubeconfig(tmp_path / "kubeconfig")

    def call(*flags):
        code = main(["install", "--controller", f"--kubeconfig={kubeconfig}", *flags])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def installation(**settings):
    made = parts()
    return Installation("team", KINDS, made.definitions(), **settings)


def objects(**settings):
    return {(m["kind"], m["metadata"]["name"]): m for m in manifests(installation(**settings))}


def rights(role):
    """As (group, resource, verb, name of the only object or None)."""
    return {
        (group, resource, verb, name)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [None])
    }


GROUP = JOBS.group
ON_JOBS = {
    *((GROUP, kind, verb, None) for kind in ("testjobs", "otherjobs")
      for verb in ("get", "list", "watch", "delete")),
    *((GROUP, f"{kind}/status", "patch", None) for kind in ("testjobs", "otherjobs")),
    *((GROUP, f"{kind}/finalizers", "update", None) for kind in ("testjobs", "otherjobs")),
    *((group, child, verb, None)
      for group, child in (("", "pods"), ("parts.elastic.dev", "widgets"))
      for verb in ("get", "list", "watch", "create", "patch", "delete")),
    ("", "events", "create", None), ("", "events", "patch", None),
}  # fmt: skip
ON_LEASES = {
    ("coordination.k8s.io", "leases", "create", None),
    ("coordination.k8s.io", "leases", "get", "elastic-controller"),
    ("coordination.k8s.io", "leases", "patch", "elastic-controller"),
}
ON_VIEW = {("", kind, verb, None) for kind in ("nodes", "pods") for verb in ("list", "watch")}


class TestRights:
    def test_in_one_namespace(self):
        made = objects()
        assert rights(made["Role", "elastic-controller"]) == ON_JOBS | ON_LEASES
        assert rights(made["ClusterRole", "elastic-controller-team"]) == ON_VIEW

    def test_in_all_namespaces(self):
        made = objects(all_namespaces=True)
        assert rights(made["Role", "elastic-controller"]) == ON_LEASES
        assert rights(made["ClusterRole", "elastic-controller-team"]) == ON_JOBS | ON_VIEW

    def test_without_a_kind_that_sees_the_cluster_nothing_of_it_is_needed(self):
        made = Installation("team", {"testjob": KINDS["testjob"]}, [definition(JOBS)])
        kinds = {manifest["kind"] for manifest in manifests(made)}
        assert not {"ClusterRole", "ClusterRoleBinding"} & kinds
        assert "otherjobs" not in json.dumps(manifests(made))

    def test_whoever_decides_sizes_may_change_them_and_see_all_nodes_and_pods(self):
        kinds = real_parts().kinds(["elasticjob", "trainingjob"])

        def made(autoscaling):
            types = real_parts().definitions()
            whole = manifests(Installation("team", kinds, types, autoscaling=autoscaling))
            return {(m["kind"], m["metadata"]["name"]): m for m in whole}

        off, on = made(NO_AUTOSCALING), made(Autoscaling("fulfillment", max_load=0.9))
        role = ("Role", "elastic-controller")
        more = rights(on[role]) - rights(off[role])
        assert more == {("elastic.pytorch.org", "elasticjobs", "patch", None)}
        assert rights(on["ClusterRole", "elastic-controller-team"]) == ON_VIEW
        assert ("ClusterRole", "elastic-controller-team") not in off
        pod = on["Deployment", "elastic-controller"]["spec"]["template"]["spec"]
        flags = pod["containers"][0]["args"]
        assert flags[-2:] == ["--autoscale=fulfillment", "--max_load=0.9"]

    @pytest.mark.parametrize("all_namespaces", [False, True])
    def test_every_role_is_bound_to_the_account_of_the_pods(self, all_namespaces):
        made = objects(all_namespaces=all_namespaces)
        account = made["Deployment", "elastic-controller"]["spec"]["template"]["spec"][
            "serviceAccountName"
        ]
        assert ("ServiceAccount", account) in made
        for kind, name in made:
            if kind in ("Role", "ClusterRole"):
                binding = made[f"{kind}Binding", name]
                assert binding["roleRef"]["kind"] == kind
                assert binding["roleRef"]["name"] == name
                (subject,) = binding["subjects"]
                assert subject == {
                    "kind": "ServiceAccount", "name": account, "namespace": "team",
                }  # fmt: skip


class TestDeployment:
    def test_it_runs_twice_as_nobody_and_writes_nowhere(self):
        spec = objects()["Deployment", "elastic-controller"]["spec"]
        assert spec["replicas"] == 2
        labels = spec["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"].items() <= labels.items()
        pod = spec["template"]["spec"]
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["runAsUser"] > 0
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }
        assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/tmp"}
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}

    def test_its_probes_and_scrapes_go_where_it_listens(self):
        template = objects()["Deployment", "elastic-controller"]["spec"]["template"]
        (container,) = template["spec"]["containers"]
        (port,) = container["ports"]
        assert template["metadata"]["annotations"]["prometheus.io/port"] == str(
            port["containerPort"]
        )
        for probe, path in PROBES.items():
            assert container[probe]["httpGet"] == {"path": path, "port": port["name"]}

    def test_a_start_may_take_longer_than_what_counts_as_hanging(self):
        template = objects()["Deployment", "elastic-controller"]["spec"]["template"]
        (container,) = template["spec"]["containers"]
        patience_s = {
            name: container[name]["periodSeconds"] * container[name]["failureThreshold"]
            for name in PROBES
        }
        assert patience_s["startupProbe"] >= 300 > 60 >= patience_s["livenessProbe"]

    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            ({}, []),
            ({"all_namespaces": True}, ["--all_namespaces"]),
            ({"are_all": False}, ["--kinds=testjob,otherjob"]),
        ],
    )
    def test_its_command_line_is_one_that_elastic_takes(self, settings, expected, capsys):
        deployment = objects(**settings)["Deployment", "elastic-controller"]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert container["args"] == ["--namespace=team", *expected]
        assert container["command"] == ["python", "-m", "elastic", "controller"]
        # No file of that name: the command line has been read by then.
        assert main(["controller", *container["args"], "--kubeconfig=/none"]) == 1
        assert "kubeconfig /none is not there" in capsys.readouterr().err


class TestCommand:
    def test_a_dry_run_prints_it_all_and_changes_nothing(self, install, api):
        code, out, err = install("--dry_run", "--image=registry/elastic:7")
        assert code == 0
        assert err.startswith("note: nothing has been changed: leave --dry_run out")
        assert list(yaml.safe_load_all(out)) == manifests(installation(image="registry/elastic:7"))
        assert api.requests == []

    def test_applied_twice_it_is_unchanged_the_second_time(self, install, api):
        kinds = {"CustomResourceDefinition": 2, "Deployment": 1, "ClusterRole": 1, "Role": 1}
        code, out, err = install()
        assert (code, err) == (0, f"note: applies this to namespace team of {api.url}\n")
        assert {line.partition(": ")[2] for line in out.splitlines()[:-1]} == {"created"}
        assert {kind: len(api.of_kind(kind)) for kind in kinds} == kinds
        assert out.endswith("the controller of testjob, otherjob is installed in namespace team\n")
        assert {line.partition(": ")[2] for line in install()[1].splitlines()[:-1]} == {"unchanged"}
        assert "Deployment elastic-controller: changed" in install("--image=other")[1]

    def test_the_namespace_comes_first(self, install, api):
        assert install("-n", "new", "--create_namespace")[0] == 0
        assert install("--dry_run", "-n", "new", "--create_namespace")[1].startswith(
            "apiVersion: v1\nkind: Namespace\n"
        )

    def test_a_namespace_that_is_not_there_is_told_before_anything_is_applied(self, install, api):
        code, out, err = install("-n", "nowhere")
        assert (code, out, api.objects) == (1, "", {})
        assert "there is no namespace 'nowhere'" in err
        assert "add --create_namespace" in err

    def test_some_kinds_only(self, install):
        code, out, _ = install("--dry_run", "--kinds", "OtherJob")
        assert code == 0
        names = [each["metadata"]["name"] for each in yaml.safe_load_all(out)]
        assert "otherjobs.test.elastic.dev" in names
        assert "testjobs.test.elastic.dev" not in names
        assert "--kinds=otherjob" in out

    def test_a_type_that_another_controller_brought_is_left_alone(self, install, api):
        api.put(f"{CRDS}/{full_name(OTHERS)}", definition(OTHERS))
        code, out, err = install()
        assert (code, out) == (1, "")
        assert "another controller's objects are of the same type: otherjob" in err
        assert "--kinds testjob" in err
        assert {seen.method for seen in api.requests} == {"GET"}
        assert install("--kinds=testjob")[0] == 0

    @pytest.mark.parametrize(
        ("argv", "message"),
        [
            (
                ["--controller", "--dry_run", "--kinds=testjop"],
                "no kind 'testjop': did you mean testjob?",
            ),
            (
                ["--controller", "--dry_run", "--kinds=zzz"],
                "no kind 'zzz': there are testjob, otherjob",
            ),
            (["--controller", "--submitter=jane"], "--submitter does not go with --controller"),
            (["--all_namespaces"], "--all_namespaces means nothing without --controller"),
            (["--kinds=testjob"], "--kinds means nothing without --controller"),
            (["--apply", "--dry_run"], "exclude each other"),
        ],
    )
    def test_what_makes_no_sense_is_a_usage_error(self, argv, message, capsys):
        assert main(["install", "-n", "team", *argv]) == 2
        assert re.search(f"^error: .*{re.escape(message)}", capsys.readouterr().err)


class TestControllerCommand:
    @pytest.mark.parametrize(
        ("argv", "code", "message"),
        [
            (["--kinds=zzz"], 2, "--kinds: there is no kind 'zzz'"),
            (["--kubeconfig=/nowhere"], 1, "kubeconfig /nowhere is not there"),
            (["--port=70000"], 2, "70000 is not in the range"),
            (["--num_workers=0"], 2, "0 is not in the range"),
            (["--requests_per_second=0"], 2, "0.0 is not in the range"),
            ([], 1, "no service account): name a --kubeconfig"),
        ],
    )
    def test_mistakes_are_told_in_a_line(self, argv, code, message, capsys):
        assert main(["controller", *argv]) == code
        err = capsys.readouterr().err
        assert message in err
        assert "Traceback" not in err


class TestRegistration:
    def test_what_becomes_served_late_is_waited_for(self, api):
        cluster, stopping = api.cluster(), threading.Event()
        made = [definition(JOBS)]
        late = {**made[0], "spec": {**made[0]["spec"], "versions": []}}
        threading.Timer(0.5, lambda: api.put(f"{CRDS}/{full_name(JOBS)}", made[0])).start()
        assert register(cluster, [JOBS], [late], "", stopping) == []

    def test_what_never_is_served_is_returned(self, api):
        late = definition(JOBS)
        late["spec"]["versions"] = []
        found = register(api.cluster(), [JOBS], [late], "", threading.Event(), patience_s=0.3)
        assert found == [JOBS]
