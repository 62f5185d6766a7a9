"""Logs that are followed, against a server of this process."""

import threading
import time
from urllib.parse import parse_qs, urlsplit

import pytest
from support.fake_api import Answer, FakeApi
from support.pods import pod, running, terminated

from elastic.platforms.kubernetes.api.cluster import AwayError
from elastic.platforms.kubernetes.job import logs
from elastic.platforms.kubernetes.job.logs import follow_logs

LINE = b"2026-01-01T00:00:07.5Z step 1\n"


@pytest.fixture(autouse=True)
def _hurry(monkeypatch):
    monkeypatch.setattr(logs, "POLL_S", 0.05)
    monkeypatch.setattr(logs, "FAREWELL_S", 0.2)


def test_a_tail_counts_until_something_of_the_log_was_read():
    made = pod(running(), namespace="team")
    with FakeApi(Answer(cut=True), Answer(body=LINE)) as api:
        lines = follow_logs(api.cluster(), lambda: ([made], False), [], 5)
        assert next(lines).text == "step 1"
        asked = [parse_qs(urlsplit(seen.path).query) for seen in api.requests]
    assert [query["tailLines"] for query in asked[:2]] == [["5"], ["5"]]


def test_an_api_server_that_is_away_for_a_while_ends_nothing():
    made = pod(running(), namespace="team")
    looks = iter([([made], False), AwayError("away"), AwayError("away")])

    def look():
        match next(looks, ([made], False)):
            case AwayError() as error:
                raise error
            case seen:
                return seen

    log = [Answer(cut=True)] * 3 + [Answer(body=LINE)]
    with FakeApi(*log) as api:
        assert next(follow_logs(api.cluster(), look, [], None)).text == "step 1"


class TestAJobThatHasEnded:
    def test_what_its_containers_have_written_is_read_however_slowly_it_comes(self):
        made = pod(terminated(0), namespace="team")
        is_late, ended_s = threading.Event(), time.monotonic()

        def look():
            if time.monotonic() - ended_s > 2 * logs.FAREWELL_S:
                is_late.set()
            return [made], True

        def answer(_):
            is_late.wait(10.0)
            return Answer(body=LINE)

        with FakeApi(answer=answer) as api:
            lines = [line.text for line in follow_logs(api.cluster(), look, [], None)]
            is_late.set()
        assert lines == ["step 1"]

    @pytest.mark.parametrize("status", [running(), terminated(0)], ids=["runs", "has-ended"])
    def test_one_of_which_nothing_comes_is_not_waited_for(self, status, monkeypatch):
        monkeypatch.setattr(logs, "SILENCE_S", 0.5)
        made = pod(status, namespace="team")
        with FakeApi(Answer(silent=True)) as api:
            assert list(follow_logs(api.cluster(), lambda: ([made], True), [], None)) == []
