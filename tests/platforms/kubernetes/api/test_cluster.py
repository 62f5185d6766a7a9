"""What is sent to an API server, what is sent again, and what is said of its answers."""

import random
import socket
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from support.api_proxy import CountingPace
from support.fake_api import Answer, FakeApi, refusal

from elastic.platforms.kubernetes.api.cluster import AwayError, RefusedError
from elastic.platforms.kubernetes.api.transport import LAST_PAUSE_S, pause_before_retry

MAPS = "/api/v1/namespaces/team/configmaps"
MAP = {"metadata": {"name": "a", "labels": {"app": "elastic", "elastic-submission": "1"}}}


class TestWhatIsSentAgain:
    @pytest.mark.parametrize("code", [429, 500, 502, 503, 504])
    @pytest.mark.parametrize("method", ["get", "create", "patch", "delete"])
    def test_what_a_busy_server_refuses(self, method, code):
        with FakeApi(refusal(code), refusal(code), Answer(body=MAP)) as api:
            arguments = {"create": (MAPS, MAP), "patch": (f"{MAPS}/a", {})}
            getattr(api.cluster(), method)(*arguments.get(method, (f"{MAPS}/a",)))
            assert len(api.requests) == 3

    @pytest.mark.parametrize("code", [400, 401, 403, 404, 409, 410, 422])
    def test_not_what_is_refused_for_good(self, code):
        with FakeApi(refusal(code)) as api:
            with pytest.raises(RefusedError) as refused:
                api.cluster().get(MAPS)
            assert (refused.value.code, len(api.requests)) == (code, 1)

    def test_a_creation_that_met_a_quota_in_change(self):
        words = "Operation cannot be fulfilled on resourcequotas"
        with FakeApi(refusal(409, words, "Conflict"), Answer(body=MAP)) as api:
            assert api.cluster().create(MAPS, MAP) == MAP
            assert api.said() == [f"POST {MAPS}"] * 2
        with FakeApi(refusal(409, words, "Conflict")) as api:
            with pytest.raises(RefusedError, match=words) as refused:
                api.cluster(patience_s=0.0).create(MAPS, MAP)
            assert not refused.value.is_taken
        with FakeApi(refusal(409, words, "Conflict")) as api:
            with pytest.raises(RefusedError):
                api.cluster().patch(f"{MAPS}/a", {})
            assert len(api.requests) == 1

    def test_as_late_as_the_server_asks(self):
        with FakeApi(refusal(429, Retry_After="1"), Answer(body=MAP)) as api:
            assert api.cluster().get(MAPS) == MAP
            first, second = api.requests
            assert second.time_s - first.time_s >= 1.0

    def test_not_where_the_server_asks_for_more_patience_than_there_is(self):
        with FakeApi(refusal(503, "full", Retry_After="60")) as api:
            began_s = time.monotonic()
            with pytest.raises(RefusedError, match="full"):
                api.cluster(patience_s=5.0).get(MAPS)
            assert (len(api.requests), time.monotonic() - began_s < 2.0) == (1, True)

    def test_a_connection_that_breaks(self):
        with FakeApi(Answer(cut=True), Answer(body=MAP)) as api:
            assert api.cluster().get(MAPS) == MAP

    def test_until_patience_ends_where_nobody_listens(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with FakeApi() as api:
            pace = CountingPace()
            cluster = api.cluster(patience_s=0.8, pace=pace)
            cluster._transport.server = f"http://127.0.0.1:{port}"
            began_s = time.monotonic()
            with pytest.raises(AwayError, match=rf"{port} \(from a test\) does not answer: .*refu"):
                cluster.get(MAPS)
        assert pace.requests >= 3
        assert 0.8 <= time.monotonic() - began_s < 3.0

    def test_a_watch_is_not(self):
        with FakeApi(refusal(503)) as api:
            with pytest.raises(RefusedError):
                list(api.cluster().lines(MAPS, {"watch": "true"}))
            assert len(api.requests) == 1

    def test_a_watch_in_silence_is_given_up(self):
        with FakeApi(Answer(silent=True)) as api, pytest.raises(AwayError, match="not answer"):
            list(api.cluster().lines(MAPS, {"watch": "true"}, read_timeout_s=0.2))

    def test_pauses_grow_to_a_limit_and_end_with_the_time_there_is(self):
        rng = random.Random(0)

        def pause(num_tries, left_s=1000.0):
            return pause_before_retry(AwayError("away"), num_tries, left_s, rng)

        assert 0.1 <= pause(1) <= 0.2
        assert 0.4 <= pause(3) <= 0.8
        assert all(LAST_PAUSE_S / 2 <= pause(n) <= LAST_PAUSE_S for n in (6, 60, 6000))
        assert pause(6, left_s=0.3) == 0.3
        assert pause(6, left_s=0.0) is None


def test_what_is_applied_is_told_as_whose_it_is():
    with FakeApi(Answer(body=MAP)) as api:
        assert api.cluster().apply(f"{MAPS}/a", MAP, "elastic") == MAP
        [seen] = api.requests
    assert (seen.method, seen.path) == ("PATCH", f"{MAPS}/a?fieldManager=elastic&force=false")
    assert (seen.body, seen.headers["Content-Type"]) == (MAP, "application/apply-patch+yaml")


class TestWhatMayNotHappenTwice:
    """A request that got through while its answer was lost, and is sent again."""

    def create(self, stored):
        answers = (Answer(cut=True), refusal(409, "exists", "AlreadyExists"), Answer(body=stored))
        with FakeApi(*answers) as api:
            created = api.cluster().create(MAPS, MAP)
            return created, api.said()

    def test_what_was_created_is_found(self):
        stored = {"metadata": {**MAP["metadata"], "uid": "u"}}
        created, said = self.create(stored)
        assert created == stored
        assert said == [f"POST {MAPS}", f"POST {MAPS}", f"GET {MAPS}/a"]

    @pytest.mark.parametrize("is_ours", [True, False], ids=["ours", "theirs"])
    def test_what_may_be_changed_but_not_read_is_looked_at_by_a_change_of_nothing(self, is_ours):
        labels = MAP["metadata"]["labels"] if is_ours else {"app": "elastic"}
        stored = {"metadata": {"name": "a", "labels": labels, "uid": "u"}}
        by_method = {
            "POST": refusal(409, "exists", "AlreadyExists"),
            "GET": refusal(403, 'User "jane" cannot get resource "secrets"'),
            "PATCH": Answer(body=stored),
        }
        with FakeApi(answer=lambda seen: by_method[seen.method]) as api:
            if is_ours:
                assert api.cluster().create(MAPS, MAP) == stored
            else:
                with pytest.raises(RefusedError, match="exists"):
                    api.cluster().create(MAPS, MAP)
            assert (api.requests[-1].method, api.requests[-1].body) == ("PATCH", {})

    def test_what_others_have_created_is_theirs(self):
        theirs = {"metadata": {"name": "a", "labels": {"app": "elastic"}}}
        with pytest.raises(RefusedError, match="exists"):
            self.create(theirs)

    def test_a_dry_run_is_told_the_conflict(self):
        with FakeApi(refusal(409, "exists")) as api:
            with pytest.raises(RefusedError, match="exists"):
                api.cluster().create(MAPS, MAP, dry_run=True)
            assert api.said() == [f"POST {MAPS}?dryRun=All&fieldValidation=Strict"]

    def test_what_is_deleted_already_is_deleted(self):
        with FakeApi(Answer(cut=True), refusal(404)) as api:
            api.cluster().delete(f"{MAPS}/a")
            assert len(api.requests) == 2

    def test_another_of_the_same_name_is_left_alone(self):
        with FakeApi(refusal(409, "uid differs")) as api:
            api.cluster().delete(f"{MAPS}/a", grace_s=0.2, uid="u")
            assert api.requests[0].body == {
                "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
                "gracePeriodSeconds": 1, "preconditions": {"uid": "u"},
            }  # fmt: skip
            with pytest.raises(RefusedError, match="uid differs"):
                api.cluster().delete(f"{MAPS}/a")


class TestWhatIsSaid:
    @pytest.mark.parametrize(
        ("answer", "words"),
        [
            (refusal(401, "Unauthorized"), "does not know who you are (Unauthorized): renew the "),
            (
                refusal(403, 'pods is forbidden: User "jane" cannot list resource "pods"'),
                'not permitted: pods is forbidden: User "jane" cannot list resource "pods": ask ',
            ),
            (refusal(403, "exceeded quota: none"), f"exceeded quota: none (GET {MAPS}: 403)"),
            (Answer(400, b"<html>nginx"), f"Bad Request (GET {MAPS}: 400)"),
        ],
    )
    def test_of_a_refusal(self, answer, words):
        with FakeApi(answer) as api, pytest.raises(RefusedError) as refused:
            api.cluster().get(MAPS)
        assert words in str(refused.value)

    @pytest.mark.parametrize(
        ("code", "body"),
        [
            (200, b"<html>welcome"),
            (200, b"[]"),
            (200, b"7"),
            (404, b"<html>no"),
            (404, b'{"message": "no such page"}'),
        ],
    )
    def test_of_a_server_that_is_none(self, code, body):
        words = r"not look like a Kubernetes API server: check the .* in a test, or .* --context"
        with FakeApi(Answer(code, body)) as api, pytest.raises(AwayError, match=words):
            api.cluster(patience_s=0.0).get(MAPS)


def test_times_are_the_servers_as_long_as_it_tells_them():
    with FakeApi(Answer(body=MAP)) as api:
        cluster = api.cluster()
        assert cluster.now_s() == pytest.approx(time.time(), abs=1.0)
        api.date = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
        cluster.get(MAPS)
        assert cluster.now_s() == pytest.approx(time.time() + 3600.0, abs=2.0)
        api.date = "soon"
        cluster.get(MAPS)
        assert cluster.now_s() == pytest.approx(time.time() + 3600.0, abs=2.0)


def test_a_later_time_is_never_told_as_an_earlier_one():
    with FakeApi(Answer(body=MAP)) as api:
        cluster = api.cluster()
        told = []
        until_s = time.monotonic() + 1.2
        # Over the end of a second, which is all that the server tells.
        while time.monotonic() < until_s:
            cluster.get(MAPS)
            told.append(cluster.now_s())
            time.sleep(0.02)
    assert told == sorted(told)
    assert abs(told[-1] - time.time()) < 1.5
