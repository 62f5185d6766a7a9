"""A cluster is looked at by what its API server says, also where it does not know all types."""

import pytest
from support.api_server_in_memory import InMemoryApi

from elastic.controller.snapshots.looking import check_kinds, look, look_back
from elastic.controller.snapshots.reading import RESOURCES
from elastic.errors import DescriptionError, JobSpecError, PlatformError
from elastic.platforms.kubernetes.api.resources import NODES, PODS

WORKERS = {
    "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}]},
}


@pytest.fixture
def api():
    with InMemoryApi() as api:
        cluster = api.cluster()
        for kind in RESOURCES.values():
            api.serve(kind)
        api.uninstall("tfjobs")
        api.uninstall("sharepods")
        node = {"metadata": {"name": "n0"}, "status": {"allocatable": {"cpu": "4"}}}
        cluster.create(NODES.path(), {"apiVersion": "v1", "kind": "Node", **node})
        for namespace in ("team", "other"):
            _create(cluster, namespace)
        yield api


def _create(cluster, namespace):
    job = RESOURCES["elasticjob"]
    specs = {"Worker": {"replicas": 1, "template": WORKERS}}
    cluster.create(
        job.path(namespace),
        {
            "apiVersion": job.api_version,
            "kind": job.kind,
            "metadata": {"name": "a", "namespace": namespace},
            "spec": {"minReplicas": 1, "maxReplicas": 3, "replicaSpecs": specs},
        },
    )
    labels = {
        "job-name": "a",
        "group-name": "elastic.pytorch.org",
        "replica-type": "worker",
    }
    cluster.create(
        PODS.path(namespace),
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "a-worker-0", "namespace": namespace, "labels": labels},
            "spec": {**WORKERS["spec"], "nodeName": "n0"},
        },
    )


def test_jobs_of_a_namespace_and_the_pods_of_all(api):
    seen = look(api.cluster(), "team")
    assert [job.key for job in seen.jobs] == ["ElasticJob/team/a"]
    assert seen.jobs[0].workers.placement == {"n0": 1}
    assert [pod.node for pod in seen.pods] == ["n0"]
    assert [node.name for node in seen.nodes] == ["n0"]


def test_jobs_of_all_namespaces(api):
    seen = look(api.cluster(), None)
    assert sorted(job.namespace for job in seen.jobs) == ["other", "team"]
    assert seen.pods == ()


def test_jobs_of_other_kinds_are_pods_like_others(api):
    seen = look(api.cluster(), None, ["trainingjob"])
    assert (seen.jobs, len(seen.pods)) == ((), 2)


def test_without_the_right_to_see_the_nodes_there_is_no_snapshot(api):
    api.deny("nodes", "list")
    with pytest.raises(PlatformError, match="nodes is forbidden"):
        look(api.cluster(), "team")


def test_what_jobs_did_is_asked_of_all_kinds_that_the_cluster_knows(api):
    with pytest.raises(DescriptionError, match="has succeeded"):
        look_back(api.cluster(), "team", 0)


def test_an_unknown_kind_is_named():
    with pytest.raises(JobSpecError, match=r"--kinds tfjobs is no kind .* did you mean tfjob"):
        check_kinds(["tfjobs"])
