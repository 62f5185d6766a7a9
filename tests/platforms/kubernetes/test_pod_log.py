"""A pod's log over several reads: no line is lost, whatever its time, and none comes twice."""

from urllib.parse import parse_qs, urlsplit

import pytest
from support.fake_api import Answer, FakeApi
from support.pods import pod, running

from elastic.platforms.kubernetes.pod_log import PodLog


def body(*lines):
    """A log; each line begins with the second, and perhaps fraction, that it has for a stamp."""
    stamped = (line.partition(" ") for line in lines)
    return b"".join(f"2026-01-01T00:00:{at}Z {text}\n".encode() for at, _, text in stamped)


def read(*bodies, **options):
    """What each of several reads gives, and what each was asked for."""
    with FakeApi(*(Answer(body=content) for content in bodies)) as api:
        log = PodLog(api.cluster(), pod(running(), namespace="team"))
        texts = [[line.text for line in log.lines(**options)]]
        texts += [[line.text for line in log.lines()] for _ in bodies[1:]]
        asked = [parse_qs(urlsplit(seen.path).query) for seen in api.requests]
    return texts, asked


TRACEBACK = ("07.5 Traceback", "07.5   line 3", "07.5 ValueError: bad")


def test_lines_that_were_written_at_once_have_the_same_stamp():
    first, then = body(*TRACEBACK), body(*TRACEBACK, "07.5 at once too", "08.0 later")
    texts, asked = read(first, then, then)
    assert texts[0] == ["Traceback", "  line 3", "ValueError: bad"]
    assert texts[1:] == [["at once too", "later"], []]
    assert asked[1]["sinceTime"] == ["2026-01-01T00:00:07Z"]


def test_so_may_lines_that_a_tail_has_left_out():
    texts, _ = read(body(*TRACEBACK[1:]), body(*TRACEBACK, "08.0 later"), tailLines=2)
    assert texts == [["  line 3", "ValueError: bad"], ["later"]]


@pytest.mark.parametrize("early", ["07.4", "01.2"], ids=["between-streams", "clock-set-back"])
def test_a_line_may_have_an_earlier_stamp_than_the_one_before(early):
    texts, _ = read(body("07.5 one", f"{early} two", "07.6 three"), body("07.6 three", "08.0 four"))
    assert texts == [["one", "two", "three"], ["four"]]


def test_what_is_no_longer_there_hides_nothing_new():
    texts, _ = read(body(*TRACEBACK), body("08.0 of the next file"))
    assert texts[1] == ["of the next file"]
