"""A pod's log from a moment on: asked in whole seconds, given to the fraction."""

from urllib.parse import parse_qs, urlsplit

import pytest
from support.fake_api import Answer, FakeApi
from support.pods import pod, running

from elastic.platforms.kubernetes.job.logs import follow_logs, read_logs

NOON_S = 1769860800.0
BODY = b"""\
2026-01-31T12:00:05.1Z early
2026-01-31T12:00:05.25Z just
2026-01-31T12:00:06.123456789Z late
"""


def now(cluster, made):
    return read_logs(cluster, [made], [], None, NOON_S + 5.25)


def followed(cluster, made):
    lines = follow_logs(cluster, lambda: ([made], False), [], None, NOON_S + 5.25)
    return [next(lines), next(lines)]


@pytest.mark.parametrize("read", [now, followed])
def test_only_what_was_written_since_with_its_time(read):
    with FakeApi(Answer(body=BODY)) as api:
        lines = list(read(api.cluster(), pod(running(), namespace="team")))
        asked = parse_qs(urlsplit(api.requests[0].path).query)
    assert [(line.text, line.stamp) for line in lines] == [
        ("just", "2026-01-31T12:00:05.25Z"), ("late", "2026-01-31T12:00:06.123456789Z"),
    ]  # fmt: skip
    assert asked["sinceTime"] == ["2026-01-31T12:00:05Z"]
