"""`KubernetesReplicaRunner` against a real cluster."""

from support.cluster import cluster, harness, namespace, needs_cluster, owner
from support.platform_contract import ReplicaRunnerContract

__all__ = ["cluster", "harness", "namespace", "owner"]
pytestmark = needs_cluster


class TestKubernetesReplicaRunner(ReplicaRunnerContract):
    pass
