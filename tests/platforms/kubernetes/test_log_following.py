"""Logs that are followed, against a server of this process."""

from urllib.parse import parse_qs, urlsplit

import pytest
from support.fake_api import Answer, FakeApi
from support.pods import pod, running

from elastic.platforms.kubernetes import log_following
from elastic.platforms.kubernetes.log_following import follow_logs

LINE = b"2026-01-01T00:00:07.5Z step 1\n"


@pytest.fixture(autouse=True)
def _hurry(monkeypatch):
    monkeypatch.setattr(log_following, "POLL_S", 0.05)


def test_a_tail_counts_until_something_of_the_log_was_read():
    made = pod(running(), namespace="team")
    with FakeApi(Answer(cut=True), Answer(body=LINE)) as api:
        lines = follow_logs(api.cluster(), lambda: ([made], False), [], 5)
        assert next(lines).text == "step 1"
        asked = [parse_qs(urlsplit(seen.path).query) for seen in api.requests]
    assert [query["tailLines"] for query in asked[:2]] == [["5"], ["5"]]
