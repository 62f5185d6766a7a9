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


LONGEST = (
    "test_controlled_jobs.py",
    "test_masters.py",
    "test_first_job.py",
    "test_controlled_seeds.py",
)
"""Modules of minutes. They begin first: several run at once, and all wait for the last to end."""


def pytest_collection_modifyitems(items):
    items.sort(key=_turn)


def _turn(item):
    name = item.path.name
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)
