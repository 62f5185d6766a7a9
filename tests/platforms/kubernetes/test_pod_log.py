"""A pod's log over several reads: no line is lost, whatever its time, and none comes twice."""

from urllib.parse import parse_qs, urlsplit

import pytest
from support.fake_api import Answer, FakeApi
from support.pods import pod, running

from elastic.platforms.kubernetes.pod_log import ExcuseError, PodLog

DATE = "Thu, 01 Jan 2026 00:00:07 GMT"
EXCUSE = b"failed to try resolving symlinks in path\n"


def body(*lines):
    """A log; each line begins with the second, and perhaps fraction, that it has for a stamp."""
    stamped = (line.partition(" ") for line in lines)
    return b"".join(f"2026-01-01T00:00:{at}Z {text}\n".encode() for at, _, text in stamped)


def read(*bodies, tail=None):
    """What each of several reads gives, and what each was asked for."""
    with FakeApi(Answer(), *(Answer(body=content) for content in bodies)) as api:
        api.date = DATE
        cluster = api.cluster()
        # Whose clock it is, is known from an answer.
        cluster.get("/version")
        log = PodLog(cluster, pod(running(), namespace="team"), tail=tail)
        texts = []
        for _ in bodies:
            try:
                texts.append([line.text for line in log.lines()])
            except ExcuseError:
                texts.append(None)
        asked = [parse_qs(urlsplit(seen.path).query) for seen in api.requests[1:]]
    return texts, asked


TRACEBACK = ("07.5 Traceback", "07.5   line 3", "07.5 ValueError: bad")


def test_lines_that_were_written_at_once_have_the_same_stamp():
    first, then = body(*TRACEBACK), body(*TRACEBACK, "07.5 at once too", "08.0 later")
    texts, asked = read(first, then, then)
    assert texts[0] == ["Traceback", "  line 3", "ValueError: bad"]
    assert texts[1:] == [["at once too", "later"], []]
    assert asked[1]["sinceTime"] == ["2026-01-01T00:00:07Z"]


def test_so_may_lines_that_a_tail_has_left_out():
    texts, _ = read(body(*TRACEBACK[1:]), body(*TRACEBACK, "08.0 later"), tail=2)
    assert texts == [["  line 3", "ValueError: bad"], ["later"]]


@pytest.mark.parametrize("early", ["07.4", "01.2"], ids=["between-streams", "clock-set-back"])
def test_a_line_may_have_an_earlier_stamp_than_the_one_before(early):
    texts, _ = read(body("07.5 one", f"{early} two", "07.6 three"), body("07.6 three", "08.0 four"))
    assert texts == [["one", "two", "three"], ["four"]]


def test_what_is_no_longer_there_hides_nothing_new():
    texts, _ = read(body(*TRACEBACK), body("08.0 of the next file"))
    assert texts[1] == ["of the next file"]


def test_a_tail_that_could_not_be_read_is_asked_for_again_and_then_no_more():
    texts, asked = read(EXCUSE, body("07.5 one"), body("07.5 one", "08.0 two"), tail=1)
    assert texts == [None, ["one"], ["two"]]
    assert [query.get("tailLines") for query in asked] == [["1"], ["1"], None]


@pytest.mark.parametrize("first", [b"", EXCUSE], ids=["silent", "failed"])
def test_without_a_tail_at_all_the_next_read_begins_where_the_first_has(first):
    texts, asked = read(first, body("05.0 old", "08.5 new"), body("08.5 new"), tail=0)
    assert texts[1:] == [["new"], []]
    assert [query.get("tailLines") for query in asked] == [["0"], None, None]
    assert asked[1]["sinceTime"] == ["2026-01-01T00:00:07Z"]
