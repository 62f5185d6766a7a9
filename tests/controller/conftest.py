"""An API server in memory for each test that asks for a world."""

import pytest
from support.api_server_in_memory import InMemoryApi
from support.kubelet_in_memory import Kubelet
from support.toy_kind import World


@pytest.fixture
def world():
    with InMemoryApi() as api:
        kubelet = Kubelet(api).start()
        yield World(api, kubelet)
        kubelet.close()
