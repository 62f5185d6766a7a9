"""Leases in a real API server: one holder at a time, and always one in the end."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.api_proxy import ApiProxy, CountingPace, cluster_through
from support.cluster import KUBECONFIG, cluster, eventually, namespace, needs_cluster

from elastic.platforms.kubernetes.api.cluster import Lease
from elastic.platforms.kubernetes.api.resources import LEASES
from elastic.platforms.kubernetes.api.transport import AwayError

__all__ = ["cluster", "namespace"]
pytestmark = needs_cluster


@pytest.fixture
def contender(cluster, namespace, request):
    def make(identity, duration_s=15, by=cluster):
        name = request.node.name.replace("_", "-").replace("[", "-").strip("]")[:50].strip("-")
        return Lease(by, namespace, name, identity, duration_s)

    return make


def test_of_two_one_holds_it_until_it_lets_go(contender):
    first, second = contender("first"), contender("second")
    assert first.try_hold()
    assert not second.try_hold()
    assert (first.is_held, second.is_held) == (True, False)
    assert first.try_hold()
    first.release()
    assert not first.is_held
    assert second.try_hold()
    assert not first.try_hold()
    assert (first.term, second.term) == (0, 1)


def test_who_lets_go_of_what_another_holds_takes_nothing_from_it(contender):
    first, second = contender("first"), contender("second")
    assert first.try_hold()
    second.release()
    assert not second.try_hold()


def test_one_that_is_not_renewed_goes_to_the_next_and_not_before_its_time(contender):
    first, second = contender("first", duration_s=2), contender("second", duration_s=2)
    assert first.try_hold()
    held_s = time.monotonic()
    eventually(second.try_hold)
    assert time.monotonic() - held_s > 2.0
    assert not first.is_held
    assert not first.try_hold()


def test_one_that_is_renewed_stays_with_its_holder(contender):
    first, second = contender("first", duration_s=2), contender("second", duration_s=2)
    for _ in range(8):
        assert first.try_hold()
        assert not second.try_hold()
        time.sleep(0.5)


def test_of_many_who_begin_at_once_one_gets_it(contender):
    contenders = [contender(f"c{i}") for i in range(8)]
    barrier = threading.Barrier(len(contenders))

    def go(lease):
        barrier.wait()
        return lease.try_hold()

    with ThreadPoolExecutor(len(contenders)) as pool:
        assert sum(pool.map(go, contenders)) == 1


def test_who_lost_the_server_holds_it_for_no_longer_than_others_wait(contender, cluster):
    proxy = ApiProxy(cluster.server)
    try:
        lost = contender("lost", 2, cluster_through(proxy, KUBECONFIG, CountingPace()))
        other = contender("other", 2)
        assert lost.try_hold()
        assert not other.try_hold()
        proxy.shut()
        with pytest.raises(AwayError):
            lost.try_hold()
        eventually(other.try_hold)
        assert not lost.is_held
    finally:
        proxy.close()


def test_what_is_written_is_what_other_tools_read(contender, cluster, namespace):
    assert contender("told").try_hold()
    leases = cluster.get(LEASES.path(namespace))["items"]
    (spec,) = [each["spec"] for each in leases if each["spec"].get("holderIdentity") == "told"]
    assert (spec["leaseDurationSeconds"], spec["leaseTransitions"]) == (15, 0)
    assert spec["renewTime"] >= spec["acquireTime"]
