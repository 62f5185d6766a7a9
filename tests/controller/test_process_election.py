"""Which of several controllers acts: one at a time, and soon one again."""

import threading
import time
from contextlib import suppress

import pytest
from support.cluster import eventually
from support.process_api import ProcessApi

from elastic.controller.run import (
    DURATION_S,
    MARGIN_S,
    RENEW_S,
    RETRY_S,
    Election,
    LeadersPace,
    LeaseLostError,
)
from elastic.platforms.kubernetes.api.cluster import AwayError, Lease, RefusedError
from elastic.platforms.kubernetes.api.transport import Pace

PATH = "/apis/coordination.k8s.io/v1/namespaces/team/leases/l"


class Line(Pace):
    """Between one client and the API server."""

    is_cut = False

    def __init__(self):
        super().__init__()
        self.is_free = threading.Event()
        self.is_free.set()

    def wait(self):
        self.is_free.wait()
        if self.is_cut:
            raise AwayError("the line is cut")


@pytest.fixture
def api():
    with ProcessApi() as api:
        yield api


@pytest.fixture
def candidate(api):
    """Make a candidate, whose lease lasts two seconds; all of them resign in the end."""
    made = []

    def make(identity, line=None):
        cluster = api.cluster(patience_s=0.0, pace=line, read_timeout_s=0.5)
        lease = Lease(cluster, "team", "l", identity, 2)
        election = Election(lease, "team/l", 2.0, renew_s=0.2, retry_s=0.1, margin_s=0.5)
        made.append(election)
        return election

    yield make
    api.is_silent = False
    for election in made:
        election._resigned.set()


def holder(api):
    return api.objects[PATH]["spec"].get("holderIdentity")


def in_background(call):
    """Run a call in a thread; gives the list that its result, or its error, is put into."""
    results = []

    def run():
        try:
            results.append(call())
        except Exception as error:  # noqa: BLE001 - handed on
            results.append(error)

    threading.Thread(target=run, daemon=True).start()
    return results


def test_a_standby_has_taken_over_within_eleven_seconds_and_a_leader_renews_thrice():
    assert RETRY_S + DURATION_S + RETRY_S <= 11
    assert DURATION_S - MARGIN_S >= 3 * RENEW_S


def test_one_leads_and_the_other_stands_by_until_it_resigns(api, candidate):
    first, second, stopping = candidate("first"), candidate("second"), threading.Event()
    assert first.win(stopping)
    waiting = in_background(lambda: second.win(stopping))
    # Longer than the lease, which is renewed.
    time.sleep(2.5)
    assert (first.is_leading, second.is_leading, waiting) == (True, False, [])
    resigned_s = time.monotonic()
    first.resign()
    assert not first.is_leading
    assert eventually(lambda: waiting) == [True]
    assert time.monotonic() - resigned_s < 1.0
    assert holder(api) == "second"


def test_who_stands_by_is_told_to_stop(candidate):
    first, second, stopping = candidate("first"), candidate("second"), threading.Event()
    assert first.win(threading.Event())
    waiting = in_background(lambda: second.win(stopping))
    stopping.set()
    assert eventually(lambda: waiting) == [False]


def test_a_leader_that_gets_no_answer_stops_before_another_leads(api, candidate):
    line = Line()
    leader, standby = candidate("leader", line), candidate("standby")
    assert leader.win(threading.Event())
    kept = in_background(lambda: leader.keep(threading.Event(), poll_s=0.05))
    leads = []
    line.is_cut = True
    won = in_background(lambda: standby.win(threading.Event()))
    while not won:
        leads.append((leader.is_leading, standby.is_leading))
        time.sleep(0.01)
    assert (True, True) not in leads
    assert (False, False) in leads
    [lost] = kept
    assert isinstance(lost, LeaseLostError)
    assert "the lease team/l is no longer held: the line is cut" in str(lost)


def test_a_leader_without_time_to_renew_blames_nobody_else(candidate):
    line = Line()
    leader = candidate("leader", line)
    assert leader.win(threading.Event())
    line.is_free.clear()
    with pytest.raises(LeaseLostError, match=r"held: no renewal was done within 1\.5 s"):
        leader.keep(threading.Event())
    line.is_free.set()


def test_a_lease_that_was_taken_away_is_lost_at_once(api, candidate):
    leader = candidate("leader")
    assert leader.win(threading.Event())
    spec = {**api.objects[PATH]["spec"], "holderIdentity": "thief"}
    api.put(PATH, {**api.objects[PATH], "spec": spec})
    stolen_s = time.monotonic()
    with pytest.raises(LeaseLostError, match=r"team/l .*another process has taken it.*starts it"):
        leader.keep(threading.Event(), poll_s=0.05)
    # With the next renewal, and not with the end of its own lease.
    assert time.monotonic() - stolen_s < 1.0
    assert not leader.is_leading


def test_a_silent_server_is_told_of_and_the_lease_lost_in_time(api, candidate):
    leader = candidate("leader")
    assert leader.win(threading.Event())
    api.is_silent = True
    began_s = time.monotonic()
    with pytest.raises(LeaseLostError, match="does not answer"):
        leader.keep(threading.Event())
    # Two seconds from the last renewal, less the margin.
    assert time.monotonic() - began_s < 2.0
    assert not leader.is_in_contact


def test_a_short_silence_changes_nothing(api, candidate):
    leader, stopping = candidate("leader"), threading.Event()
    assert leader.win(stopping)
    api.is_silent = True
    eventually(lambda: not leader.is_in_contact)
    api.is_silent = False
    eventually(lambda: leader.is_in_contact)
    assert leader.is_leading
    stopping.set()
    leader.keep(stopping)


def test_who_begins_without_an_answer_waits_for_one(api, candidate, caplog):
    api.is_silent = True
    won = in_background(lambda: candidate("patient").win(threading.Event()))
    eventually(lambda: "cannot be asked for" in caplog.text)
    assert won == []
    api.is_silent = False
    assert eventually(lambda: won) == [True]


def test_a_right_that_is_lacking_ends_the_waiting(api, candidate):
    api.forbidden = lambda seen: True
    with pytest.raises(RefusedError, match="not permitted"):
        candidate("nobody").win(threading.Event())


def test_who_resigned_renews_no_more(api, candidate):
    leader = candidate("leader")
    assert leader.win(threading.Event())
    leader.resign()
    api.requests.clear()
    time.sleep(0.6)
    assert api.said() == []


def test_nothing_is_sent_by_who_leads_no_more(api):
    leads = True
    cluster = api.cluster(pace=LeadersPace(lambda: leads))
    with suppress(RefusedError):
        cluster.get("/api/v1/namespaces/team/pods/p")
    assert len(api.requests) == 1
    leads = False
    with pytest.raises(LeaseLostError):
        cluster.delete("/api/v1/namespaces/team/pods/p")
    assert len(api.requests) == 1
