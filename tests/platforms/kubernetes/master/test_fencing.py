"""Of the masters that a job has had made, one at a time holds the lease, and acts."""

import threading
import time

import pytest
from support.api_server_in_memory import NAMESPACE, InMemoryApi
from support.cluster import eventually, exists
from support.fake_api import Answer, FakeApi, refusal
from support.fence_contract import FenceContract, passes
from support.lease_fences import DURATION_S, MARGIN_S, NAME, MastersLease

from elastic.errors import PlatformError
from elastic.platforms.base import FencedError
from elastic.platforms.kubernetes.api.cluster import Lease
from elastic.platforms.kubernetes.api.resources import LEASES
from elastic.platforms.kubernetes.objects.names import TRAIN_JOBS, ResourceOwner

PATH = LEASES.path(NAMESPACE, NAME)


@pytest.fixture
def api():
    with InMemoryApi() as api:
        yield api


@pytest.fixture
def make(api):
    made = []

    def make(identity):
        made.append(MastersLease(api, identity))
        return made[-1]

    yield make
    for master in made:
        master.close()


class LeaseHarness:
    def __init__(self, make):
        self._make = make
        self._master = make("pod-1")
        self._master.fence.acquire()
        self.fence = self._master.fence
        self.lose_contact = self._master.lose_contact
        self.regain_contact = self._master.regain_contact

    def replace(self):
        self.lose_contact()
        self._make("pod-2").fence.acquire()


class TestLease(FenceContract):
    @pytest.fixture
    def harness(self, make):
        return LeaseHarness(make)


def test_the_next_master_waits_until_the_one_before_cannot_act(make):
    first, second = make("pod-1"), make("pod-2")
    first.fence.acquire()
    first.lose_contact()
    last_passed_s = []

    def act():
        while not first.ended.is_set() and not is_over.is_set():
            if passes(first.fence):
                last_passed_s[:] = [time.monotonic()]

    is_over = threading.Event()
    thread = threading.Thread(target=act)
    thread.start()
    second.fence.acquire()
    acquired_s = time.monotonic()
    is_over.set()
    thread.join()
    assert last_passed_s[0] < acquired_s - MARGIN_S / 2
    assert second.fence.has_predecessor
    assert not first.fence.has_predecessor


def test_a_master_that_hears_of_another_one_is_ended(make):
    first, second = make("pod-1"), make("pod-2")
    first.fence.acquire()
    first.lose_contact()
    second.fence.acquire()
    assert not first.ended.is_set(), "it has heard of nothing yet"
    first.regain_contact()
    eventually(first.ended.is_set)
    assert passes(second.fence)


def test_a_master_whose_pod_is_forgotten_ends_although_it_could_renew_for_ever(make):
    first, second = make("pod-1"), make("pod-2")
    first.fence.acquire()
    first.is_known = False
    eventually(first.ended.is_set)
    # Its container is started again, and the lease has not run out.
    again = make("pod-1")
    again.is_known = False
    with pytest.raises(FencedError):
        again.fence.acquire()
    assert again.ended.is_set()
    second.fence.acquire()
    assert not passes(first.fence)
    assert passes(second.fence)


def test_the_next_life_in_the_same_pod_begins_at_once(make, api):
    first = make("pod-1")
    first.fence.acquire()
    first.lose_contact()
    again = make("pod-1")
    began_s = time.monotonic()
    assert again.lease.try_hold()
    assert time.monotonic() - began_s < DURATION_S
    assert again.lease.term == 0


def test_a_master_that_lets_go_is_followed_at_once_and_acts_no_more(make):
    first, second = make("pod-1"), make("pod-2")
    first.fence.acquire()
    first.fence.release()
    assert not passes(first.fence)
    assert second.lease.try_hold()
    assert not first.ended.is_set()


def test_a_change_by_somebody_else_loses_nothing(make, api):
    """Such as an annotation, between the look and the renewal: the renewal is refused once."""
    master = make("pod-1")
    master.fence.acquire()
    api.refuse("patch", "leases", 409, "the object has been modified", "Conflict")
    renewed = api.cluster().get(PATH)["spec"]["renewTime"]
    eventually(lambda: api.cluster().get(PATH)["spec"]["renewTime"] != renewed)
    assert not master.ended.is_set()
    eventually(lambda: passes(master.fence))


def test_time_in_which_an_answer_comes_is_none_of_the_lease():
    """Others count from when the server wrote it."""
    takes_s = 0.5

    def answer(seen):
        if seen.method == "GET":
            return refusal(404, "not found", "NotFound")
        time.sleep(takes_s)
        return Answer(code=201)

    with FakeApi(answer=answer) as slow:
        lease = Lease(slow.cluster(), NAMESPACE, NAME, "pod-1", DURATION_S)
        assert lease.try_hold()
        assert lease.left_s < DURATION_S - takes_s


def test_a_right_that_is_missing_is_told_to_who_begins(make, api):
    api.deny("leases")
    with pytest.raises(PlatformError, match="leases is forbidden"):
        make("pod-1").fence.acquire()


def test_the_lease_goes_with_the_resource(api):
    kind = {"apiVersion": TRAIN_JOBS.api_version, "kind": TRAIN_JOBS.kind}
    cluster = api.cluster()
    made = cluster.create(TRAIN_JOBS.path(NAMESPACE), {**kind, "metadata": {"name": "j"}})
    resource = ResourceOwner(*kind.values(), "j", made["metadata"]["uid"])
    lease = Lease(cluster, NAMESPACE, NAME, "pod-1", DURATION_S, [resource.reference()])
    assert lease.try_hold()
    assert cluster.get(PATH)["spec"]["holderIdentity"] == "pod-1"
    cluster.delete(TRAIN_JOBS.path(NAMESPACE, "j"))
    eventually(lambda: not exists(cluster, PATH))
