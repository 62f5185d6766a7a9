"""What tests in the cluster find there."""

import pytest
from support.cluster import KUBECONFIG, open_cluster
from support.nodes import revive_nodes

if KUBECONFIG:
    # Before modules are imported, which skip tests where there are no nodes for them.
    revive_nodes(open_cluster())


@pytest.fixture(autouse=True)
def simulated_nodes():
    """All that the cluster has, whatever has become of them in the test before."""
    if KUBECONFIG:
        revive_nodes(open_cluster())
